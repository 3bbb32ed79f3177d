//! The orders of a coordinator that an agent may carry out.
//!
//! Each field of an order stands in a table with the harm that its value can do; a field that stands in none is refused. Values are
//! read by the parsers of the servers, and what they mean is checked, not how they are written.

use std::net::IpAddr;

use http::Uri;
use serde_json::{Map, Value};
use stockade_load::AllowedTargets;
use stockade_model::latency::{Latency, LatencyFiles};
use stockade_record::{record::Role, server::ServerOrder};

/// The fields of a table, by name.
type Fields = [(&'static str, Field)];

/// A field, by the harm that its value can do.
#[derive(Clone, Copy)]
enum Field {
    /// No value of it, at any depth, names a file, a server or a command.
    Plain,
    /// A URL with one of these schemes; its server has to be allowed.
    Url(&'static [&'static str]),
    /// A list of such URLs.
    Urls(&'static [&'static str]),
    /// A latency; it may not be that of a file.
    Latency,
    Table(&'static Fields),
    /// A list of tables.
    Tables(&'static Fields),
}

const HTTP: &[&str] = &["http", "https"];

/// Of an origin.
const RECIPE: &Fields = &[
    ("body", Field::Plain),
    ("capacity", Field::Plain),
    ("etag", Field::Plain),
    ("headers", Field::Plain),
    ("last_modified", Field::Plain),
    // Fetched when the origin starts.
    ("origin", Field::Url(HTTP)),
    ("random_content", Field::Plain),
    ("route", Field::Plain),
    ("stages", Field::Tables(STAGE)),
    ("version_every", Field::Plain),
];
const STAGE: &Fields = &[
    ("at", Field::Plain),
    ("byte_rate", Field::Plain),
    ("fault", Field::Plain),
    ("latency", Field::Latency),
    ("status", Field::Plain),
];

/// Of a proxy. Those that name files or addresses of its machine are missing.
const PROXY: &Fields = &[
    ("bounds", Field::Plain),
    ("cache", Field::Table(CACHE)),
    ("hosts", Field::Plain),
    ("origin", Field::Tables(ORIGIN)),
    ("route", Field::Tables(ROUTE)),
    ("shadow", Field::Plain),
    ("threads", Field::Plain),
    ("timeouts", Field::Plain),
];
const ORIGIN: &Fields = &[
    ("connections", Field::Plain),
    ("head", Field::Plain),
    ("headers", Field::Plain),
    ("health", Field::Plain),
    ("host_header", Field::Plain),
    ("http2", Field::Plain),
    ("name", Field::Plain),
    ("timeouts", Field::Plain),
    ("url", Field::Url(HTTP)),
    ("urls", Field::Urls(HTTP)),
    ("waiting", Field::Plain),
];
const ROUTE: &Fields = &[
    ("cache", Field::Table(CACHE)),
    ("client_directives", Field::Plain),
    ("default_ttl", Field::Plain),
    ("hide_headers", Field::Plain),
    ("host", Field::Plain),
    ("ignore_query", Field::Plain),
    ("invalidate_on_unsafe", Field::Plain),
    ("negative_ttl", Field::Plain),
    ("origin", Field::Plain),
    ("path", Field::Plain),
    ("set_cookie", Field::Plain),
    ("tag_headers", Field::Plain),
    ("ttl", Field::Plain),
    ("ttl_statuses", Field::Plain),
];
const CACHE: &Fields = &[
    ("breaker", Field::Plain),
    ("fetch", Field::Plain),
    ("jitter", Field::Plain),
    ("limit", Field::Plain),
    ("load", Field::Plain),
    ("memory", Field::Plain),
    ("refresh", Field::Plain),
    ("shared", Field::Url(&["redis", "rediss"])),
    ("sie", Field::Plain),
    ("store", Field::Plain),
    ("strategy", Field::Plain),
    ("swr", Field::Plain),
    ("throttle", Field::Plain),
    ("ttl", Field::Plain),
    ("writer", Field::Plain),
];
/// The parameters in the URL of a shared tier; others name files.
const URL_PARAMETERS: [&str; 3] = ["lease", "prefix", "timeout"];

/// Refuses a server that would touch more of this machine and its network than it may. Returns what was checked. The error is the reason.
pub(super) fn checked_order(
    order: &ServerOrder,
    address: IpAddr,
    allowed: &AllowedTargets,
) -> Result<ServerOrder, String> {
    if let Some(listen) = order.listen.filter(|listen| listen.ip() != address) {
        return Err(format!(
            "it serves at {address}, and not at {listen}: write that address, or leave `listen` out"
        ));
    }
    let settings: Value =
        serde_json::from_str(&order.settings).map_err(|error| format!("its settings: {error}"))?;
    match (order.role, &settings) {
        (Role::Origin, Value::Array(_)) => {
            Order { server: "an origin", allowed }.tables("recipe", &settings, RECIPE)?;
        }
        (Role::Origin, recipe) => Order { server: "an origin", allowed }.table("recipe", recipe, RECIPE)?,
        (Role::Proxy, settings) => Order { server: "a proxy", allowed }.table("settings", settings, PROXY)?,
        (Role::Load, _) => return Err("a load is not a server".to_owned()),
    }
    // As it was read here: of a repeated key others may read the first value.
    Ok(ServerOrder { settings: settings.to_string(), ..*order })
}

/// An order that is being checked. The name of a field is for messages.
struct Order<'a> {
    /// `an origin` or `a proxy`.
    server: &'static str,
    allowed: &'a AllowedTargets,
}

impl Order<'_> {
    fn table(&self, name: &str, value: &Value, fields: &Fields) -> Result<(), String> {
        let table = value.as_object().ok_or_else(|| format!("`{name}` of {} is a table", self.server))?;
        self.fields(table, fields)
    }

    /// A list of tables, whose places could have other meanings in a list of lists.
    fn tables(&self, name: &str, value: &Value, fields: &Fields) -> Result<(), String> {
        let wrong = || format!("`{name}` of {} is a list of tables", self.server);
        let list = value.as_array().ok_or_else(wrong)?;
        list.iter().try_for_each(|table| self.fields(table.as_object().ok_or_else(wrong)?, fields))
    }

    fn fields(&self, table: &Map<String, Value>, fields: &Fields) -> Result<(), String> {
        table.iter().try_for_each(|(name, value)| {
            let field = fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field);
            let field = field.ok_or_else(|| {
                let known: Vec<&str> = fields.iter().map(|(known, _)| *known).collect();
                let server = self.server;
                format!(
                    "{server} on an agent has no setting `{name}`: leave it out; it has {}",
                    known.join(", ")
                )
            })?;
            match (field, value) {
                // As if it was not there.
                (_, Value::Null) | (Field::Plain, _) => Ok(()),
                (Field::Url(schemes), url) => self.url(url, schemes),
                (Field::Urls(schemes), Value::Array(urls)) => {
                    urls.iter().try_for_each(|url| self.url(url, schemes))
                }
                (Field::Urls(_), _) => Err(format!("`{name}` of {} is a list of URLs", self.server)),
                (Field::Latency, latency) => check_latency(latency),
                (Field::Table(fields), table) => self.table(name, table, fields),
                (Field::Tables(fields), tables) => self.tables(name, tables, fields),
            }
        })
    }

    fn url(&self, url: &Value, schemes: &[&str]) -> Result<(), String> {
        // Parsers differ in where a host ends at these characters.
        let text = url.as_str().filter(|text| !text.contains(['#', '\\']));
        let url = text.and_then(|text| text.parse::<Uri>().ok());
        let url = url.filter(|url| url.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)));
        let server = self.server;
        let Some(url) = url else {
            return Err(format!("{server} on an agent reaches {} URLs here", schemes.join(" and ")));
        };
        let mut keys = url.query().unwrap_or_default().split('&').filter_map(|pair| pair.split('=').next());
        let is_tier = schemes != HTTP;
        if let Some(key) = keys.find(|key| is_tier && !key.is_empty() && !URL_PARAMETERS.contains(key)) {
            return Err(format!("{server} on an agent has no `{key}` in its URLs: leave it out"));
        }
        if self.allowed.has_server(&url) {
            return Ok(());
        }
        let host = url.authority().map_or("", |authority| authority.as_str());
        let host = host.rsplit('@').next().unwrap_or_default();
        let allowed = self.allowed;
        Err(format!(
            "{server} on it may not reach {host}; allowed: {allowed}; allow more with --allow-target when it starts"
        ))
    }
}

/// The latency as the origin reads it, without its files.
fn check_latency(latency: &Value) -> Result<(), String> {
    let text = match latency {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err("a latency is text, such as `100ms`".to_owned()),
    };
    let read = Latency::parse_with(&text, &mut LatencyFiles::none());
    read.map(drop).map_err(|error| format!("an origin on an agent: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(role: Role, settings: &Value, listen: Option<&str>) -> Result<(), String> {
        let allowed = vec!["10.2.0.0/16:8080".parse().unwrap(), "*.example:*".parse().unwrap()].into();
        let listen = listen.map(|listen| listen.parse().unwrap());
        let order = ServerOrder { role, settings: settings.to_string(), listen };
        checked_order(&order, [10, 2, 0, 5].into(), &allowed).map(drop)
    }

    fn assert_refused(role: Role, settings: &Value, reason: &str) {
        let error = checked(role, settings, None).expect_err(&settings.to_string());
        assert!(error.contains(reason) && !error.contains("secret"), "{settings}: {error}");
    }

    #[test]
    fn proxy_reaches_allowed_servers_only() {
        for allowed in [
            json!({}),
            json!({"origin": [{"name": "a", "url": "http://10.2.0.9:8080"}], "cache": {"strategy": "swr"}}),
            json!({"origin": [{"urls": ["http://a.example", "https://b.example:99/x"]}]}),
            json!({"cache": {"shared": "redis://tier.example:6379?timeout=50ms"}, "route": [{"path": "/*"}]}),
        ] {
            assert_eq!(checked(Role::Proxy, &allowed, None), Ok(()), "{allowed}");
        }
        for (refused, reason) in [
            (json!({"origin": [{"url": "http://10.2.0.9"}]}), "may not reach 10.2.0.9"),
            (json!({"origin": [{"url": "http://10.3.0.9:8080"}]}), "may not reach"),
            (json!({"origin": [{"url": "http://127.0.0.1:8080"}]}), "may not reach"),
            (json!({"origin": {"url": "http://a.example"}}), "a list of tables"),
            (json!({"origin": [["o", "sqlite:/var/lib/users.db"]]}), "a list of tables"),
            (json!({"route": [["/*"]]}), "a list of tables"),
            (json!({"cache": ["swr", "redis://10.9.9.9"]}), "a table"),
            (json!({"cache": {"shared": {"url": "redis://tier.example"}}}), "redis and rediss"),
            (json!({"cache": {"shared": "redis://tier.example?timeout=1s&ca=/etc/shadow"}}), "`ca`"),
            (json!({"cache": {"shared": "redis://tier.example?c%61=/etc/shadow"}}), "`c%61`"),
            (json!({"cache": {"shared": "redis://tier.example#@10.9.9.9"}}), "redis and rediss"),
            (
                json!({"origin": [{"urls": ["http://a.example", "http://u:secret@evil.test"]}]}),
                "may not reach evil.test;",
            ),
            (json!({"origin": [{"urls": "http://evil.test"}]}), "a list of URLs"),
            (json!({"origin": [{"url": "sqlite:/var/lib/users.db"}]}), "http and https"),
            (json!({"origin": [{"url": 7}]}), "http and https"),
            (json!({"origin": [{"url": "http://a.example", "ca": "/etc/shadow"}]}), "`ca`"),
            (json!({"cache": {"shared": "redis://10.9.9.9"}}), "may not reach"),
            (json!({"cache": {"shared": "redis://evil.test,a.example"}}), "may not reach"),
            (json!({"cache": {"file": "/etc/shadow"}}), "`file`"),
            (json!({"route": [{"path": "/*", "cache": {"shared": "redis://10.9.9.9"}}]}), "may not reach"),
            (json!({"route": [{"path": "/*", "script": "/bin/sh"}]}), "`script`"),
            (json!({"tls": {"cert": "a.pem"}}), "`tls`"),
            (json!({"listen": ["0.0.0.0:80"]}), "`listen`"),
            (json!({"log": {"path": "/etc/cron.d/x"}}), "`log`"),
            (json!({"snapshot": {"path": "/etc/cron.d/x"}}), "`snapshot`"),
            (json!({"admin": {"listen": "0.0.0.0:1"}}), "`admin`"),
            (json!([]), "a table"),
        ] {
            assert_refused(Role::Proxy, &refused, reason);
        }
    }

    #[test]
    fn origin_reaches_allowed_servers_only() {
        for allowed in [
            json!([]),
            json!({"origin": "http://a.example:9000/page?q=1", "stages": [{"at": 0}]}),
            json!([{"origin": "http://10.2.0.9:8080/"}, {"body": "http://10.9.9.9/", "origin": null}]),
        ] {
            assert_eq!(checked(Role::Origin, &allowed, None), Ok(()), "{allowed}");
        }
        for (refused, reason) in [
            (json!({"origin": "http://169.254.169.254/latest/meta-data"}), "may not reach 169.254.169.254"),
            (json!([{"body": "a"}, {"origin": "http://u:secret@10.9.9.9/"}]), "may not reach 10.9.9.9"),
            (json!({"origin": "http://a.example@10.9.9.9/"}), "may not reach 10.9.9.9"),
            (json!({"origin": "http://a.example#@10.9.9.9/"}), "http and https"),
            (json!({"origin": "HTTP://LOCALHOST:8080/"}), "may not reach LOCALHOST"),
            (json!({"origin": "file:///etc/passwd"}), "http and https"),
            (json!({"origin": ["http://10.9.9.9/"]}), "http and https"),
            (json!({"source": "http://10.9.9.9/"}), "`source`"),
            (json!({"stages": [{"at": 0, "origin": "http://10.9.9.9/"}]}), "`origin`"),
            (json!([[{"origin": "http://10.9.9.9/"}]]), "a list of tables"),
            (json!("http://10.9.9.9/"), "a table"),
        ] {
            assert_refused(Role::Origin, &refused, reason);
        }
    }

    #[test]
    fn origin_reads_no_file_of_its_machine() {
        let of = |latency: &Value| json!([{"route": "/*", "stages": [{"at": 0, "latency": latency}]}]);
        for latency in [json!("1ms..5ms"), json!("lognormal(median=20ms, p99=200ms)"), json!(0), json!(null)]
        {
            assert_eq!(checked(Role::Origin, &of(&latency), None), Ok(()), "{latency}");
        }
        for latency in [
            json!("empirical(/etc/passwd)"),
            json!("empirical (/etc/passwd)"),
            json!("\tempirical\u{a0}(/etc/passwd)"),
        ] {
            assert_refused(Role::Origin, &of(&latency), "no file");
        }
        for latency in [json!("Empirical(/etc/passwd)"), json!(["empirical(/etc/passwd)"]), json!({})] {
            assert_refused(Role::Origin, &of(&latency), "");
        }
        let hidden = r#"{"stages": [{"latency": "empiric\u0061l(/etc/passwd)", "latency": "1ms"}]}"#;
        let order = ServerOrder { role: Role::Origin, settings: hidden.to_owned(), listen: None };
        let checked = checked_order(&order, [10, 2, 0, 5].into(), &AllowedTargets::default()).unwrap();
        assert!(!checked.settings.contains("passwd"), "{}", checked.settings);
    }

    #[test]
    fn servers_listen_at_the_address_of_the_agent() {
        assert_eq!(checked(Role::Origin, &json!([]), Some("10.2.0.5:9000")), Ok(()));
        assert!(checked(Role::Origin, &json!([]), Some("0.0.0.0:9000")).is_err());
        assert!(checked(Role::Load, &json!([]), None).is_err());
    }

    /// A setting that the tables lack is refused on agents: it has to be put in one, or in this list.
    #[test]
    fn every_setting_of_a_proxy_is_judged() {
        const REFUSED: &[&str] = &[
            "admin",
            "listen",
            "listen_proxy_protocol",
            "log",
            "origin.ca",
            "snapshot",
            "tls",
            "trusted_proxies",
        ];
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.schema.json");
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
        let resolved = |value: &'_ Value| -> Value {
            let reference = value["$ref"].as_str().or_else(|| value["anyOf"][0]["$ref"].as_str());
            reference.map_or_else(|| value.clone(), |path| schema.pointer(&path[1..]).unwrap().clone())
        };
        let mut missing = Vec::new();
        for (prefix, table, fields) in [
            ("", schema.clone(), PROXY),
            ("cache.", resolved(&schema["properties"]["cache"]), CACHE),
            ("origin.", resolved(&schema["properties"]["origin"]["items"]), ORIGIN),
            ("route.", resolved(&schema["properties"]["route"]["items"]), ROUTE),
        ] {
            let properties = table["properties"].as_object().unwrap_or_else(|| panic!("{prefix}: {table}"));
            let is_known = |name: &str| fields.iter().any(|(known, _)| *known == name);
            let names =
                properties.keys().filter(|name| !is_known(name)).map(|name| format!("{prefix}{name}"));
            missing.extend(names.filter(|name| !REFUSED.contains(&name.as_str())));
            for (known, _) in fields {
                assert!(properties.contains_key(*known), "{prefix}{known}");
            }
        }
        assert_eq!(missing, [""; 0]);
    }
}
