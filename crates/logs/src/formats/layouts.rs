//! Access logs of servers and services whose lines have fields in a fixed order: one row for each, in the variables of a
//! [pattern](super::pattern).

use std::fmt;

use memchr::memmem;

use super::{LineParser, Parsed, Pattern, Visit, pattern::PatternLines};
use crate::value::Problem;

/// A format with a fixed order of fields.
#[derive(Clone, Copy)]
pub struct Layout(&'static LayoutRow);

struct LayoutRow {
    name: &'static str,
    /// Its requests go to many hosts.
    is_forward: bool,
    /// A line has the first of these that fits.
    patterns: &'static [&'static str],
    /// True for the messages of the server in the same log.
    is_message: fn(&[u8]) -> bool,
}

static LAYOUTS: [LayoutRow; 7] = [
    // <https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage>: the default format string.
    // Istio has three more fields: <https://istio.io/latest/docs/tasks/observability/logs/access-log/>. The second of the
    // two times is that of the upstream.
    LayoutRow {
        name: "envoy",
        is_forward: false,
        patterns: &[
            r#"[$time] "$request" $status $flags $details $termination "$failure" $received $bytes $took_ms $took_ms "$forwarded" "$agent" "$id" "$host" $rest"#,
            r#"[$time] "$request" $status $flags $received $bytes $took_ms $took_ms "$forwarded" "$agent" "$id" "$host" $rest"#,
        ],
        is_message: never,
    },
    // <https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html>
    LayoutRow {
        name: "alb",
        is_forward: false,
        patterns: &[
            r#"$type $time $elb $client $target $request_seconds $took_seconds $response_seconds $status $target_status $received $bytes "$request" "$agent" $rest"#,
        ],
        is_message: never,
    },
    // <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html>
    LayoutRow {
        name: "elb",
        is_forward: false,
        patterns: &[
            r#"$time $elb $client $backend $request_seconds $took_seconds $response_seconds $status $backend_status $received $bytes "$request" "$agent" $rest"#,
            r#"$time $elb $client $backend $request_seconds $took_seconds $response_seconds $status $backend_status $received $bytes "$request"$rest"#,
        ],
        is_message: never,
    },
    // <https://docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html>: the total time and the turn-around time. Older
    // lines end before the host, and lines of S3's own operations may have no request.
    LayoutRow {
        name: "s3",
        is_forward: false,
        patterns: &[
            r#"$owner $bucket [$common_time] $client $requester $id $operation $key "$request" $status $error $bytes $object_bytes $took_ms $took_ms "$referrer" "$agent" $version $host_id $signature $cipher $authentication $host $rest"#,
            r#"$owner $bucket [$common_time] $client $requester $id $operation $key "$request" $status $error $bytes $object_bytes $took_ms $took_ms "$referrer" "$agent" $version $host_id $signature $cipher $authentication $host"#,
            r#"$owner $bucket [$common_time] $client $requester $id $operation $key "$request" $status $error $bytes $object_bytes $took_ms $took_ms "$referrer" "$agent"$rest"#,
            r"$owner $bucket [$common_time] $client $requester $id $operation $key $url $status $error $bytes $object_bytes $rest",
        ],
        is_message: never,
    },
    // <https://docs.haproxy.org/3.0/configuration.html#8.2.3>: TR/Tw/Tc/Tr/Ta. Syslog's prefix is part of the client.
    LayoutRow {
        name: "haproxy",
        is_forward: false,
        patterns: &[
            r#"$any [$local_time] $frontend $backend $header_ms/$queue_ms/$connect_ms/$took_ms/$total_ms $status $bytes $request_cookie $response_cookie $termination $connections $queues $any"$request"$rest"#,
        ],
        is_message: is_haproxy_message,
    },
    // <https://wiki.squid-cache.org/Features/LogFormat#squid-native-accesslog-format-in-detail>
    LayoutRow {
        name: "squid",
        is_forward: true,
        patterns: &[
            "$unix_time $took_ms $client $cache/$status $bytes $method $url $user $hierarchy/$peer $content_type",
        ],
        is_message: never,
    },
    // <https://github.com/NginxProxyManager/nginx-proxy-manager>, docker/rootfs/etc/nginx/conf.d/include/log-proxy.conf. Two
    // upstreams have two statuses.
    LayoutRow {
        name: "nginx-proxy-manager",
        is_forward: false,
        patterns: &[
            r#"[$common_time] $cache $upstream_status $status - $method $scheme $host "$url" [Client $client] [Length $bytes] $any"$agent" $rest"#,
            r#"[$common_time] $cache $first_status, $upstream_status $status - $method $scheme $host "$url" [Client $client] [Length $bytes] $any"$agent" $rest"#,
            r#"[$common_time] $status - $method $scheme $host "$url" [Client $client] [Length $bytes] $any"$agent" $rest"#,
        ],
        is_message: never,
    },
];

impl Layout {
    /// The layout of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        LAYOUTS.iter().find(|row| row.name == name).map(Self)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        LAYOUTS.iter().map(Self)
    }

    /// The name, as of a [`FormatName`](crate::FormatName).
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    pub(crate) fn is_forward(self) -> bool {
        self.0.is_forward
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layout").field(&self.name()).finish()
    }
}

/// The lines of a layout.
#[derive(Debug)]
pub(crate) struct LayoutLines {
    patterns: Vec<PatternLines>,
    is_message: fn(&[u8]) -> bool,
}

impl LayoutLines {
    pub fn new(layout: Layout) -> Self {
        let compile =
            |text: &&str| PatternLines::new(Pattern::of_layout(text).expect("the tests compile each"));
        Self { patterns: layout.0.patterns.iter().map(compile).collect(), is_message: layout.0.is_message }
    }
}

fn never(_line: &[u8]) -> bool {
    false
}

/// True for the notices of `HAProxy` in a syslog, for its errors (`... [TIME] FRONTEND/LISTENER: ...`), and for connections without
/// HTTP, whose times are three. <https://docs.haproxy.org/3.0/configuration.html#8.2.2>, 8.2.5
fn is_haproxy_message(line: &[u8]) -> bool {
    let Some(time) = memmem::find(line, b" [").filter(|at| line.get(at + 2).is_some_and(u8::is_ascii_digit))
    else {
        return memmem::find(line, b" haproxy[").is_some();
    };
    let mut words = line[time + 1..].split(|byte| *byte == b' ').skip(1);
    let (Some(frontend), Some(_), Some(times)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let is_number = |byte: &u8| byte.is_ascii_digit() || b"/-+".contains(byte);
    let is_connection = times.split(|byte| *byte == b'/').count() == 3 && times.iter().all(is_number);
    frontend.ends_with(b":") || is_connection
}

impl LineParser for LayoutLines {
    fn times_without_offset(&self) -> u64 {
        self.patterns.iter().map(LineParser::times_without_offset).sum()
    }

    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let mut first = None;
        for pattern in &mut self.patterns {
            match pattern.parse(line, visit) {
                Ok(parsed) => return Ok(parsed),
                Err(problem) => first = first.or(Some(problem)),
            }
        }
        let problem = first.unwrap_or_default();
        if (self.is_message)(line) { Ok(Parsed::Message(problem)) } else { Err(problem) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        Layout::all().for_each(|layout| assert!(!LayoutLines::new(layout).patterns.is_empty()));
    }
}
