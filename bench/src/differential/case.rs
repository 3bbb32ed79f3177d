//! A case: bytes of clients, a script for the origin, and questions with the answers that the standard allows.

/// The part of HTTP that a case is about; a table of the report each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Framing,
    RequestLine,
    Host,
    Fields,
    Responses,
    Caching,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Framing, Self::RequestLine, Self::Host, Self::Fields, Self::Responses, Self::Caching];

    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Framing => "Framing of requests",
            Self::RequestLine => "Request lines",
            Self::Host => "Host",
            Self::Fields => "Fields and connections",
            Self::Responses => "Responses of the origin",
            Self::Caching => "Caching",
        }
    }
}

/// Whether the standard lets a shared cache do what a question asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// "MUST NOT", or the opposite is a "MUST".
    Forbidden,
    /// The opposite is a "SHOULD" or a "MAY", the bytes violate the grammar, or the standard is silent.
    Unsettled,
    /// The bytes are valid, and the standard names the behaviour.
    Permitted,
}

/// Something that a proxy does or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The origin receives a request.
    Forwarded,
    /// A field with this name reaches the origin.
    FieldForwarded(&'static str),
    /// The request reaches the origin without a field of this name that the client sent.
    FieldLost(&'static str),
    /// The client receives the origin's response, not an error of the proxy.
    Delivered,
    /// The response to the first request looks complete.
    Complete,
    /// The last request is answered with a response that the origin gave to an earlier one.
    Reused,
    /// The response to the last request contains [`EVIL`], which that request did not.
    Evil,
    /// The response to the first request contains [`EVIL`].
    EvilFirst,
}

/// The mark of what an attacker sends.
pub const EVIL: &str = "evil";

impl Question {
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Forwarded => "forwarded".to_owned(),
            Self::FieldForwarded(name) => format!("`{name}` forwarded"),
            Self::FieldLost(name) => format!("`{name}` lost"),
            Self::Delivered => "delivered".to_owned(),
            Self::Complete => "looks complete".to_owned(),
            Self::Reused => "reused".to_owned(),
            Self::Evil => "reaches the next client".to_owned(),
            Self::EvilFirst => "reaches the client".to_owned(),
        }
    }
}

/// One connection of a client. `{id}` in its text is unique for the case and the proxy; characters are bytes (Latin-1).
#[derive(Clone, Debug)]
pub struct CaseStep {
    pub text: String,
    /// The methods of its requests, for the framing of the responses: true for HEAD.
    pub is_head: Vec<bool>,
    /// The number of responses after which the client reads no further.
    pub responses: usize,
    /// The client closes its side after the last byte.
    pub closes: bool,
}

impl CaseStep {
    /// A connection with one request.
    #[must_use]
    pub fn one(text: impl Into<String>) -> Self {
        let text = text.into();
        let is_head = vec![text.starts_with("HEAD ")];
        Self { text, is_head, responses: 1, closes: false }
    }

    /// A GET of the case's URL with these header lines.
    #[must_use]
    pub fn get(fields: &str) -> Self {
        Self::one(format!("GET /{{id}} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n"))
    }

    #[must_use]
    pub fn responses(mut self, responses: usize) -> Self {
        self.responses = responses;
        self.is_head.resize(responses, false);
        self
    }

    #[must_use]
    pub fn closing(mut self) -> Self {
        self.closes = true;
        self
    }
}

/// A response of the origin. `{serial}` is the number of the response within the case, and `{now}` and `{now+60}` are
/// dates.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A well-formed response whose body is the request as it arrived.
    Echo { status: String, fields: String },
    /// These bytes.
    Raw { text: String, then: Then },
    /// Depends on the request.
    If { when: When, then: Box<Reply>, otherwise: Box<Reply> },
}

/// A condition for a reply.
#[derive(Clone, Debug)]
pub enum When {
    /// The request has a field with this name.
    Field(String),
    /// The target of the request ends with this.
    Target(&'static str),
}

/// The origin's treatment of the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    KeepOpen,
    Close,
    Reset,
}

impl Reply {
    #[must_use]
    pub fn echo(fields: impl Into<String>) -> Self {
        Self::Echo { status: "200 OK".to_owned(), fields: fields.into() }
    }

    #[must_use]
    pub fn raw(text: impl Into<String>, then: Then) -> Self {
        Self::Raw { text: text.into(), then }
    }

    #[must_use]
    pub fn for_target(target: &'static str, then: Self, otherwise: Self) -> Self {
        Self::If { when: When::Target(target), then: Box::new(then), otherwise: Box::new(otherwise) }
    }
}

impl Reply {
    fn bytes(&self) -> usize {
        match self {
            Self::Echo { fields, .. } => fields.len(),
            Self::Raw { text, .. } => text.len(),
            Self::If { then, otherwise, .. } => then.bytes().max(otherwise.bytes()),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Case {
    pub kind: Kind,
    pub name: String,
    /// The section of the standard, such as `9112, 6.3`.
    pub clause: &'static str,
    pub asks: Vec<(Question, Reading)>,
    pub steps: Vec<CaseStep>,
    /// The nth request gets the nth reply, later ones the last.
    pub replies: Vec<Reply>,
    /// How many requests the client sends, as the standard reads its bytes.
    pub requests_max: usize,
    /// Afterwards another client sends a request of its own, which has to get its own response.
    pub has_victim: bool,
    /// Why a lax answer does not count as one: listed and counted apart.
    pub exception: Option<&'static str>,
}

impl Case {
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<String>, clause: &'static str) -> Self {
        Self {
            kind,
            name: name.into(),
            clause,
            asks: Vec::new(),
            steps: Vec::new(),
            replies: vec![Reply::echo("Cache-Control: no-store\r\n")],
            requests_max: 1,
            has_victim: false,
            exception: None,
        }
    }

    /// A case about a request: is it forwarded, and what does another client see afterwards?
    #[must_use]
    pub fn request(
        kind: Kind,
        name: impl Into<String>,
        clause: &'static str,
        reading: Reading,
        step: CaseStep,
    ) -> Self {
        let mut case = Self::new(kind, name, clause).ask(Question::Forwarded, reading).step(step);
        case.has_victim = true;
        case
    }

    #[must_use]
    pub fn ask(mut self, question: Question, reading: Reading) -> Self {
        self.asks.push((question, reading));
        self
    }

    #[must_use]
    pub fn step(mut self, step: CaseStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Replaces the origin's script.
    #[must_use]
    pub fn replies(mut self, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.replies = replies.into_iter().collect();
        self
    }

    #[must_use]
    pub fn requests_max(mut self, requests: usize) -> Self {
        self.requests_max = requests;
        self
    }

    /// The size of its largest request or response.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_steps = self.steps.iter().map(|step| step.text.len()).max();
        let of_replies = self.replies.iter().map(Reply::bytes).max();
        of_steps.max(of_replies).unwrap_or(0)
    }

    #[must_use]
    pub fn except(mut self, reason: &'static str) -> Self {
        self.exception = Some(reason);
        self
    }
}

/// The bytes of a template: each character is one byte (Latin-1).
///
/// # Panics
/// If a table has a character beyond U+00FF: a mistake in this program.
#[must_use]
pub fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(char).expect("the tables have Latin-1 only")).collect()
}
