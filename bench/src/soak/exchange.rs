//! One request, from its connection to the last byte.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::{Method, Request, Response, body::Incoming, header::IF_NONE_MATCH};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    abuse,
    client::{Sender, Target},
    content::{ECHO, HOST, VARIANT},
    context::Context,
    incident::{Incident, IncidentKind},
    origin::unix_ms,
    pattern::{Pace, Pattern, PatternBody},
    traffic::{Action, Planned, Transport},
    verify::{ExpectedBody, Received, cache_detail, expected_body},
};

/// Loads have 10 s, waiting requests 5 s more, and a stopped origin pauses a body for 12 s.
const DEADLINE: Duration = Duration::from_secs(25);
/// For a reader that takes 20 s, and for connections that the proxy has to close.
const SLOW_DEADLINE: Duration = Duration::from_mins(1);
const BURST: usize = 8;
/// The socket buffer of a slow reader.
const SLOW_RECEIVE_BYTES: u32 = 8_192;

type Checked = Result<(), Incident>;

/// Sends a request, checks what comes back, and counts it.
pub async fn perform(context: Arc<Context>, planned: Planned) {
    context.tally().sent(&planned);
    if planned.action == Action::Burst {
        let mut streams = JoinSet::new();
        for _ in 0..BURST {
            let context = Arc::clone(&context);
            let one = Planned { action: Action::Get, ..planned };
            streams.spawn(async move { observe(&context, one).await });
        }
        streams.join_all().await;
    } else {
        observe(&context, planned).await;
    }
    context.tally().finished(planned.role);
}

async fn observe(context: &Context, planned: Planned) {
    let since = Instant::now();
    let deadline = match planned.action {
        Action::SlowReader { .. } | Action::SlowHead | Action::Idle => SLOW_DEADLINE,
        _ => DEADLINE,
    };
    let checked = timeout(deadline, exchange(context, &planned, since)).await;
    let hang = || Incident::new(IncidentKind::Hang, format!("not complete after {} s", deadline.as_secs()));
    if let Err(incident) = checked.unwrap_or_else(|_| Err(hang())) {
        context.record_incident(&planned, since, &incident);
    }
}

async fn exchange(context: &Context, planned: &Planned, since: Instant) -> Checked {
    let target = context.target(planned.role);
    match planned.action {
        Action::SlowHead => return abuse::slow_head(target.address(), planned.number).await,
        Action::Idle => return abuse::idle(target.address()).await,
        Action::Malformed(index) => return abuse::malformed(target.address(), index).await,
        Action::CutUpload => return abuse::cut_upload(target.address()).await,
        _ => {}
    }
    let asked = Asked::new(context.seed, planned);
    let mut sender = connection(target, planned).await?;
    let mut sent_ms = unix_ms();
    let response = match sender.send(asked.request(planned, sender.is_http2())?).await {
        // As every client does: the proxy may close a kept connection at any time. It is counted all the same.
        Err(incident) if sender.is_used() => {
            context.record_incident(planned, since, &incident);
            sender = match planned.transport {
                Transport::Http2 => target.new_http2().await?,
                _ => target.new_http1(None).await?,
            };
            sent_ms = unix_ms();
            sender.send(asked.request(planned, sender.is_http2())?).await?
        }
        response => response?,
    };
    let detail = cache_detail(response.headers()).to_owned();
    context.tally().responded(response.status().as_u16(), &detail);
    let expected = match planned.action {
        Action::Post { .. } => Some(asked.expected_echo(&response)?),
        action => {
            let received = Received {
                status: response.status().as_u16(),
                headers: response.headers(),
                sent_ms,
                head_ms: unix_ms(),
                seed: context.seed,
                if_none_match: asked.if_none_match.as_deref(),
                range: asked.range,
                purged_ms: context.purged_ms(planned.role, &planned.resource, sent_ms),
            };
            expected_body(&planned.resource, action, &received)?
        }
    };
    let is_whole = match &expected {
        Some(expected) => read_body(context, planned, response, expected).await?,
        None => skip_body(response).await?,
    };
    if is_whole {
        if planned.action == Action::Get {
            context.tally().took(since.elapsed());
        }
        if planned.transport != Transport::New {
            target.keep(sender).await;
        }
    }
    Ok(())
}

async fn connection(target: &Target, planned: &Planned) -> Result<Sender, Incident> {
    match (planned.transport, planned.action) {
        (Transport::Kept, _) => target.kept().await,
        (Transport::New, Action::SlowReader { .. }) => target.new_http1(Some(SLOW_RECEIVE_BYTES)).await,
        (Transport::New, _) => target.new_http1(None).await,
        (Transport::Http2, _) => target.http2().await,
    }
}

/// The condition, range and upload of a request.
struct Asked {
    if_none_match: Option<String>,
    range: Option<(u64, u64)>,
    upload: Option<Upload>,
}

#[derive(Clone, Copy)]
struct Upload {
    pattern: Pattern,
    bytes: u64,
    pace: Pace,
}

impl Asked {
    fn new(seed: u64, planned: &Planned) -> Self {
        let resource = &planned.resource;
        let current = resource.representation(seed, resource.version_at(unix_ms()));
        let is_conditional = planned.action == Action::Conditional;
        let range = match planned.action {
            Action::Range(first, last) => {
                Some((current.body_bytes * first / 1_000, current.body_bytes * last / 1_000))
            }
            _ => None,
        };
        let upload = match planned.action {
            Action::Post { bytes, is_slow, is_chunked } => {
                let pause = Duration::from_millis(if is_slow { 200 } else { 0 });
                let pace = Pace { is_unsized: is_chunked, pause, part_bytes: 16_384 };
                Some(Upload { pattern: Pattern(seed ^ planned.number), bytes, pace })
            }
            _ => None,
        };
        Self { if_none_match: is_conditional.then(|| current.etag()), range, upload }
    }

    fn request(&self, planned: &Planned, is_http2: bool) -> Result<Request<PatternBody>, Incident> {
        let path = match self.upload {
            Some(_) => format!("{ECHO}{}", planned.number % 100),
            None => planned.resource.path(),
        };
        let method = match planned.action {
            Action::Head => Method::HEAD,
            Action::Post { .. } => Method::POST,
            _ => Method::GET,
        };
        let mut request = Request::builder().method(method);
        request = if is_http2 {
            request.uri(format!("http://{HOST}{path}"))
        } else {
            request.uri(path).header("host", HOST)
        };
        if planned.resource.class.variants > 1 {
            request = request.header(VARIANT, planned.resource.variant.to_string());
        }
        if let Some(etag) = &self.if_none_match {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some((first, last)) = self.range {
            request = request.header("range", format!("bytes={first}-{last}"));
        }
        let body = self.upload.map_or_else(PatternBody::empty, |upload| {
            PatternBody::new(upload.pattern, 0..upload.bytes, upload.pace)
        });
        request
            .body(body)
            .map_err(|error| Incident::new(IncidentKind::Closed, format!("no request: {error}")))
    }

    /// The response to an upload: the origin names length and hash of what it received.
    fn expected_echo(&self, response: &Response<Incoming>) -> Result<ExpectedBody, Incident> {
        let Some(upload) = self.upload else {
            return Err(Incident::new(IncidentKind::WrongBody, "an upload without a body"));
        };
        let status = response.status().as_u16();
        if status != 200 {
            return Err(Incident::new(IncidentKind::Status(status), format!("{:?}", response.headers())));
        }
        let sent = upload.pattern.bytes(0, usize::try_from(upload.bytes).unwrap_or(usize::MAX));
        let hash = xxh3_64(&sent);
        let expected = format!("\"{:x}-{hash:016x}\"", upload.bytes);
        let found = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        if found != expected {
            let detail = format!("the origin received {found}, and {expected} was sent");
            return Err(Incident::new(IncidentKind::WrongBody, detail));
        }
        let one = super::content::Representation { version: 0, body: Pattern(hash), body_bytes: 100 };
        Ok(ExpectedBody { one, first: 0, bytes: 100 })
    }
}

/// Reads an error of the proxy itself.
async fn skip_body(response: Response<Incoming>) -> Result<bool, Incident> {
    let body = response.into_body().collect().await;
    body.map_err(|error| Incident::new(IncidentKind::Cut, format!("an error of the proxy: {error}")))?;
    Ok(true)
}

/// Reads and compares a body. Returns whether it was read to its end.
async fn read_body(
    context: &Context,
    planned: &Planned,
    response: Response<Incoming>,
    expected: &ExpectedBody,
) -> Result<bool, Incident> {
    let mut body = response.into_body();
    let (mut received, began) = (0, Instant::now());
    let cut_at = match planned.action {
        Action::CutReader(share) => Some(expected.bytes * share / 1_000),
        _ => None,
    };
    loop {
        if cut_at.is_some_and(|at| received >= at) {
            context.tally().unfinished_bodies += 1;
            return Ok(false);
        }
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| {
            let detail = format!("after {received} of {} bytes: {error}", expected.bytes);
            Incident::new(IncidentKind::Cut, detail)
        })?;
        let Ok(bytes) = frame.into_data() else { continue };
        let length = bytes.len() as u64;
        if received + length > expected.bytes || !expected.one.body.has(expected.first + received, &bytes) {
            let detail = format!("wrong bytes after {received} of {}", expected.bytes);
            return Err(Incident::new(IncidentKind::WrongBody, detail));
        }
        received += length;
        context.tally().body_bytes += length;
        if let Action::SlowReader { seconds } = planned.action {
            let share = received as f64 / expected.bytes as f64;
            sleep_until(began + Duration::from_secs(seconds).mul_f64(share)).await;
        }
    }
    if received != expected.bytes {
        let detail = format!("complete after {received} of {} bytes", expected.bytes);
        return Err(Incident::new(IncidentKind::WrongBody, detail));
    }
    context.tally().bodies += 1;
    Ok(true)
}
