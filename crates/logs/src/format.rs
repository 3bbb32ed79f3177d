//! The formats by their names.

use std::{fmt, str::FromStr};

use stockade_model::{message::shown, nearest::remedy};

use crate::{
    formats::{
        AccessLines, ArcLines, CsvColumns, CsvError, CsvLines, KeyLines, Layout, LayoutLines, LineParser,
        LirsLines, MetaLines, Pattern, PatternError, PatternLines, TwitterLines, W3cLines,
    },
    wrapper::Wrapper,
};

/// A name of a format, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatName {
    /// As [`Format`] reads it; `csv:COLUMNS` and `PATTERN` stand for texts.
    pub name: &'static str,
    /// A line of text.
    pub summary: &'static str,
}

/// Every format.
pub const FORMATS: [FormatName; 20] = [
    FormatName { name: "clf", summary: "access log in the Common Log Format" },
    FormatName {
        name: "combined",
        summary: "the same with referrer and user agent, as nginx and Apache write it",
    },
    FormatName {
        name: "json",
        summary: "access log with a JSON object a line: nginx, Caddy, Traefik, Envoy, Cloudflare, Google, Azure, Fastly, Akamai, CloudFront, ECS, Stockade",
    },
    FormatName {
        name: "w3c",
        summary: "table whose `#Fields` line names its columns: Amazon CloudFront, IIS; CloudFront's real-time logs",
    },
    FormatName { name: "envoy", summary: "default text of Envoy and Istio; their JSON is `json`" },
    FormatName { name: "alb", summary: "AWS Application Load Balancer" },
    FormatName { name: "elb", summary: "AWS Classic Load Balancer" },
    FormatName { name: "s3", summary: "server access log of Amazon S3" },
    FormatName { name: "haproxy", summary: "`option httplog` of HAProxy" },
    FormatName { name: "squid", summary: "native access log of Squid" },
    FormatName { name: "nginx-proxy-manager", summary: "access log of Nginx Proxy Manager" },
    FormatName { name: "har", summary: "HTTP Archive of a browser, up to 256 MiB" },
    FormatName { name: "oracle-general", summary: "binary trace of libCacheSim, 24 bytes a request" },
    FormatName {
        name: "twitter",
        summary: "time,key,key size,value size,client,operation,TTL: twitter/cache-trace",
    },
    FormatName {
        name: "meta",
        summary: "key,op,size,op_count,... with a header: kvcache traces of CacheLib",
    },
    FormatName { name: "keys", summary: "one key a line, any text" },
    FormatName { name: "lirs", summary: "one block number a line" },
    FormatName { name: "arc", summary: "first block, blocks, ignored, request number" },
    FormatName {
        name: "csv:COLUMNS",
        summary: "table with columns by position or header, such as csv:time=0,key=1,size=2",
    },
    FormatName {
        name: "PATTERN",
        summary: "nginx's log_format ($remote_addr ...), or Apache's and Varnish's (%h %l %u %t \"%r\" %s %b)",
    },
];

/// The format of a log or trace.
///
/// ```
/// use stockade_logs::Format;
///
/// assert_eq!("combined".parse(), Ok(Format::Common));
/// assert_eq!("csv:key=0".parse::<Format>()?.to_string(), "csv:key=0");
/// assert_eq!("twiter".parse::<Format>().unwrap_err().to_string(), "`twiter` is not a format: did you mean `twitter`?");
/// # Ok::<(), stockade_logs::FormatError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// The Common Log Format and formats that start like it. Lines of JSON may be among its lines.
    Common,
    /// The fields of [`JSON_FIELDS`](crate::JSON_FIELDS). Lines in the Common Log Format may be among its lines.
    Json,
    /// The W3C Extended Log File Format.
    W3c,
    /// A format of a server or service, with a fixed order of fields.
    Layout(Layout),
    /// HTTP Archive.
    Har,
    /// The binary traces of libCacheSim.
    OracleGeneral,
    /// The traces of Twitter's caches.
    Twitter,
    /// The kvcache traces of `CacheLib`.
    Meta,
    /// One key a line.
    Keys,
    /// One block number a line.
    Lirs,
    /// Ranges of blocks.
    Arc,
    /// A table.
    Csv(CsvColumns),
    /// A format of nginx, Apache or Varnish.
    Pattern(Pattern),
}

/// Why a text is not a format. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is no such name.
    #[error("`{name}` is not a format: {remedy}")]
    Unknown {
        /// The name.
        name: String,
        /// The nearest name, or all of them.
        remedy: String,
    },
    /// The columns of a table.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// A pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Ok(match text.trim() {
            "clf" | "combined" => Self::Common,
            "json" => Self::Json,
            "w3c" => Self::W3c,
            "har" => Self::Har,
            "oracle-general" => Self::OracleGeneral,
            "twitter" => Self::Twitter,
            "meta" => Self::Meta,
            "keys" => Self::Keys,
            "lirs" => Self::Lirs,
            "arc" => Self::Arc,
            "csv" => return Err(CsvError::NoKey.into()),
            name => match name.strip_prefix("csv:") {
                Some(columns) => Self::Csv(columns.parse()?),
                None if name.contains(['$', '%']) => Self::Pattern(text.parse()?),
                None if let Some(layout) = Layout::named(name) => Self::Layout(layout),
                None => {
                    let remedy = remedy(name, FORMATS.iter().map(|format| format.name));
                    return Err(FormatError::Unknown { name: shown(name), remedy });
                }
            },
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Common => "clf",
            Self::Json => "json",
            Self::W3c => "w3c",
            Self::Layout(layout) => layout.name(),
            Self::Har => "har",
            Self::OracleGeneral => "oracle-general",
            Self::Twitter => "twitter",
            Self::Meta => "meta",
            Self::Keys => "keys",
            Self::Lirs => "lirs",
            Self::Arc => "arc",
            Self::Csv(columns) => return write!(f, "csv:{columns}"),
            Self::Pattern(pattern) => return pattern.fmt(f),
        })
    }
}

impl Format {
    /// True for logs of servers and services, whose requests have times, statuses and sizes. A trace may have keys alone.
    #[must_use]
    pub fn is_access_log(&self) -> bool {
        match self {
            Self::Common | Self::Json | Self::W3c | Self::Har | Self::Layout(_) | Self::Pattern(_) => true,
            Self::OracleGeneral
            | Self::Twitter
            | Self::Meta
            | Self::Keys
            | Self::Lirs
            | Self::Arc
            | Self::Csv(_) => false,
        }
    }

    /// True if the requests of its logs go to many hosts, so that the URL of an object has the host.
    pub(crate) fn is_forward(&self) -> bool {
        match self {
            Self::Har => true,
            Self::Layout(layout) => layout.is_forward(),
            _ => false,
        }
    }

    /// False if its own lines may look like those of a wrapper: `web-1 | ...` can be a pattern.
    pub(crate) fn may_have(&self, wrapper: Wrapper) -> bool {
        wrapper != Wrapper::Compose || !matches!(self, Self::Pattern(_) | Self::Csv(_) | Self::Keys)
    }

    /// The parser of its lines; none: it has no lines.
    pub(crate) fn line_parser(&self) -> Option<Box<dyn LineParser>> {
        Some(match self {
            Self::Common | Self::Json => Box::new(AccessLines::default()),
            Self::Har | Self::OracleGeneral => return None,
            Self::W3c => Box::new(W3cLines::default()),
            Self::Layout(layout) => Box::new(LayoutLines::new(*layout)),
            Self::Twitter => Box::new(TwitterLines),
            Self::Meta => Box::new(MetaLines::default()),
            Self::Keys => Box::new(KeyLines),
            Self::Lirs => Box::new(LirsLines),
            Self::Arc => Box::new(ArcLines),
            Self::Csv(columns) => Box::new(CsvLines::new(columns.clone())),
            Self::Pattern(pattern) => Box::new(PatternLines::new(pattern.clone())),
        })
    }
}
