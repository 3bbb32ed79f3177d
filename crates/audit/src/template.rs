//! Configurations of servers with placeholders, such as `{listen}`.

use std::{borrow::Cow, net::SocketAddr, path::Path};

use stockade_model::nearest::remedy;

/// The configuration of a server, in which an audit replaces each placeholder by a value.
#[derive(Clone, Debug)]
pub struct Template(Cow<'static, str>);

/// A configuration that an audit cannot use. The message does not name the file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    #[error("line {line}: `{{{name}}}` is not a placeholder: {remedy}")]
    Unknown { line: usize, name: String, remedy: String },
    #[error("it has no `{{{name}}}`, {meaning}: write it as in the stock configuration, `{example}`")]
    Missing { name: &'static str, meaning: &'static str, example: String },
}

/// The values of placeholders.
pub(crate) struct Values<'a> {
    /// Of the server's files.
    pub folder: &'a Path,
    pub listen: SocketAddr,
    pub origin: SocketAddr,
}

const NAMES: [&str; 6] = ["listen", "port", "origin", "origin_host", "origin_port", "folder"];

/// A configuration has one of these, if the stock configuration has one.
const REQUIRED: [(&[&str], &str); 2] = [
    (&["listen", "port"], "the address at which the server listens"),
    (&["origin", "origin_port"], "the address of the audit's origin"),
];

impl Template {
    /// The stock configuration of a server.
    pub(crate) const fn stock(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// The configuration of a user in place of a stock one.
    pub(crate) fn checked(text: String, stock: &str) -> Result<Self, TemplateFault> {
        for (line, name) in
            text.lines().zip(1..).flat_map(|(text, line)| names(text).map(move |name| (line, name)))
        {
            if !NAMES.contains(&name) {
                let remedy = remedy(name, NAMES);
                return Err(TemplateFault::Unknown { line, name: name.to_owned(), remedy });
            }
        }
        for (alternatives, meaning) in REQUIRED {
            let is_one = |name: &str| alternatives.contains(&name);
            let example =
                stock.lines().find_map(|line| Some((names(line).find(|name| is_one(name))?, line.trim())));
            if let Some((name, example)) = example
                && !text.lines().flat_map(names).any(is_one)
            {
                let name = alternatives.iter().find(|known| **known == name).copied().unwrap_or_default();
                return Err(TemplateFault::Missing { name, meaning, example: example.to_owned() });
            }
        }
        Ok(Self(text.into()))
    }

    pub(crate) fn filled(&self, values: &Values<'_>) -> String {
        let Values { folder, listen, origin } = values;
        let values = [
            listen.to_string(),
            listen.port().to_string(),
            origin.to_string(),
            origin.ip().to_string(),
            origin.port().to_string(),
            folder.to_string_lossy().into_owned(),
        ];
        let replaced =
            |text: String, (name, value): (&&str, String)| text.replace(&format!("{{{name}}}"), &value);
        NAMES.iter().zip(values).fold(self.0.to_string(), replaced)
    }
}

/// The words in braces: lower-case letters and `_` alone. Those after `$` and `%` are the server's: `${uri}`, `%{host}`.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('{').filter_map(|(start, _)| {
        let is_of_server = line[..start].ends_with(['$', '%']);
        let (name, _) = line[start + 1..].split_once('}')?;
        let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        (is_word && !is_of_server).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const STOCK: &str = "http {\n    listen {listen};\n    proxy_pass http://{origin};\n}\n";

    fn fault(text: &str) -> String {
        Template::checked(text.to_owned(), STOCK).unwrap_err().to_string()
    }

    fn filled(text: &str) -> String {
        let at = |port| (Ipv4Addr::LOCALHOST, port).into();
        let values = Values { folder: Path::new("/tmp/a"), listen: at(1), origin: at(2) };
        Template::checked(text.to_owned(), STOCK).unwrap().filled(&values)
    }

    #[test]
    fn placeholders_are_replaced_by_values() {
        let text = "{listen} {port} {origin} {origin_host} {origin_port} {folder}/pid {origin}";
        assert_eq!(filled(text), "127.0.0.1:1 1 127.0.0.1:2 127.0.0.1 2 /tmp/a/pid 127.0.0.1:2");
    }

    #[test]
    fn other_braces_belong_to_the_server() {
        for syntax in [
            "if ($uri ~ \"^/[a-z]{2}/\") { return 404; }",
            "set $a ${uri}; log %{host}>h %{+Q}o",
            "acl a { hdr(a) -m found } !{ found }",
            "set beresp.http.a = {\"long text\"};",
            "cond %{READ_RESPONSE_HDR_HOOK}",
            "{ unclosed",
            "{}",
            "a = { url = \"b\" }",
        ] {
            assert_eq!(filled(&format!("{{port}} {{origin}} {syntax}")), format!("1 127.0.0.1:2 {syntax}"));
        }
    }

    #[test]
    fn unknown_placeholder_has_its_line_and_the_nearest_name() {
        assert_eq!(
            fault("listen {listen};\nproxy_pass http://{origine};"),
            "line 2: `{origine}` is not a placeholder: did you mean `origin`?"
        );
    }

    #[test]
    fn missing_placeholder_is_shown_in_the_stock_line() {
        assert_eq!(
            fault("listen 80;\nproxy_pass http://{origin};"),
            "it has no `{listen}`, the address at which the server listens: write it as in the stock configuration, `listen {listen};`"
        );
        assert_eq!(
            fault("listen {listen};\nproxy_pass http://shop:8080;"),
            "it has no `{origin}`, the address of the audit's origin: write it as in the stock configuration, `proxy_pass http://{origin};`"
        );
    }
}
