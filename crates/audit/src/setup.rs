//! An audit: the origin, the users, the questions one after another, and the report.

use std::{borrow::Cow, collections::BTreeMap, io, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use stockade_http::{client::HttpUrl, tls::TrustError};
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime},
};
use stockade_origin::{Origin, OriginOptions, OriginStartError, ScriptedResponse};

use crate::{
    answer::Answer,
    case::{Case, CaseScript, OriginRequest},
    control::Control,
    page::Page,
    questions::{Needs, Question, groups, is_named, questions},
    remedy::remedy,
    server_identity::ServerIdentity,
    truth::Truth,
    users::Users,
};

/// How long a cache may take to ask the origin again after faults, and the pause between attempts.
const SETTLING: Duration = Duration::from_secs(10);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(250);

/// An audit cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Origin(#[from] OriginStartError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot start the audit: {0}")]
    Runtime(#[from] io::Error),
    #[error("the cache at {url} does not answer: {reason}. Start it, or write the URL at which it listens")]
    NoAnswer { url: String, reason: String },
    #[error(
        "the cache at {url} answered with status {status} and did not ask the origin of the audit: let it forward to \
         http://{origin} (nginx: `proxy_pass http://{origin};`, Varnish: `varnishd -b {origin}`)"
    )]
    OtherOrigin { url: String, status: u16, origin: SocketAddr },
    #[error(
        "the cache at {url} stores nothing: a page with `Cache-Control: max-age=60` was loaded twice for two requests. \
         Switch its cache on for all paths and hosts"
    )]
    StoresNothing { url: String },
    #[error("the command that empties the cache failed: {0}")]
    Reset(String),
}

/// The origin of an audit, to which the cache has to forward.
pub struct AuditOrigin {
    script: Arc<CaseScript>,
    origin: Origin,
    /// Different in each audit, so that no page is stored from an earlier one.
    id: String,
    time: Live,
}

/// A cache, and the questions about it.
#[derive(Debug)]
pub struct Examination<'a> {
    pub url: &'a HttpUrl,
    /// The name of a server that does not state it.
    pub server_name: Option<&'static str>,
    pub control: &'a Control,
    /// The questions, or groups of them, by their ids; empty: all.
    pub ask: &'a [&'static str],
}

/// The origin and the users of an audit.
pub(crate) struct Audit<'a> {
    pub(crate) users: Users,
    pub(crate) control: &'a Control,
    origin: &'a AuditOrigin,
    url: String,
}

/// The answers of an audit.
#[derive(Debug)]
pub struct AuditReport {
    pub server: ServerIdentity,
    pub url: String,
    /// The address of the origin, to which the cache forwarded.
    pub origin: SocketAddr,
    pub took: Duration,
    pub answers: Vec<(&'static Question, Answer)>,
    /// The questions or groups that were to be asked; empty: all.
    pub ask: Vec<&'static str>,
    /// The questions whose control of the cache the audit lacks.
    pub not_asked: Vec<&'static Question>,
    pub truth: Truth,
    /// The remedy for each answer by the question's id, in the words of the server.
    pub remedies: BTreeMap<&'static str, Cow<'static, str>>,
}

impl AuditOrigin {
    /// Starts the origin. `id` is different in each audit.
    ///
    /// # Errors
    /// The address is taken.
    pub fn start(listen: SocketAddr, id: String, time: Live) -> Result<Self, AuditError> {
        let script = Arc::new(CaseScript::new(time.clone()));
        let options = OriginOptions {
            listen,
            seed: Seed(1),
            script: Some(Arc::clone(&script) as Arc<_>),
            ..OriginOptions::default()
        };
        Ok(Self { script, origin: Origin::start(&options)?, id, time })
    }

    /// The address that the cache has to forward to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.origin.address
    }

    /// Asks questions about a cache. `progress` gets the name of each group before its first question.
    ///
    /// # Errors
    /// The cache does not answer, has another origin, or stores nothing; it cannot be emptied; or the users cannot trust certificates.
    pub async fn examine(
        &self,
        examination: &Examination<'_>,
        progress: impl Fn(&str),
    ) -> Result<AuditReport, AuditError> {
        let Examination { url, control, .. } = examination;
        let users = Users::new(url, self.time.clone())?;
        Audit { users, control, origin: self, url: url.origin() }.run(examination, progress).await
    }
}

impl Examination<'_> {
    /// True if there is the control that a question needs.
    fn can_ask(&self, question: &Question) -> bool {
        match question.needs {
            Needs::Requests => true,
            Needs::Purge => self.control.purge.is_some(),
            Needs::Server => self.control.server.is_some(),
            Needs::Reload => self.control.can_reload(),
        }
    }
}

impl Audit<'_> {
    async fn run(
        &self,
        examination: &Examination<'_>,
        progress: impl Fn(&str),
    ) -> Result<AuditReport, AuditError> {
        let time = &self.origin.time;
        let began = time.now();
        let server = self.check(examination.server_name).await?;
        let mut answers = Vec::new();
        for (name, questions) in groups() {
            let asked: Vec<_> = questions
                .iter()
                .filter(|question| is_named(examination.ask, question.id) && examination.can_ask(question))
                .collect();
            if asked.is_empty() {
                continue;
            }
            progress(name);
            self.control.reset().await.map_err(AuditError::Reset)?;
            self.settled(name).await;
            answers.extend(self.ask_group(&asked).await);
        }
        let remedies = answers
            .iter()
            .filter_map(|(question, answer)| {
                Some((question.id, remedy(server.name, question.id, answer.mark)?))
            })
            .collect();
        let is_left_out =
            |question: &&Question| is_named(examination.ask, question.id) && !examination.can_ask(question);
        let not_asked = questions().filter(is_left_out).collect();
        let (url, took, truth) = (self.url.clone(), time.now() - began, self.users.truth());
        let origin = self.origin.address();
        let ask = examination.ask.to_vec();
        Ok(AuditReport { server, url, origin, took, answers, ask, not_asked, truth, remedies })
    }

    /// Waits, for [`SETTLING`] at most, until the cache asks the origin again, after the faults of another group.
    async fn settled(&self, group: &str) {
        let case =
            self.case(&format!("before-{group}"), |request| Page::of(request).cache_control("no-store"));
        let ends = self.users.now() + SETTLING;
        while self.users.now() < ends {
            let left = ends - self.users.now();
            if self.users.ask(&case.path("page")).patience(left).send().await.is_ok() {
                return;
            }
            self.users.wait(BETWEEN_ATTEMPTS).await;
        }
    }

    /// The answers of a group, in the order of its questions.
    async fn ask_group(&self, questions: &[&'static Question]) -> Vec<(&'static Question, Answer)> {
        let asked = questions.iter().copied().enumerate();
        let (waiting, busy): (Vec<_>, Vec<_>) = asked.partition(|(_, question)| question.mostly_waits);
        let ask = async |(place, question): (usize, &'static Question)| {
            (place, question, (question.ask)(self).await)
        };
        let mut answers = join_all(waiting.into_iter().map(ask)).await;
        for question in busy {
            answers.push(ask(question).await);
        }
        answers.sort_by_key(|(place, ..)| *place);
        answers.into_iter().map(|(_, question, answer)| (question, answer)).collect()
    }

    /// Checks that the cache forwards to the origin and stores pages.
    async fn check(&self, server_name: Option<&'static str>) -> Result<ServerIdentity, AuditError> {
        let url = self.url.clone();
        let case = self.case("check", |request| Page::of(request).cache_control("max-age=60"));
        let mut server = ServerIdentity::default();
        for _ in 0..2 {
            let request = self.users.get(&case.path("page")).await;
            let response = request
                .result
                .map_err(|error| AuditError::NoAnswer { url: url.clone(), reason: error.to_string() })?;
            if case.loads() == 0 {
                let (status, origin) = (response.status().as_u16(), self.origin.address());
                return Err(AuditError::OtherOrigin { url, status, origin });
            }
            server = ServerIdentity::of(response.headers());
        }
        server.name = server.name.or(server_name);
        if case.loads() > 1 {
            return Err(AuditError::StoresNothing { url });
        }
        Ok(server)
    }

    /// A part of the origin with paths of its own.
    pub(crate) fn case<R: Into<ScriptedResponse>>(
        &self,
        name: &str,
        respond: impl Fn(&OriginRequest) -> R + Send + Sync + 'static,
    ) -> Arc<Case> {
        self.origin.script.add(format!("{name}-{}", self.origin.id), respond)
    }
}
