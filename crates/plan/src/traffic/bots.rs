//! The user agents of bots: crawlers, previews, feeds, monitors, tools and libraries.
//!
//! A user agent is a bot if a word of it begins with a name of `bots.txt`, or ends in `bot`, `crawler`, `spider` or `scraper`.
//! The time is linear in its length: only the names with the word's first letter are compared.

use std::sync::LazyLock;

/// The kept list: a kind and a name a line.
const LIST: &str = include_str!("bots.txt");

/// Ends of words that name a bot which is not in the list.
const ENDS: [&[u8]; 4] = [b"bot", b"crawler", b"spider", b"scraper"];

/// Words that end like a bot's name and are something else: a maker of phones.
const NOT_BOTS: [&[u8]; 1] = [b"cubot"];

/// The names by their first letter, longest first.
static NAMES: LazyLock<[Vec<&'static str>; 256]> = LazyLock::new(|| {
    let mut names = [const { Vec::new() }; 256];
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let (_, name) = line.split_once(' ').expect("the tests read each line");
        names[usize::from(name.as_bytes()[0].to_ascii_lowercase())].push(name);
    }
    names.iter_mut().for_each(|names| names.sort_by_key(|name| std::cmp::Reverse(name.len())));
    names
});

/// The name of the bot that sends this user agent; `None`: it is not known as one.
pub(crate) fn bot_name(agent: &[u8]) -> Option<&str> {
    let mut at = 0;
    while at < agent.len() {
        let length = agent[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        if length == 0 {
            // Spaces of some logs are written as %20.
            let is_escape = agent[at] == b'%'
                && agent.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
            at += if is_escape { 3 } else { 1 };
            continue;
        }
        let names = &NAMES[usize::from(agent[at].to_ascii_lowercase())];
        if let Some(name) = names.iter().find(|name| begins_with(&agent[at..], name.as_bytes())) {
            return Some(name);
        }
        let word = &agent[at..at + length];
        if ENDS.iter().any(|end| ends_with(word, end))
            && !NOT_BOTS.iter().any(|other| other.eq_ignore_ascii_case(word))
        {
            return str::from_utf8(word).ok();
        }
        at += length;
    }
    None
}

/// True if a text begins with a name, and the name ends there. A space may be written as `+` or `%20`.
fn begins_with(mut text: &[u8], name: &[u8]) -> bool {
    for byte in name {
        let length = match (byte, text) {
            (b' ', [b'%', b'2', b'0', ..]) => 3,
            (b' ', [b' ' | b'+', ..]) => 1,
            (byte, [other, ..]) if byte.eq_ignore_ascii_case(other) => 1,
            _ => return false,
        };
        text = &text[length..];
    }
    text.first().is_none_or(|next| !next.is_ascii_alphanumeric())
}

fn ends_with(word: &[u8], end: &[u8]) -> bool {
    word.len() >= end.len() && word[word.len() - end.len()..].eq_ignore_ascii_case(end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn list_has_each_name_once_with_its_kind() {
        const KINDS: [&str; 11] = [
            "search", "ai", "seo", "preview", "feed", "monitor", "cdn", "library", "browser", "scanner",
            "tool",
        ];
        let mut names = BTreeSet::new();
        for line in LIST.lines().filter(|line| !line.starts_with('#')) {
            let (kind, name) = line.split_once(' ').expect("a kind and a name");
            assert!(KINDS.contains(&kind) && name == name.trim() && name.is_ascii(), "{line}");
            assert!(name.as_bytes()[0].is_ascii_alphanumeric(), "{line}");
            assert!(names.insert(name.to_ascii_lowercase()), "{line}");
            assert_eq!(bot_name(name.as_bytes()), Some(name));
        }
        assert!((150..400).contains(&names.len()), "{}", names.len());
    }

    /// As the makers publish them.
    #[test]
    fn bots_are_told_from_browsers() {
        for (agent, name) in [
            ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", Some("Googlebot")),
            (
                "Mozilla/5.0%20(compatible;%20Googlebot/2.1;%20+http://www.google.com/bot.html)",
                Some("Googlebot"),
            ),
            ("Mozilla/5.0+(compatible;+bingbot/2.0;++http://www.bing.com/bingbot.htm)", Some("bingbot")),
            (
                "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
                Some("GPTBot"),
            ),
            (
                "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
                Some("facebookexternalhit"),
            ),
            ("Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)", Some("Pingdom")),
            ("Screaming%20Frog+SEO Spider/19.0", Some("Screaming Frog SEO Spider")),
            ("curl/8.5.0", Some("curl")),
            ("python-requests/2.31.0", Some("python-requests")),
            ("GOOGLEBOT", Some("Googlebot")),
            ("Mozilla/5.0 (compatible; ExampleCrawler/1.0)", Some("ExampleCrawler")),
            ("ExampleBot", Some("ExampleBot")),
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36",
                None,
            ),
            (
                "Mozilla/5.0 (Linux; Android 8.1; CUBOT_X18 Build/O11019) Chrome/120.0 Mobile Safari/537.36",
                None,
            ),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Mobile/15E148 DaumApps/6.0", None),
            ("Mozilla/5.0 (Robotics; Javanese) Curling/1", None),
            ("okhttp/4.12.0", None),
            ("%2", None),
            ("", None),
        ] {
            assert_eq!(bot_name(agent.as_bytes()), name, "{agent}");
        }
    }
}
