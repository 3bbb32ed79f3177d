//! Unexpected results.

/// Kinds of incidents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncidentKind {
    /// Bytes, length, `ETag` or range of a response are not those of the resource.
    WrongBody,
    /// The length in the head of a response to HEAD.
    WrongHead,
    /// A stored response that had to be refreshed before.
    TooStale,
    /// A stored response that had been purged.
    Purged,
    /// No complete response within the deadline.
    Hang,
    /// A status that the request does not explain.
    Status(u16),
    /// The connection or stream ended within a response.
    Cut,
    /// The connection ended before a response.
    Closed,
    /// The connection was not accepted.
    Refused,
    /// Malformed bytes were accepted, or another rule was broken.
    Accepted,
}

impl IncidentKind {
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::WrongBody => "wrong body".to_owned(),
            Self::WrongHead => "wrong length in a response to HEAD".to_owned(),
            Self::TooStale => "outdated response".to_owned(),
            Self::Purged => "purged response".to_owned(),
            Self::Hang => "hang".to_owned(),
            Self::Status(status) => format!("status {status}"),
            Self::Cut => "cut within a response".to_owned(),
            Self::Closed => "closed before a response".to_owned(),
            Self::Refused => "connection refused".to_owned(),
            Self::Accepted => "bad request accepted".to_owned(),
        }
    }
}

/// An unexpected result.
#[derive(Clone, Debug)]
pub struct Incident {
    pub kind: IncidentKind,
    pub detail: String,
}

impl Incident {
    pub fn new(kind: IncidentKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}
