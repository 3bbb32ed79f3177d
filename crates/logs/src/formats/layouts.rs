//! Access logs of servers and services whose lines have fields in a fixed order: one row for each, in the variables of a
//! [pattern](super::pattern).

use memchr::memmem;

use super::{
    LineParser, Parsed, Visit,
    pattern::{Pattern, PatternLines},
};
use crate::{format::FormatKind, value::Problem};

// <https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage>: the default format string.
// Istio has three more fields: <https://istio.io/latest/docs/tasks/observability/logs/access-log/>. The second of the
// two times is that of the upstream.
pub(crate) const ENVOY: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::access_log("envoy", "default text of Envoy and Istio; their JSON is `json`", || {
        LayoutLines::boxed(
            &[
                r#"[$time] "$request" $status $flags $details $termination "$failure" $received $bytes $took_ms $took_ms "$forwarded" "$agent" "$id" "$host" $rest"#,
                r#"[$time] "$request" $status $flags $received $bytes $took_ms $took_ms "$forwarded" "$agent" "$id" "$host" $rest"#,
            ],
            never,
        )
    })
};

// <https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html>
pub(crate) const ALB: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::access_log("alb", "AWS Application Load Balancer", || {
        LayoutLines::boxed(
            &[
                r#"$type $time $elb $client $target $request_seconds $took_seconds $response_seconds $status $target_status $received $bytes "$request" "$agent" $rest"#,
            ],
            never,
        )
    })
};

// <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html>
pub(crate) const ELB: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::access_log("elb", "AWS Classic Load Balancer", || {
        LayoutLines::boxed(
            &[
                r#"$time $elb $client $backend $request_seconds $took_seconds $response_seconds $status $backend_status $received $bytes "$request" "$agent" $rest"#,
                r#"$time $elb $client $backend $request_seconds $took_seconds $response_seconds $status $backend_status $received $bytes "$request"$rest"#,
            ],
            never,
        )
    })
};

// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html>: the total time and the turn-around time. Older
// lines end before the host, and lines of S3's own operations may have no request.
pub(crate) const S3: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::access_log("s3", "server access log of Amazon S3", || {
        LayoutLines::boxed(
            &[
                r#"$owner $bucket [$common_time] $client $requester $id $operation $key "$request" $status $error $bytes $object_bytes $took_ms $took_ms "$referrer" "$agent" $version $host_id $signature $cipher $authentication $host $rest"#,
                r#"$owner $bucket [$common_time] $client $requester $id $operation $key "$request" $status $error $bytes $object_bytes $took_ms $took_ms "$referrer" "$agent" $version $host_id $signature $cipher $authentication $host"#,
                r#"$owner $bucket [$common_time] $client $requester $id $operation $key "$request" $status $error $bytes $object_bytes $took_ms $took_ms "$referrer" "$agent"$rest"#,
                r"$owner $bucket [$common_time] $client $requester $id $operation $key $url $status $error $bytes $object_bytes $rest",
            ],
            never,
        )
    })
};

// <https://docs.haproxy.org/3.0/configuration.html#8.2.3>: TR/Tw/Tc/Tr/Ta. Syslog's prefix is part of the client.
pub(crate) const HAPROXY: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::access_log("haproxy", "`option httplog` of HAProxy", || {
        LayoutLines::boxed(
            &[
                r#"$any [$local_time] $frontend $backend $header_ms/$queue_ms/$connect_ms/$took_ms/$total_ms $status $bytes $request_cookie $response_cookie $termination $connections $queues $any"$request"$rest"#,
            ],
            is_haproxy_message,
        )
    })
};

// <https://wiki.squid-cache.org/Features/LogFormat#squid-native-accesslog-format-in-detail>
pub(crate) const SQUID: FormatKind = FormatKind {
    is_guessed: true,
    is_forward: true,
    ..FormatKind::access_log("squid", "native access log of Squid", || {
        LayoutLines::boxed(
            &[
                "$unix_time $took_ms $client $cache/$status $bytes $method $url $user $hierarchy/$peer $content_type",
            ],
            never,
        )
    })
};

// <https://github.com/NginxProxyManager/nginx-proxy-manager>, docker/rootfs/etc/nginx/conf.d/include/log-proxy.conf. Two
// upstreams have two statuses.
pub(crate) const NGINX_PROXY_MANAGER: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::access_log("nginx-proxy-manager", "access log of Nginx Proxy Manager", || {
        LayoutLines::boxed(
            &[
                r#"[$common_time] $cache $upstream_status $status - $method $scheme $host "$url" [Client $client] [Length $bytes] $any"$agent" $rest"#,
                r#"[$common_time] $cache $first_status, $upstream_status $status - $method $scheme $host "$url" [Client $client] [Length $bytes] $any"$agent" $rest"#,
                r#"[$common_time] $status - $method $scheme $host "$url" [Client $client] [Length $bytes] $any"$agent" $rest"#,
            ],
            never,
        )
    })
};

/// The lines of a layout.
#[derive(Debug)]
pub(crate) struct LayoutLines {
    patterns: Vec<PatternLines>,
    is_message: fn(&[u8]) -> bool,
}

impl LayoutLines {
    /// A line has the first of the patterns that fits. `is_message`: true for the messages of the server in the same log.
    fn boxed(patterns: &[&str], is_message: fn(&[u8]) -> bool) -> Box<dyn LineParser> {
        let compile =
            |text: &&str| PatternLines::new(Pattern::of_layout(text).expect("the tests compile each"));
        Box::new(Self { patterns: patterns.iter().map(compile).collect(), is_message })
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
        if (self.is_message)(line) { Ok(Parsed::ProgramMessage(problem)) } else { Err(problem) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Content;

    #[test]
    fn every_pattern_compiles() {
        for kind in [ENVOY, ALB, ELB, S3, HAPROXY, SQUID, NGINX_PROXY_MANAGER] {
            let Content::Lines(lines) = kind.content else { panic!("{}", kind.name) };
            assert_eq!(lines().times_without_offset(), 0, "{}", kind.name);
        }
    }
}
