//! Valid and invalid configuration files.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use proptest::prelude::*;
use serde_json::Value;
use stockade_cache::{AfterWait, Fetch, HedgeAfter, Limit, Policy, Strategy};

use super::*;
use stockade_http::upstream::HostHeader;

const ORIGIN: &str = "[[origin]]\nname = \"app\"\nurl = \"http://127.0.0.1:9000\"\n";

fn read(text: &str) -> Config {
    Config::parse("/etc/stockade.toml", text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The message, the source text at its location, and the help of an error.
fn parse_error(text: &str) -> (String, String, String) {
    match Config::parse("stockade.toml", text) {
        Err(ConfigError::File(error)) => {
            let at = error.at.map(|at| text[at.offset()..at.offset() + at.len()].to_owned());
            (error.message.clone(), at.unwrap_or_default(), error.help.clone().unwrap_or_default())
        }
        other => panic!("{text}: {other:?}"),
    }
}

fn seconds(seconds: u64) -> PlainDuration {
    PlainDuration(Duration::from_secs(seconds))
}

fn with(text: &str) -> String {
    format!("{text}\n{ORIGIN}")
}

/// A preset whose loads are bounded by the timeouts of an origin.
fn patient(preset: &str) -> Strategy {
    let mut strategy = Strategy::preset(preset).unwrap();
    assert_eq!(strategy.load.deadline, Duration::from_secs(10));
    strategy.load.deadline = Duration::from_secs(37);
    strategy.load.hedge_after = Some(HedgeAfter::Time(Duration::from_secs(15)));
    strategy.fetch = Fetch::coalesce(Duration::from_secs(37));
    if let Some(breaker) = &mut strategy.breaker {
        (breaker.open_for, breaker.wait) = (Duration::from_secs(1), Duration::from_secs(2));
    }
    strategy
}

#[test]
fn deadline_of_a_load_is_the_files_or_that_of_the_origin() {
    for (cache, of_route, expected_s) in [
        ("", "", 37),
        ("", "cache.swr = \"1s\"", 37),
        ("[cache]\nload = { deadline = \"3s\" }", "cache.swr = \"1s\"", 3),
        ("[cache]\nload = { queue = 5 }", "cache.load = { deadline = \"12s\" }", 12),
        ("[cache]\nload = { deadline = \"3s\" }", "cache.strategy = \"swr\"", 37),
    ] {
        let config = read(&format!("{cache}\n{ORIGIN}[[route]]\norigin = \"app\"\n{of_route}\n"));
        assert_eq!(config.routes[0].strategy.load.deadline.as_secs(), expected_s, "{cache} {of_route}");
    }
}

#[test]
fn waits_come_from_the_file_or_the_origins_timeouts() {
    for (cache, wait_s, hedge_s) in [
        ("", 37, Some(15)),
        ("timeouts = { head = \"60s\" }", 67, Some(30)),
        ("[cache]\nload = { deadline = \"3s\" }", 5, Some(15)),
        ("[cache]\nload = { hedge_after = \"none\" }", 37, None),
        ("[cache]\nload = { hedge_after = \"2s\" }", 37, Some(2)),
        ("[cache]\nfetch = { coalesce = { wait_timeout = \"1s\" } }", 1, Some(15)),
        ("[cache]\nfetch = { coalesce = { wait_timeout = \"1s\", then = \"error\" } }", 1, Some(15)),
        ("[cache]\nfetch = { coalesce = { wait_timeout = \"1m\", then = \"load\" } }", 60, Some(15)),
    ] {
        let config = read(&if cache.starts_with('[') {
            format!("{cache}\n{ORIGIN}")
        } else {
            format!("{ORIGIN}\n{cache}\n")
        });
        let Strategy { fetch, load, .. } = &config.routes[0].strategy;
        let wait = Duration::from_secs(wait_s);
        let ends_in_load = cache.contains("then = \"load\"") || cache.ends_with("1s\" } }");
        let expected = if ends_in_load { Fetch::coalesce_or_load(wait) } else { Fetch::coalesce(wait) };
        assert_eq!(*fetch, expected, "{cache}");
        let hedge_after = hedge_s.map(|seconds| HedgeAfter::Time(Duration::from_secs(seconds)));
        assert_eq!(load.hedge_after, hedge_after, "{cache}");
    }
}

/// A route's `fetch` replaces that of the base, with its `then`.
#[test]
fn end_of_waits_is_that_of_the_table_with_the_wait() {
    for (base, of_route, expected) in [
        ("then = \"load\"", "", AfterWait::Load),
        ("then = \"error\"", "", AfterWait::Error),
        ("then = \"error\"", "cache.fetch = { coalesce = { wait_timeout = \"2s\" } }", AfterWait::Load),
        ("then = \"load\"", "cache.fetch = { coalesce = { wait_timeout = \"2s\" } }", AfterWait::Load),
        (
            "then = \"load\"",
            "cache.fetch = { coalesce = { wait_timeout = \"2s\", then = \"error\" } }",
            AfterWait::Error,
        ),
    ] {
        let base = format!("[cache]\nfetch = {{ coalesce = {{ wait_timeout = \"1s\", {base} }} }}");
        let config = read(&format!("{base}\n{ORIGIN}[[route]]\norigin = \"app\"\n{of_route}\n"));
        let Fetch::Coalesce { then, .. } = config.routes[0].strategy.fetch else { panic!("{config:?}") };
        assert_eq!(then, expected, "{base} {of_route}");
    }
}

#[test]
fn minimal_file_has_an_origin_and_defaults() {
    let config = read(ORIGIN);
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.limit, Limit::bytes(256 << 20));
    assert_eq!(config.timeouts, ClientTimeouts::default());
    assert_eq!(config.bounds.connections_per_client(), 2_000);
    assert_eq!((&config.log, config.log.format), (&LogConfig::default(), LogFormat::Json));
    let [route] = config.routes.as_slice() else { panic!("{:?}", config.routes) };
    assert_eq!(
        (route.name.as_str(), route.origin, route.table.ttl, route.table.default_ttl),
        ("/*", 0, None, None)
    );
    assert_eq!(route.strategy, patient("breaker"));
    assert!(config.admin.is_none() && config.has_host("anything"));
}

#[test]
fn routes_override_the_shared_cache_block() {
    let config = read(&with(
        r#"
        [cache]
        strategy = "stampede"
        fetch = { coalesce = { wait_timeout = "3s" } }
        ttl = "10s"
        limit = { entries = 36_000, policy = "lrw", reclaim = 0.3 }
        [[route]]
        path = "/news/*"
        negative_ttl = "5s"
        cache = { swr = "7s" }
        [[route]]
        path = "/news/live"
        ttl = "1s"
        default_ttl = "2s"
        cache.strategy = "swr"
        tag_headers = ["X-Tags"]
        client_directives = "ignore"
        invalidate_on_unsafe = "none"
        ignore_query = ["utm_*", "fbclid"]
        "#,
    ));
    assert_eq!(config.limit, Limit { policy: Policy::LRW, reclaim: 0.3, ..Limit::entries(36_000) });
    let [live, news] = config.routes.as_slice() else { panic!("{:?}", config.routes) };
    assert_eq!((live.name.as_str(), news.name.as_str()), ("/news/live", "/news/*"));
    assert_eq!(news.strategy.fetch, Fetch::coalesce_or_load(Duration::from_secs(3)));
    assert_eq!((news.strategy.swr, news.strategy.limit.as_ref()), (Duration::from_secs(7), None));
    assert_eq!(news.strategy.negative_ttl, Some(Duration::from_secs(5)));
    // The ttl of [cache] is the default of its routes.
    assert_eq!((news.table.ttl, news.table.default_ttl), (None, Some(seconds(10))));
    assert_eq!(live.strategy, patient("swr"));
    assert_eq!((live.table.ttl, live.table.default_ttl), (Some(seconds(1)), Some(seconds(2))));
    assert_eq!(live.table.tag_headers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x-tags"]);
    assert_eq!(
        (news.table.client_directives, news.table.invalidate_on_unsafe),
        (ClientDirectives::Obey, UnsafeInvalidation::Fallback)
    );
    assert_eq!(
        (live.table.client_directives, live.table.invalidate_on_unsafe),
        (ClientDirectives::Ignore, UnsafeInvalidation::None)
    );
    assert_eq!(live.cache_target("/a?utm_source=x&b=1&fbclid=2&c"), "/a?b=1&c");
    assert_eq!(live.cache_target("/a?utm%5Fsource=x"), "/a");
    assert_eq!(live.cache_target("/a?b=1&&utm=2"), "/a?b=1&&utm=2");
    assert_eq!(news.cache_target("/a?utm_source=x"), "/a?utm_source=x");
}

#[test]
fn most_specific_host_then_longest_path_wins() {
    let route = |host: &str, path: &str| format!("[[route]]\nhost = \"{host}\"\npath = \"{path}\"\n");
    let text = [
        "[[route]]\npath = \"/*\"\n".to_owned(),
        "[[route]]\npath = \"/a/*\"\n".to_owned(),
        "[[route]]\npath = \"/a/b/*\"\n".to_owned(),
        "[[route]]\npath = \"/a/b\"\n".to_owned(),
        route("*.example.org", "/x/*"),
        route("*.www.example.org", "/*"),
        route("Example.org", "/a/*"),
    ];
    let config = read(&format!("{}{ORIGIN}", text.concat()));
    for (host, path, name) in [
        ("h", "/", "/*"),
        ("h", "*", "/*"),
        ("h", "/ab", "/*"),
        ("h", "/a", "/*"),
        ("h", "/a/", "/a/*"),
        ("h", "/a/b", "/a/b"),
        ("h", "/a/b/c", "/a/b/*"),
        ("example.org:8080", "/a/b", "example.org/a/*"),
        ("EXAMPLE.ORG.", "/a/b", "example.org/a/*"),
        ("example.org", "/x/", "/*"),
        ("a.example.org", "/x/", "*.example.org/x/*"),
        ("a.b.example.org", "/x/y", "*.example.org/x/*"),
        ("a.example.org", "/a/b", "/a/b"),
        ("a.www.example.org", "/x/y", "*.www.example.org/*"),
        ("badexample.org", "/x/y", "/*"),
        (".example.org", "/x/y", "/*"),
        ("[::1]:80", "/x/y", "/*"),
    ] {
        assert_eq!(config.route(host, path).map(|route| route.name.as_str()), Some(name), "{host} {path}");
    }
    let few = read(&format!("hosts = [\"a.org\", \"*.b.org\"]\n[[route]]\npath = \"/a\"\n{ORIGIN}"));
    assert!(few.route("h", "/b").is_none());
    let answered = ["a.org", "x.b.org:1", "b.org", "x.a.org", "", "[::1]"].map(|host| few.has_host(host));
    assert_eq!(answered, [true, true, false, false, false, false]);
}

#[test]
fn origins_are_servers_or_databases() {
    let config = read(
        r#"
        [[origin]]
        name = "servers"
        urls = ["https://a.example.org/base", "https://b.example.org:8443"]
        connections = 7
        waiting = 0
        head = "128KiB"
        headers = 300
        timeouts = { connect = "1s", head = "2s", body = "3s", idle = "4s", max_age = "5s" }
        health = { failures = 5, rest = "9s", path = "/healthz", successes = 3 }
        http2 = true
        ca = "ca.pem"
        host_header = "origin"
        [[origin]]
        name = "documents"
        url = "sqlite:/tmp/documents.db"
        connections = 3
        [[route]]
        path = "/documents/*"
        origin = "documents"
        [[route]]
        origin = "servers"
        "#,
    );
    let OriginConfig { kind: OriginKind::Http(urls), table: http, .. } = &config.origins[0] else {
        panic!("{:?}", config.origins)
    };
    assert_eq!(*urls, ["https://a.example.org/base", "https://b.example.org:8443"]);
    let OriginTimeouts { connect, head, body, idle, max_age } = http.timeouts;
    assert_eq!(
        [connect, head, body, idle, max_age].map(|time| time.0),
        [1, 2, 3, 4, 5].map(Duration::from_secs)
    );
    assert_eq!((http.head.0, http.headers.0), (128 << 10, 300));
    assert_eq!((http.connections.0, http.waiting.0, http.http2), (7, 0, true));
    assert_eq!(http.ca.as_deref(), Some("/etc/ca.pem".as_ref()));
    assert_eq!(http.host_header, HostHeader::Origin);
    let health = serde_json::to_value(&http.health).unwrap();
    let expected = serde_json::json!({
        "failures": 5, "rest": "9s", "path": "/healthz", "every": "5s", "timeout": "1s", "successes": 3,
    });
    assert_eq!(health, expected);
    let OriginKind::Documents(source) = &config.origins[1].kind else { panic!() };
    let connections = config.origins[1].table.connections.0;
    assert_eq!((source.to_string().as_str(), connections), ("sqlite:/tmp/documents.db", 3));
    // Documents have no age of their own.
    assert_eq!(config.route("h", "/documents/1").unwrap().table.default_ttl, Some(seconds(60)));
    assert_eq!(config.route("h", "/").unwrap().table.default_ttl, None);
}

/// Cases of text, message, source text at the location, and help.
fn assert_refused<const N: usize>(cases: [(String, &str, &str, &str); N]) {
    for (text, message, at, help) in cases {
        assert_eq!(parse_error(&text), (message.to_owned(), at.to_owned(), help.to_owned()), "{text}");
    }
}

#[test]
fn invalid_snapshots_are_refused() {
    assert_refused([
        (with("[snapshot]\nevery = \"1m\""), "missing field `path`", "[snapshot]", ""),
        (
            with("[cache]\nshared = \"redis://127.0.0.1\"\n[snapshot]\npath = \"a\""),
            "other nodes may have purged what a snapshot would bring back",
            "[snapshot]",
            "leave [snapshot] out: the shared tier has the responses after a restart",
        ),
    ]);
}

#[test]
fn invalid_settings_are_shown_with_help() {
    let route = |lines: &str| format!("{ORIGIN}[[route]]\n{lines}");
    assert_refused([
        (with("lissen = []"), "unknown key `lissen`", "lissen", "did you mean `listen`?"),
        (with("[timeouts]\nhead = 10"), "`10` has no unit: write `10ms` or `10s`", "10", ""),
        (with("[timeouts]\nidle = \"0s\""), "this has to be above 0", "\"0s\"", ""),
        (with("[timeouts]\nidle = \"9999d\""), "`9999d` is more than a year", "\"9999d\"", ""),
        (with("[bounds]\nbody = 4096"), "`4096` has no unit: write `4096KiB` or `4096MiB`", "4096", ""),
        (with("[bounds]\nhead = \"1KiB\""), "the head of a request may have 8KiB to 1MiB", "\"1KiB\"", ""),
        (with("[bounds]\nconnections = 0"), "there may be 1 to 10,000,000 connections", "0", ""),
        (with("[limit]\nbytes = \"1GiB\""), "unknown key `limit`", "limit", "write [cache.limit]"),
        (
            with("[shadow]\nsizes = [\"2\"]"),
            "`2 entries`: the limit of the cache is in bytes: write times of it, such as \"2x\", or a size, such as \"512MiB\"",
            "[shadow]",
            "",
        ),
        (
            with("[shadow]\nsizes = [\"2y\"]"),
            "`2y` is not a size: write \"2x\" for twice the limit, \"512MiB\", or a number of entries",
            "\"2y\"",
            "",
        ),
        (with("[shadow]\npolicies = [\"lrv\"]"), "unknown policy `lrv`: did you mean `lrw`?", "\"lrv\"", ""),
        (
            with("[shadow]\nttls = [\"60\"]"),
            "`60` is not a ttl: write \"2x\" for twice that of each response, or \"60s\"",
            "\"60\"",
            "",
        ),
        (
            with("[shadow]\nttls = [\"1m\", \"60s\"]"),
            "there are two ghosts `ttl 60s`: leave one out",
            "[shadow]",
            "",
        ),
        (
            with("shadow = true"),
            "invalid type: boolean `true`, expected struct ShadowConfig",
            "true",
            "write [shadow] on a line of its own",
        ),
        (
            with("[shadow]\nkeys = 3"),
            "the sample has 256 to 131,072 keys: write one of these numbers",
            "3",
            "",
        ),
        (
            with("[cache]\nlimit = \"none\""),
            "a proxy needs a limit: write { bytes = \"256MiB\" }",
            "\"none\"",
            "",
        ),
        (
            with("[cache]\nstrategy = \"stampeed\""),
            "unknown strategy `stampeed`: did you mean `stampede`?",
            "\"stampeed\"",
            "",
        ),
        (
            with("[[route]]\ncache = { shared = \"redis://a\" }"),
            "there is no shared tier here: leave `shared` out",
            "\"redis://a\"",
            "",
        ),
        (
            with("[cache]\nmemory = false"),
            "a proxy always stores responses in memory: remove `memory`",
            "false",
            "",
        ),
        (
            route("cache.limit.entries = 7"),
            "the limit applies to all routes: write it into [cache]",
            "limit",
            "",
        ),
        (with("listen = []"), "write at least one address", "[]", ""),
        (
            with("listen = [\"localhost:80\"]"),
            "`localhost:80` is not an address: write an IP address and a port, as in 127.0.0.1:80",
            "\"localhost:80\"",
            "",
        ),
        (with("listen = [\"[::]:80\", \"[::]:80\"]"), "[::]:80 is listed twice", "\"[::]:80\"", ""),
        (with("listen_proxy_protocol = []\nlisten = []"), "write at least one address", "[]", ""),
        (
            with(
                "trusted_proxies = [\"::1\"]\nlisten = [\"[::]:80\"]\nlisten_proxy_protocol = [\"[::]:80\"]",
            ),
            "[::]:80 is listed twice",
            "\"[::]:80\"",
            "",
        ),
    ]);
}

#[test]
fn only_listed_addresses_are_listened_on() {
    let trusted = "trusted_proxies = [\"10.0.0.0/8\"]\n";
    let default = "127.0.0.1:8080";
    for (lines, plain, with_header) in [
        ("", Some(default), None),
        ("listen_proxy_protocol = []", Some(default), None),
        // No second listener without a setting.
        ("listen_proxy_protocol = [\"[::]:81\"]", None, Some("[::]:81")),
        ("listen_proxy_protocol = [\"127.0.0.1:8080\"]", None, Some(default)),
        ("listen = []\nlisten_proxy_protocol = [\"[::]:81\"]", None, Some("[::]:81")),
        ("listen = [\"[::]:80\"]\nlisten_proxy_protocol = [\"[::]:81\"]", Some("[::]:80"), Some("[::]:81")),
    ] {
        let config = read(&with(&format!("{trusted}{lines}")));
        let text = |list: &[SocketAddr]| list.first().map(ToString::to_string);
        assert_eq!(text(&config.listen).as_deref(), plain, "{lines}");
        assert_eq!(text(&config.listen_proxy_protocol).as_deref(), with_header, "{lines}");
    }
}

#[test]
fn unsafe_or_incomplete_settings_are_refused() {
    assert_refused([
        (
            with("[admin]\nlisten = \"0.0.0.0:81\""),
            "without a token, anyone who can reach 0.0.0.0:81 could purge and reload",
            "\"0.0.0.0:81\"",
            "write token_file = \"PATH\" below it, or listen on 127.0.0.1",
        ),
        (
            with("[admin]\nlisten = \"127.0.0.1:8080\""),
            "clients and [admin] cannot both listen on 127.0.0.1:8080",
            "",
            "",
        ),
        (
            with("[tls]\ncert = \"a\""),
            "missing field `key`",
            "[tls]",
            "a certificate and its key: cert = \"cert.pem\", key = \"key.pem\"",
        ),
        (with("[log]\nformat = \"jsn\""), "unknown value `jsn`", "\"jsn\"", "did you mean `json`?"),
    ]);
}

#[test]
fn invalid_origins_are_refused() {
    let origin = |lines: &str| format!("[[origin]]\nname = \"a\"\n{lines}");
    assert_refused([
        (
            String::new(),
            "there is no origin",
            "",
            "write [[origin]] with a name and url = \"http://HOST:PORT\", or --origin URL",
        ),
        (origin(""), "the origin `a` has no URL: write url = \"http://HOST:PORT\"", "[[origin]]", ""),
        (
            origin("url = \"http://h\"\nurls = []"),
            "`url` and `urls` exclude each other: write all URLs into `urls`",
            "\"http://h\"",
            "",
        ),
        (
            origin("urls = [\"http://h\", \"https://h\"]"),
            "the servers of an origin have to be all http: or all https:",
            "\"https://h\"",
            "",
        ),
        (
            origin("url = \"http://ada:sesame@h\""),
            "the client's `Authorization` is forwarded: remove user and password",
            "\"http://ada:sesame@h\"",
            "",
        ),
        (origin("url = \"http://h/?a=b\""), "remove the query and the fragment", "\"http://h/?a=b\"", ""),
        (
            origin("url = \"http://h:99999\""),
            "this is not the URL of a server: write http://HOST:PORT",
            "\"http://h:99999\"",
            "",
        ),
        (
            origin("url = \"sqlite:\"\nhttp2 = true"),
            "`http2` is for HTTP origins: write such options into the database's URL",
            "true",
            "",
        ),
        (
            origin("url = \"http://h\"\nhealth = { every = \"1s\" }"),
            "there is no path to probe: write path = \"/healthz\" as well",
            "\"1s\"",
            "",
        ),
        (format!("{ORIGIN}{ORIGIN}"), "two origins have the name `app`: names must be unique", "\"app\"", ""),
    ]);
}

#[test]
fn invalid_routes_are_refused() {
    let route = |lines: &str| format!("{ORIGIN}[[route]]\n{lines}");
    assert_refused([
        (route("origin = \"ap\""), "there is no origin named `ap`", "\"ap\"", "did you mean `app`?"),
        (
            route("path = \"news\""),
            "`news` is not a path: write one such as /news, or /news/* for all below it",
            "\"news\"",
            "",
        ),
        (
            route("path = \"/news*\""),
            "`/news*` is not a path: write one such as /news, or /news/* for all below it",
            "\"/news*\"",
            "",
        ),
        (route("host = \"h:80\""), "`h:80` has a port or a scheme: write the name alone", "\"h:80\"", ""),
        (route("[[route]]"), "there are two routes for `/*`", "[[route]]", ""),
        (
            format!("{}{ORIGIN}", ORIGIN.replace("app", "b")),
            "there are several origins and no [[route]] that names one",
            "",
            "",
        ),
    ]);
}

#[test]
fn error_names_line_and_column_and_hides_secrets() {
    let text = "listen = [\"127.0.0.1:80\"]\n[[origin]]\nurl = \"postgres://ada:sesame@h/db?tabel=x\"\n";
    let Err(ConfigError::File(error)) = Config::parse("s.toml", text) else { panic!("it is refused") };
    assert_eq!(error.position(), Some((3, 7)));
    assert!(error.line().starts_with("s.toml:3:7: "), "{}", error.line());
    let quoted = "[[origin]]\nname = \"a\"\nurl = \"htt\\n\\t://h\"\n";
    let Err(ConfigError::File(wrong)) = Config::parse("s.toml", quoted) else { panic!("it is refused") };
    assert!(!wrong.line().contains(char::is_control), "{:?}", wrong.line());
    let debugged = format!("{error:?}");
    let report = format!("{debugged} {:?}", miette::Report::from(*error));
    assert!(!report.contains("sesame"), "{report}");
}

#[test]
fn flags_override_the_file_or_replace_it() {
    let flags = Flags {
        origin: Some("http://app:80".to_owned()),
        listen: vec!["0.0.0.0:80".parse().unwrap()],
        admin: Some("127.0.0.1:81".parse().unwrap()),
        strategy: Some("swr".to_owned()),
        max_entries: Some(9),
        max_bytes: Some(1 << 30),
        reclaim: Some(0.3),
        token_file: None,
        snapshot: Some("/a.snapshot".into()),
        shadow: true,
    };
    let alone = Config::from_flags(&flags).unwrap();
    assert_eq!(alone.listen, flags.listen);
    assert_eq!(alone.admin.as_ref().map(|admin| admin.listen.0), flags.admin);
    let limit = Limit { entries: Some(9), reclaim: 0.3, ..Limit::bytes(1 << 30) };
    assert_eq!((&alone.limit, alone.routes[0].strategy.clone()), (&limit, patient("swr")));

    assert_eq!(alone.shadow, Some(ShadowConfig::default()));
    let snapshot = SnapshotConfig { path: "/a.snapshot".into(), every: SnapshotConfig::every() };
    assert_eq!(alone.snapshot, Some(snapshot));

    let file = "listen = [\"127.0.0.1:9\"]\n[cache]\nstrategy = \"early\"\nttl = \"9s\"\nlimit = { bytes = \"1MiB\" }\n\
                [[origin]]\nname = \"x\"\nurl = \"http://h\"\nconnections = 3\n";
    let over = Config::parse_with("s.toml", file, &flags).unwrap();
    assert_eq!((over.listen, &over.limit), (flags.listen.clone(), &limit));
    assert_eq!(over.routes[0].strategy.ttl, Some(Duration::from_secs(9)));
    assert_eq!(over.routes[0].strategy.swr, Duration::from_mins(1));
    let OriginConfig { name, kind: OriginKind::Http(urls), table } = &over.origins[0] else { panic!() };
    assert_eq!((name.as_str(), table.connections.0), ("x", 3));
    assert_eq!(*urls, ["http://app:80"]);

    let only = |flags: Flags| Config::from_flags(&flags).unwrap_err().to_string();
    let origin = Some("http://h".to_owned());
    assert_eq!(only(Flags::default()), "there is no origin");
    assert_eq!(
        only(Flags { strategy: Some("swrr".to_owned()), ..Flags::default() }),
        "--strategy: unknown strategy `swrr`: did you mean `swr`?"
    );
    assert_eq!(
        only(Flags { origin: origin.clone(), max_entries: Some(0), ..Flags::default() }),
        "--max-entries, --max-bytes, --reclaim: a limit has to be above 0"
    );
    assert_eq!(
        only(Flags { origin: origin.clone(), max_bytes: Some(100), ..Flags::default() }),
        "--max-entries, --max-bytes, --reclaim: nothing could be stored: an entry alone costs more than `max_object`"
    );
    let few = Config::from_flags(&Flags { origin: origin.clone(), max_entries: Some(9), ..Flags::default() });
    assert_eq!(few.unwrap().limit, Limit { entries: Some(9), ..Limit::bytes(256 << 20) });
    let away = Flags { origin, admin: Some("0.0.0.0:1".parse().unwrap()), ..Flags::default() };
    assert_eq!(only(away.clone()), "without a token, anyone who can reach 0.0.0.0:1 could purge and reload");
    assert!(Config::from_flags(&Flags { token_file: Some("t".into()), ..away }).is_ok());
    let secret = only(Flags { origin: Some("postgres:ada:sesame@h".to_owned()), ..Flags::default() });
    assert!(!secret.contains("sesame"), "{secret}");
}

#[test]
fn diff_reports_settings_that_need_a_restart() {
    let old = read(ORIGIN);
    let changes = |text: &str| {
        let changes = diff(&old, &read(text));
        changes
            .iter()
            .map(|change| format!("{} {}", change.setting, change.needs_restart))
            .collect::<Vec<_>>()
    };
    assert!(changes(ORIGIN).is_empty());
    for (text, setting) in [
        (with("listen = [\"127.0.0.1:1\"]"), "listen true"),
        (with("trusted_proxies = [\"10.0.0.0/8\"]"), "trusted_proxies true"),
        (with("threads = 2"), "threads true"),
        (with("hosts = [\"a\"]"), "hosts false"),
        (with("tls = { cert = \"a\", key = \"b\" }"), "tls true"),
        (with("admin.listen = \"127.0.0.1:1\""), "admin true"),
        (with("cache.limit.entries = 7"), "cache.limit true"),
        (with("[shadow]"), "shadow true"),
        (with("[snapshot]\npath = \"a\""), "snapshot true"),
        (with("log.path = \"a\""), "log false"),
        (with("log.format = \"none\""), "log true"),
        (with("timeouts.head = \"1s\""), "timeouts true"),
        (with("bounds.headers = 7"), "bounds true"),
        (with("cache.swr = \"1s\""), "route./* false"),
        (ORIGIN.replace("9000", "9001"), "origin.app false"),
    ] {
        assert_eq!(changes(&text), [setting], "{text}");
        let (name, needs_restart) = setting.split_once(' ').expect("two words");
        if let Some((_, reload)) = RELOADS.iter().find(|(known, _)| *known == name) {
            let is_one = match reload {
                Reload::NeedsRestart => needs_restart == "true",
                Reload::Applied => needs_restart == "false",
                Reload::AppliedIfKept => true,
            };
            assert!(is_one, "{name}: {reload:?}");
        }
    }
    // Only the index of the origin changes.
    let more =
        format!("[[origin]]\nname = \"first\"\nurl = \"http://h\"\n{ORIGIN}[[route]]\norigin = \"app\"\n");
    assert_eq!(changes(&more), ["origin.first false"]);
    let renamed = ORIGIN.replace("app", "b");
    assert_eq!(changes(&renamed), ["origin.app false", "origin.b false", "route./* false"]);
}

#[test]
fn shown_configuration_is_complete_without_secrets() {
    let config = read(&format!(
        "{ORIGIN}[[origin]]\nname = \"db\"\nurl = \"sqlite:\"\n[[route]]\norigin = \"app\"\ncache.swr = \"1500us\"\n"
    ));
    let shown = config.shown();
    assert_eq!(shown["route"][0]["cache"]["swr"], "1500000ns");
    assert_eq!(shown["route"][0]["cache"]["breaker"]["open_for"], "1s");
    assert_eq!(shown["cache"]["limit"]["bytes"], 256 << 20);
    // Every setting is shown, except shorthands for others.
    let keys =
        |value: &Value| -> BTreeSet<String> { value.as_object().expect("a table").keys().cloned().collect() };
    let schema = schema();
    assert_eq!(keys(&shown), keys(&schema["properties"]));
    for table in ["log", "timeouts", "bounds"] {
        assert_eq!(keys(&shown[table]), keys(&schema["properties"][table]["properties"]), "{table}");
    }
    let route = schema.pointer("/properties/route/items/properties").expect("a table");
    assert_eq!(keys(&shown["route"][0]), keys(route));
}

#[test]
fn secrets_are_compared_and_not_shown() {
    let file = |secret: &str| {
        read(&format!(
            "[cache]\nshared = \"redis://:{secret}@127.0.0.1\"\n[[origin]]\nurl = \"postgres://ada:{secret}@h/db?table=a\"\n"
        ))
    };
    let (old, new) = (file("sesame"), file("simsim"));
    assert!(!old.shown().to_string().contains("sesame") && !format!("{old:?}").contains("sesame"));
    let changed: Vec<_> = diff(&old, &new).into_iter().map(|change| change.setting).collect();
    assert_eq!(changed, ["cache.shared", "origin.origin"]);
}

const EXAMPLE: &str = include_str!("../../../../deploy/stockade.toml");

#[test]
fn example_is_valid_and_has_every_table() {
    read(EXAMPLE);
    // Commented settings are valid as well.
    let uncommented: String =
        EXAMPLE.lines().flat_map(|line| [line.strip_prefix("#: ").unwrap_or(line), "\n"]).collect();
    // A snapshot and a shared tier exclude each other.
    let without = |setting: &str| -> String {
        uncommented.lines().filter(|line| !line.starts_with(setting)).flat_map(|line| [line, "\n"]).collect()
    };
    read(&without("shared = "));
    let written: toml::Table = uncommented.parse().expect("TOML");
    let mut known = BTreeSet::new();
    keys_of_schema(&schema(), &schema(), "", &mut known);
    let mut used = BTreeSet::new();
    keys_of_file(&toml::Value::Table(written), "", &mut used);
    // The reference has every setting.
    let is_table = |key: &&String| known.iter().any(|inner| inner.starts_with(&format!("{key}.")));
    let is_shown = |key: &&String| !key.starts_with("cache.") && !key.starts_with("route.cache.");
    let missing: Vec<_> = known.difference(&used).filter(is_table).filter(is_shown).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn keys_of_file(value: &toml::Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = format!("{path}.{key}").trim_start_matches('.').to_owned();
                keys.insert(path.clone());
                keys_of_file(value, &path, keys);
            }
        }
        toml::Value::Array(list) => list.iter().for_each(|value| keys_of_file(value, path, keys)),
        _ => {}
    }
}

/// Adds all keys of the schema, as dotted paths.
fn keys_of_schema(root: &Value, schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let definition = root.pointer(name.trim_start_matches('#')).expect("a definition");
        return keys_of_schema(root, definition, path, keys);
    }
    for part in ["anyOf", "oneOf"].iter().filter_map(|of| schema[*of].as_array()).flatten() {
        keys_of_schema(root, part, path, keys);
    }
    if schema["items"].is_object() {
        keys_of_schema(root, &schema["items"], path, keys);
    }
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}").trim_start_matches('.').to_owned();
        keys.insert(path.clone());
        keys_of_schema(root, value, &path, keys);
    }
}

#[test]
fn schema_matches_the_parser_and_the_documentation() {
    let made = serde_json::to_string_pretty(&schema()).expect("JSON") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &made).expect("writable");
    }
    let kept = std::fs::read_to_string(path).expect("docs/proxy.schema.json");
    assert!(kept == made, "docs/proxy.schema.json is not the reader's: make it with UPDATE_SCHEMA=1");
    // The error for an unknown key lists the keys of its table: exactly those of the schema.
    for (table, pointer) in [
        ("", "/properties"),
        ("[tls]", "/properties/tls/properties"),
        ("[admin]", "/properties/admin/properties"),
        ("[log]", "/properties/log/properties"),
        ("[timeouts]", "/properties/timeouts/properties"),
        ("[bounds]", "/properties/bounds/properties"),
        ("[[origin]]", "/properties/origin/items/properties"),
        ("[[route]]", "/properties/route/items/properties"),
    ] {
        let (_, _, help) = parse_error(&format!("{table}\nnobody-would-write-this-key = 1"));
        let listed: BTreeSet<&str> =
            help.trim_start_matches("use one of: ").split([',', ' ']).filter(|key| !key.is_empty()).collect();
        let schema = schema();
        let known = schema.pointer(pointer).and_then(Value::as_object).unwrap_or_else(|| panic!("{pointer}"));
        assert_eq!(listed, known.keys().map(String::as_str).collect(), "{table}");
    }
}

proptest! {
    #[test]
    fn parser_never_panics(text in "(\\[\\[?(origin|route|cache|admin)\\]\\]?\n|[a-z_]{1,6} = (\"[ -~]{0,12}\"|[0-9]{1,20}|\\[\\])\n){0,6}") {
        let _ = Config::parse("s.toml", &text).map(|config| config.shown());
        let _ = Config::parse("s.toml", &with(&text)).map(|config| config.shown());
    }

    #[test]
    fn selected_route_is_the_most_specific_match(
        paths in proptest::collection::hash_set("(/[ab]){1,3}(/\\*)?", 1..6),
        path in "(/[ab]){1,4}/?",
    ) {
        let tables: String = paths.iter().flat_map(|path| ["[[route]]\npath = \"", path, "\"\n"]).collect();
        let config = read(&format!("{tables}{ORIGIN}"));
        let fits = |pattern: &&String| match pattern.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == **pattern,
        };
        // An exact pattern wins over a prefix of the same length.
        let nearest = paths.iter().filter(fits).max_by_key(|pattern| (!pattern.ends_with('*'), pattern.len()));
        prop_assert_eq!(config.route("h", &path).map(|route| &route.name), nearest);
    }
}
