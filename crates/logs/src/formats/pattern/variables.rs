//! The variables of nginx, Apache and Varnish.

use stockade_model::message::shown;

use super::PatternError;

/// A part of a pattern.
pub enum Token {
    Text(Vec<u8>),
    Variable(Variable),
}

/// A variable of a server.
#[derive(Clone, Debug)]
pub struct Variable {
    /// As written.
    pub name: String,
    /// None: it is of no use here.
    pub value: Option<Value>,
    /// The spaces within the value, as of a time.
    pub spaces: usize,
    /// nginx separates the values of several upstreams by `, ` and ` : `.
    pub is_list: bool,
}

/// The part of a request that a variable stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Request,
    Method,
    /// Its rank.
    Url(u8),
    /// With or without its question mark.
    Query,
    /// Its rank.
    Host(u8),
    Status,
    /// In bytes; its rank.
    Size(u8),
    /// Its rank.
    CacheControl(u8),
    ServiceTime {
        unit_ns: u64,
        rank: u8,
    },
    /// As in the Common Log Format, with or without brackets.
    CommonTime,
    /// RFC 3339.
    TextTime,
    NumberTime {
        unit_ns: u64,
    },
    /// In a format of `strftime`.
    StrftimeTime(String),
    /// The status of a cache: a hit had no request to the origin.
    CacheStatus,
    UserAgent,
    /// Its rank.
    ContentType(u8),
}

impl Value {
    pub const SLOTS: usize = 13;

    /// Values that state the same have one slot.
    pub fn slot(&self) -> usize {
        match self {
            Self::Request => 0,
            Self::Method => 1,
            Self::Url(_) => 2,
            Self::Query => 3,
            Self::Host(_) => 4,
            Self::Status => 5,
            Self::Size(_) => 6,
            Self::CacheControl(_) => 7,
            Self::ServiceTime { .. } => 8,
            Self::CommonTime | Self::TextTime | Self::NumberTime { .. } | Self::StrftimeTime(_) => 9,
            Self::CacheStatus => 10,
            Self::UserAgent => 11,
            Self::ContentType(_) => 12,
        }
    }

    /// The values of a slot with the lowest rank are used, the last one of several.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Url(rank)
            | Self::Host(rank)
            | Self::Size(rank)
            | Self::CacheControl(rank)
            | Self::ContentType(rank)
            | Self::ServiceTime { rank, .. } => *rank,
            Self::NumberTime { unit_ns } if *unit_ns < 1_000_000_000 => 0,
            Self::NumberTime { .. } => 1,
            Self::TextTime => 2,
            Self::CommonTime | Self::StrftimeTime(_) => 3,
            _ => 0,
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// Splits a `log_format` of nginx. The URL of `$uri$is_args$args` is one variable.
pub fn nginx(text: &str) -> Vec<Token> {
    dollar_names(text, nginx_variable)
}

/// Splits a layout of a vendor, whose variables are those of [`layout_variable`].
pub fn layout(text: &str) -> Vec<Token> {
    dollar_names(text, layout_variable)
}

fn dollar_names(text: &str, variable_of: fn(&str) -> Token) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("$uri$is_args$args") {
            tokens.push(variable("$uri$is_args$args", Value::Url(1)));
            rest = after;
            continue;
        }
        let dollar = rest.find('$').unwrap_or(rest.len());
        if dollar > 0 {
            tokens.push(Token::Text(rest[..dollar].into()));
            rest = &rest[dollar..];
            continue;
        }
        let name = rest[1..].strip_prefix('{').unwrap_or(&rest[1..]);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let name = &name[..name.bytes().take_while(|byte| is_name(*byte)).count()];
        let is_braced = rest[1..].starts_with('{') && rest[2 + name.len()..].starts_with('}');
        let end = 1 + name.len() + if is_braced { 2 } else { 0 };
        if name.is_empty() || (rest[1..].starts_with('{') && !is_braced) {
            tokens.push(Token::Text(b"$".to_vec()));
            rest = &rest[1..];
            continue;
        }
        tokens.push(variable_of(name));
        rest = &rest[end..];
    }
    tokens
}

/// The names say the unit, since a unit belongs to a format.
fn layout_variable(name: &str) -> Token {
    let value = match name {
        "request" => Value::Request,
        "method" => Value::Method,
        "url" => Value::Url(0),
        "host" => Value::Host(0),
        "status" => Value::Status,
        "bytes" => Value::Size(0),
        "took_seconds" => Value::ServiceTime { unit_ns: SECOND_NS, rank: 0 },
        "took_ms" => Value::ServiceTime { unit_ns: MILLISECOND_NS, rank: 0 },
        "cache" => Value::CacheStatus,
        "agent" => Value::UserAgent,
        "content_type" => Value::ContentType(0),
        "time" => Value::TextTime,
        "unix_time" => Value::NumberTime { unit_ns: SECOND_NS },
        "common_time" => Value::CommonTime,
        // That of HAProxy.
        "local_time" => Value::StrftimeTime("%d/%b/%Y:%H:%M:%S%.f".to_owned()),
        _ => return unused(format!("${name}"), false),
    };
    variable(&format!("${name}"), value)
}

fn nginx_variable(name: &str) -> Token {
    let value = match name {
        "request" => Value::Request,
        "request_method" => Value::Method,
        // `$uri` is the decoded path, `$request_uri` what the client sent.
        "request_uri" => Value::Url(0),
        "uri" | "document_uri" => Value::Url(1),
        "args" | "query_string" => Value::Query,
        "host" => Value::Host(0),
        "http_host" => Value::Host(1),
        "server_name" => Value::Host(2),
        "status" => Value::Status,
        "body_bytes_sent" => Value::Size(0),
        "bytes_sent" => Value::Size(1),
        "upstream_response_time" => Value::ServiceTime { unit_ns: SECOND_NS, rank: 0 },
        "request_time" => Value::ServiceTime { unit_ns: SECOND_NS, rank: 1 },
        "upstream_http_cache_control" => Value::CacheControl(0),
        "sent_http_cache_control" => Value::CacheControl(1),
        "http_user_agent" => Value::UserAgent,
        "sent_http_content_type" => Value::ContentType(0),
        "upstream_http_content_type" => Value::ContentType(1),
        "msec" => Value::NumberTime { unit_ns: SECOND_NS },
        "time_iso8601" => Value::TextTime,
        "time_local" => Value::CommonTime,
        _ => return unused(format!("${name}"), name.starts_with("upstream_")),
    };
    let spaces = usize::from(value == Value::CommonTime);
    let is_list =
        name.starts_with("upstream_") && !matches!(value, Value::CacheControl(_) | Value::ContentType(_));
    Token::Variable(Variable { name: format!("${name}"), value: Some(value), spaces, is_list })
}

/// Splits a format of Apache or Varnish. The URL of `%U%q` is one variable.
pub fn apache(text: &str) -> Result<Vec<Token>, PatternError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("%U%q") {
            tokens.push(variable("%U%q", Value::Url(0)));
            rest = after;
            continue;
        }
        let percent = rest.find('%').unwrap_or(rest.len());
        if percent > 0 {
            tokens.push(Token::Text(rest[..percent].into()));
            rest = &rest[percent..];
        } else if let Some(after) = rest.strip_prefix("%%") {
            tokens.push(Token::Text(b"%".to_vec()));
            rest = after;
        } else {
            let (token, after) = directive(rest)?;
            tokens.push(token);
            rest = after;
        }
    }
    Ok(tokens)
}

/// Reads `%>s`, `%!200,304{Referer}i`, `%{%Y}t`.
fn directive(text: &str) -> Result<(Token, &str), PatternError> {
    let error = || PatternError::Directive(shown(&text.chars().take(12).collect::<String>()));
    let is_modifier = |c: char| c.is_ascii_digit() || matches!(c, '!' | ',' | '<' | '>');
    let rest = text[1..].trim_start_matches(is_modifier);
    let (argument, rest) = match rest.strip_prefix('{') {
        Some(rest) => {
            let (argument, rest) = rest.split_once('}').ok_or_else(error)?;
            (Some(argument), rest)
        }
        None => (None, rest),
    };
    // `%^FB`, `%{NAME}^ti`.
    let (rest, length) = rest.strip_prefix('^').map_or((rest, 1), |rest| (rest, 2));
    let letter = rest.get(..length).filter(|letter| letter.bytes().all(|byte| byte.is_ascii_alphabetic()));
    let letter = letter.ok_or_else(error)?;
    let after = &rest[length..];
    let name = &text[..text.len() - after.len()];
    let value = match (letter, argument) {
        ("r", _) => Value::Request,
        ("m", _) => Value::Method,
        ("U", _) => Value::Url(0),
        ("q", _) => Value::Query,
        ("i", Some(header)) if header.eq_ignore_ascii_case("host") => Value::Host(0),
        ("V", _) => Value::Host(1),
        ("v", _) => Value::Host(2),
        ("s", _) => Value::Status,
        ("b" | "B", _) => Value::Size(0),
        ("O", _) => Value::Size(1),
        ("o", Some(header)) if header.eq_ignore_ascii_case("cache-control") => Value::CacheControl(0),
        ("i", Some(header)) if header.eq_ignore_ascii_case("user-agent") => Value::UserAgent,
        ("o", Some(header)) if header.eq_ignore_ascii_case("content-type") => Value::ContentType(0),
        ("x", Some("Varnish:time_firstbyte")) => Value::ServiceTime { unit_ns: SECOND_NS, rank: 0 },
        ("D", _) | ("T", Some("us")) => Value::ServiceTime { unit_ns: 1_000, rank: 1 },
        ("T", Some("ms")) => Value::ServiceTime { unit_ns: 1_000_000, rank: 2 },
        ("T", _) => Value::ServiceTime { unit_ns: SECOND_NS, rank: 3 },
        ("t", None) => return Ok((spaced(name, Value::CommonTime, 1), after)),
        ("t", Some(format)) => return Ok((time_directive(name, format), after)),
        _ => return Ok((unused(name.to_owned(), false), after)),
    };
    Ok((variable(name, value), after))
}

fn time_directive(name: &str, format: &str) -> Token {
    let format = format.strip_prefix("begin:").or_else(|| format.strip_prefix("end:")).unwrap_or(format);
    let value = match format {
        "sec" => Value::NumberTime { unit_ns: SECOND_NS },
        "msec" => Value::NumberTime { unit_ns: 1_000_000 },
        "usec" => Value::NumberTime { unit_ns: 1_000 },
        "msec_frac" | "usec_frac" => return unused(name.to_owned(), false),
        format => Value::StrftimeTime(format.to_owned()),
    };
    let spaces = if let Value::StrftimeTime(format) = &value { format.matches(' ').count() } else { 0 };
    spaced(name, value, spaces)
}

fn variable(name: &str, value: Value) -> Token {
    spaced(name, value, 0)
}

fn spaced(name: &str, value: Value, spaces: usize) -> Token {
    Token::Variable(Variable { name: name.to_owned(), value: Some(value), spaces, is_list: false })
}

fn unused(name: String, is_list: bool) -> Token {
    Token::Variable(Variable { name, value: None, spaces: 0, is_list })
}
