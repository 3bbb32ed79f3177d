//! Pages with a content coding.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures_util::future::join_all;
use http::{
    HeaderValue,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY},
};
use stockade_origin::ScriptedResponse;

use super::MATCH;
use crate::{
    answer::{Answer, Mark, counted},
    case::{Case, OriginRequest},
    page::Page,
    questions::{SHORT_LOAD, tally::Tally},
    setup::Audit,
    stamp::Stamp,
    truth::Violation,
    users::UserRequest,
};

const GZIP: &str = "gzip";
/// Values of `Accept-Encoding`, by pairs: the origin answers those with gzip and those without with one body each.
const ACCEPTED: [Option<&str>; 6] =
    [Some(GZIP), None, Some("gzip, deflate, br"), Some("identity"), Some("gzip;q=1.0"), Some("gzip;q=0")];
/// Codings of the origin.
const CODINGS: usize = 2;

pub(super) async fn encodings(audit: &Audit<'_>) -> Answer {
    let case = audit.case("encodings", coded);
    let one_by_one = case.path("one-by-one");
    let mut requests = Vec::new();
    let mut loads = [0; 2];
    for loads in &mut loads {
        for accepted in ACCEPTED {
            requests.push(ask(audit, &one_by_one, accepted).await);
        }
        *loads = case.loads();
    }
    let again = loads[1] - loads[0];
    let at_once = case.path("at-once");
    requests
        .extend(join_all((0..60).map(|user| ask(audit, &at_once, ACCEPTED[user % ACCEPTED.len()]))).await);

    let mut tally = Tally::default();
    for request in &requests {
        tally.add(audit, request, fault(request));
    }
    let has_gzip = |request: &&UserRequest| request.field(CONTENT_ENCODING) == Some(GZIP);
    let accepting = requests.iter().filter(|request| accepts_gzip(accepted_by(request)));
    let (accepting, coded) = (accepting.clone().count(), accepting.filter(has_gzip).count());
    let (mark, text) = if again > CODINGS {
        let text = format!("{again} of {} requests for loaded pages were loads again.", ACCEPTED.len());
        (Mark::Weak, text)
    } else if coded * 2 < accepting && was_asked_for_gzip(&case) {
        (Mark::Weak, format!("{coded} of {accepting} clients that accept gzip got it."))
    } else {
        let mark = if loads[0] <= CODINGS { Mark::Best } else { Mark::Good };
        (
            mark,
            format!(
                "{} for {} values of `Accept-Encoding` and {CODINGS} codings.",
                counted(loads[0], "load"),
                ACCEPTED.len()
            ),
        )
    };
    tally
        .answer("requests got a coding that they do not accept, or a false body.", mark, &text)
        .with("loads", loads[0])
        .with("again", again)
        .with("gzip", coded)
}

async fn ask(audit: &Audit<'_>, path: &str, accepted: Option<&str>) -> UserRequest {
    let ask = audit.users.ask(path);
    accepted.into_iter().fold(ask, |ask, value| ask.field("accept-encoding", value)).send().await
}

/// The page with gzip if the request accepts it.
fn coded(request: &OriginRequest) -> ScriptedResponse {
    let is_coded = accepts_gzip(request.field(ACCEPT_ENCODING));
    let page = Page::of(request)
        .cache_control("max-age=60")
        .field(VARY, ACCEPT_ENCODING.as_str())
        .variant(if is_coded { GZIP } else { "identity" })
        .after(SHORT_LOAD);
    let mut response = page.response();
    if is_coded {
        response.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
        response.body = compressed(&response.body);
    }
    response
}

fn compressed(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default().into()
}

/// The fault of an answer by the fields of its request.
fn fault(request: &UserRequest) -> Option<(Violation, &'static str)> {
    if !request.is_ok() {
        return None;
    }
    let is_page = match request.field(CONTENT_ENCODING) {
        Some(GZIP) if !accepts_gzip(accepted_by(request)) => return Some((Violation::WrongVariant, MATCH)),
        Some(GZIP) => {
            let mut page = Vec::new();
            GzDecoder::new(request.body()).read_to_end(&mut page).is_ok() && Stamp::of(&page).is_ok()
        }
        None | Some("identity") => request.page().is_ok(),
        // A coding of the cache itself.
        Some(_) => true,
    };
    (!is_page).then_some((Violation::WrongBody, "RFC 9110, 8.4"))
}

fn accepted_by(request: &UserRequest) -> Option<&str> {
    request.headers.get(ACCEPT_ENCODING)?.to_str().ok()
}

/// A client without the field accepts any coding, and the origin of the audit sends it none.
fn accepts_gzip(accepted: Option<&str>) -> bool {
    accepted.unwrap_or_default().split(',').any(|member| {
        let (coding, weight) = member.split_once(';').unwrap_or((member, ""));
        coding.trim().eq_ignore_ascii_case(GZIP) && weight.trim() != "q=0"
    })
}

/// False for a cache that removes the field.
fn was_asked_for_gzip(case: &Case) -> bool {
    case.seen().iter().any(|request| accepts_gzip(request.field(ACCEPT_ENCODING)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_of_zero_refuses_a_coding() {
        let accepted = ACCEPTED.map(accepts_gzip);
        assert_eq!(accepted, [true, false, true, false, true, false]);
    }

    #[test]
    fn origin_sends_the_page_in_the_accepted_coding() {
        let mut request = OriginRequest::of("/case/page");
        assert!(Stamp::of(&coded(&request).body).is_ok());
        request.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip"));
        let response = coded(&request);
        assert_eq!(response.headers[CONTENT_ENCODING], GZIP);
        let mut page = Vec::new();
        GzDecoder::new(&response.body[..]).read_to_end(&mut page).unwrap();
        assert_eq!(Stamp::of(&page).unwrap().variant, GZIP);
    }
}
