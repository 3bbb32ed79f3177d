//! Masks the secrets of URLs in text that is shown.

use std::ops::Range;

/// Parts of the names of secret parameters.
const SECRET_WORDS: [&str; 5] = ["passw", "pwd", "secret", "token", "credential"];

/// Schemes without a user and a password.
const LOCAL_SCHEMES: [&str; 2] = ["sqlite", "simulated"];

/// Parameters that belong to HTTP sources, not to their servers.
const HTTP_SETTINGS: [&str; 4] = ["ca", "connections", "ids", "timeout"];

/// Masks of characters with one, two, three and four bytes, so that offsets stay valid.
const MASKS: [char; 4] = ['*', '·', '•', '🞄'];

/// Replaces each character of a secret in a TOML file, valid or not, with a mask. Other text keeps its place.
///
/// ```
/// use stockade_source::secrets::masked_file;
///
/// let shown = masked_file("source = \"postgres://ada:sesame@host/db\" # as everywhere");
/// assert_eq!(shown, "source = \"postgres://ada:******@host/db\" # as everywhere");
/// ```
#[must_use]
pub fn masked_file(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (before, length) = match first {
            '#' => (1, line(&rest[1..])),
            '"' | '\'' => string(rest),
            _ if first.is_whitespace() => (first.len_utf8(), 0),
            _ => (0, rest.find(|c: char| c.is_whitespace() || "\"'".contains(c)).unwrap_or(rest.len())),
        };
        let (taken, after) = rest.split_at(before + length);
        shown.push_str(&taken[..before]);
        let content = &taken[before..];
        let header = if matches!(first, '"' | '\'') { masked_header(content) } else { None };
        shown.push_str(&header.unwrap_or_else(|| masked(content)));
        rest = after;
        if matches!(first, '"' | '\'') {
            // The end of one string is not the start of another.
            let end = rest.len() - rest.trim_start_matches(first).len();
            shown.push_str(&rest[..end.min(before)]);
            rest = &rest[end.min(before)..];
        }
    }
    shown
}

/// A string that is a header with credentials, without its value: `Authorization: ******`. `None`: any other string.
fn masked_header(text: &str) -> Option<String> {
    const SECRET: [&str; 7] = ["auth", "cookie", "key", "password", "secret", "session", "token"];
    let (name, value) = text.split_once(':')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let lower = name.to_ascii_lowercase();
    let is_secret = is_name && !value.starts_with("//") && SECRET.iter().any(|part| lower.contains(part));
    is_secret.then(|| format!("{name}: ******"))
}

/// Masks the secrets in a message that quotes a file.
#[must_use]
pub fn masked_message(text: &str) -> String {
    text.split_inclusive('\n').map(masked).collect()
}

/// The length of the rest of the line.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The number of quotes at the start of a string, and the length of its content. An unterminated string ends at the end
/// of its line, or at the end of the text if it is a multi-line string.
fn string(text: &str) -> (usize, usize) {
    let quote = &text[..1];
    let (long, after) = (quote.repeat(3), &text[1..]);
    let (end, within) = match text.strip_prefix(&long) {
        Some(within) => (long.as_str(), within),
        None => (quote, &after[..line(after)]),
    };
    let mut from = 0;
    while let Some(found) = within[from..].find(end) {
        let at = from + found;
        let escapes = within[..at].len() - within[..at].trim_end_matches('\\').len();
        if quote == "'" || escapes % 2 == 0 {
            return (end.len(), at);
        }
        from = at + 1;
    }
    (end.len(), within.len())
}

/// Masks the secrets of a URL in the text, if there is one.
fn masked(piece: &str) -> String {
    let mut secrets = Vec::new();
    if piece.contains("://") {
        secrets.extend(secrets_of(piece, 0));
    } else {
        // An invalid URL may contain a secret too.
        for word in piece.split_whitespace() {
            let offset = word.as_ptr() as usize - piece.as_ptr() as usize;
            secrets.extend(secrets_of(word, offset));
        }
    }
    let is_secret = |at: usize| secrets.iter().any(|secret| secret.contains(&at));
    let mut shown = String::with_capacity(piece.len());
    for (at, c) in piece.char_indices() {
        if is_secret(at) && c != '\n' {
            shown.push(MASKS[c.len_utf8() - 1]);
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The ranges of a URL's secrets: its password or token, and the values of some parameters.
fn secrets_of(url: &str, offset: usize) -> Vec<Range<usize>> {
    if LOCAL_SCHEMES.iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| rest.starts_with(':'))) {
        return Vec::new();
    }
    let mut secrets = Vec::new();
    let begin = url.find("//").map(|at| at + 2).or_else(|| url.find(':').map(|at| at + 1));
    if let (Some(begin), Some(end)) = (begin, url.rfind('@'))
        && begin < end
    {
        let user = url[begin..end].find(':').map_or(0, |colon| colon + 1);
        secrets.push(offset + begin + user..offset + end);
    }
    // The parameters of an HTTP server may be keys.
    let is_http = url.starts_with("http");
    let query = url.find('?').map_or(url.len(), |at| at + 1);
    let mut at = query;
    for parameter in url[query..].split('&') {
        let lower = parameter.to_lowercase();
        if let Some(equals) = parameter.find('=')
            && (SECRET_WORDS.iter().any(|word| lower.contains(word))
                || (is_http && !HTTP_SETTINGS.contains(&&lower[..equals])))
        {
            secrets.push(offset + at + equals + 1..offset + at + parameter.len());
        }
        at += parameter.len() + 1;
    }
    secrets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_masked_in_every_form() {
        for (written, shown) in [
            ("source = \"postgres://ada:sec@h/db\"", "source = \"postgres://ada:***@h/db\""),
            ("source = 'postgres://ada:sec@h/db'", "source = 'postgres://ada:***@h/db'"),
            ("{source=\"http://ada:s'e#c@h\",x=1}", "{source=\"http://ada:*****@h\",x=1}"),
            ("a = \"x://a:s\\\"c@h\" # x://a:sec@h", "a = \"x://a:****@h\" # x://a:***@h"),
            ("a = \"\"\"\nx://a:s\"\"e\\\nc@h\"\"\"\nb = 1", "a = \"\"\"\nx://a:*****\n*@h\"\"\"\nb = 1"),
            ("a = '''x://a:s'c@h'''\nb = 'c'", "a = '''x://a:***@h'''\nb = 'c'"),
            // Not TOML, or no URL.
            ("a = postgres://ada:sec@h", "a = postgres://ada:***@h"),
            ("a = \"x://a:sec@h\nb = \"x://a:sec@h\"", "a = \"x://a:***@h\nb = \"x://a:***@h\""),
            ("# don't: x://ada:my sec'ret@h", "# don't: x://ada:**********@h"),
            (
                "\"postgres:ada:sec@h\" \"postgres//ada:sec@h\"",
                "\"postgres:ada:***@h\" \"postgres//ada:***@h\"",
            ),
            ("\"postgres:/ada:se?c@h\"", "\"postgres:/ada:****@h\""),
            // Several secrets, a token, an `@` in a password, characters of several bytes.
            ("\"http://token@h\"", "\"http://*****@h\""),
            ("\"x://a:s@c@h\"", "\"x://a:***@h\""),
            ("\"x://a:sé€𝄞@h\"", "\"x://a:*·•🞄@h\""),
            ("\"x://h/?a=b&password=sec&c=d\"", "\"x://h/?a=b&password=***&c=d\""),
            ("\"x://h/?p=AWS_SESSION_TOKEN:sec\"", "\"x://h/?p=*********************\""),
            ("\"https://h/{id}?key=sec&ids=a\"", "\"https://h/{id}?key=***&ids=a\""),
            // No secrets.
            ("\"postgres://h/db?key=id\" \"sqlite:/a:b@c\"", "\"postgres://h/db?key=id\" \"sqlite:/a:b@c\""),
            ("text = \"mail ada@example.com at 10:30\"", "text = \"mail ada@example.com at 10:30\""),
            ("''''a:''' \"\" '' b = \"\"\"\"", "''''a:''' \"\" '' b = \"\"\"\""),
        ] {
            assert_eq!(masked_file(written), shown);
        }
        let message = "error: invalid value 'postgres://ada:my sec@h' for X\n  tip: ada@h";
        let shown = "error: invalid value 'postgres://ada:******@h' for X\n  tip: ada@h";
        assert_eq!(masked_message(message), shown);
    }

    proptest! {
        #[test]
        fn other_text_keeps_its_place(text in "[a@:/\"'#\\\\\n?=é ]{0,40}") {
            for shown in [masked_file(&text), masked_message(&text)] {
                prop_assert_eq!((shown.len(), shown.chars().count()), (text.len(), text.chars().count()));
                for (at, c) in shown.char_indices().filter(|(_, c)| !MASKS.contains(c)) {
                    prop_assert!(text[at..].starts_with(c));
                }
                prop_assert_eq!(shown.matches('\n').count(), text.matches('\n').count());
            }
        }

        #[test]
        fn password_is_never_shown(password in "[b-z@/:?#%' ]{4,12}", quote in "[\"']") {
            prop_assume!(!password.contains(&quote));
            let file = |password: &str| format!("a = {quote}postgres://A:{password}@h{quote}\n");
            let shown = file(&"*".repeat(password.len()));
            prop_assert_eq!(&masked_file(&file(&password)), &shown);
            prop_assert_eq!(&masked_message(&file(&password)), &shown);
        }
    }
}
