//! Text of files and servers inside Markdown that a forge renders: escaped, and bounded in length.

use std::fmt::Write;

use stockade_model::message::is_unprintable;

/// The longest cell, in characters.
const CELL_CHARS_MAX: usize = 200;

/// One line without markup, HTML, links and mentions. Text beyond 200 characters is cut.
#[must_use]
pub fn escape_markdown(text: &str) -> String {
    let mut escaped = String::new();
    let mut rest = text.trim().chars().peekable();
    let mut before = None;
    for _ in 0..CELL_CHARS_MAX {
        let Some(c) = rest.next() else { break };
        let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        // Within a word it is not markup.
        if c == '_' && is_letter(before) && is_letter(rest.peek().copied()) {
            escaped.push(c);
        } else {
            push(&mut escaped, c);
        }
        before = Some(c);
    }
    if rest.next().is_some() {
        escaped.push('…');
    }
    // Forges link addresses and mentions in the rendered text: a character of no width stands between.
    escaped.replace("www.", "www&#8203;.").replace("://", ":&#8203;//")
}

fn push(escaped: &mut String, c: char) {
    match c {
        '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '!' | '|' | '$' => {
            let _ = write!(escaped, "&#{};", u32::from(c));
        }
        '<' => escaped.push_str("&lt;"),
        '>' => escaped.push_str("&gt;"),
        '&' => escaped.push_str("&amp;"),
        '@' | '#' => {
            escaped.push(c);
            escaped.push_str("&#8203;");
        }
        '\n' | '\t' => escaped.push(' '),
        c if is_unprintable(c) => escaped.push('\u{fffd}'),
        c => escaped.push(c),
    }
}

/// Text in the font of code.
#[must_use]
pub fn code(text: &str) -> String {
    format!("<code>{}</code>", escape_markdown(text))
}

/// A table of at most `bytes_max`, from cells that are escaped. Rows that do not fit are left out, and a line says how many.
#[must_use]
pub fn table(headings: &[String], rows: &[Vec<String>], bytes_max: usize) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let is_figure = |column: usize| {
        rows.iter()
            .any(|row| row.get(column).is_some_and(|cell| cell.starts_with(|c: char| c.is_ascii_digit())))
    };
    let rule: Vec<_> =
        (0..headings.len()).map(|column| if is_figure(column) { "---:" } else { "---" }.to_owned()).collect();
    let mut table = line(headings) + &line(&rule);
    let mut fitting = 0;
    for row in rows {
        let row = line(row);
        if table.len() + row.len() > bytes_max {
            break;
        }
        table += &row;
        fitting += 1;
    }
    match rows.len() - fitting {
        0 => table,
        left_out => format!("{table}\n{left_out} of {} rows are left out here.\n", rows.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_markup_links_or_mentions() {
        for (text, escaped) in [
            ("a | b\nc", "a &#124; b c"),
            ("</details><img src=x>", "&lt;/details&gt;&lt;img src=x&gt;"),
            ("[x](http://evil)", "&#91;x&#93;(http:&#8203;//evil)"),
            ("@all #1 www.evil.org", "@&#8203;all #&#8203;1 www&#8203;.evil.org"),
            ("`**b**`", "&#96;&#42;&#42;b&#42;&#42;&#96;"),
            ("hit_ratio _x_", "hit_ratio &#95;x&#95;"),
            ("\u{202e}\u{7}", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(escape_markdown(text), escaped);
        }
        assert_eq!(escape_markdown(&"x".repeat(201)), "x".repeat(200) + "…");
    }

    #[test]
    fn table_says_what_it_leaves_out() {
        let rows: Vec<_> = (0..100).map(|n| vec![format!("arm {n}"), n.to_string()]).collect();
        let table = table(&["arm", "failed"].map(str::to_owned), &rows, 100);
        assert!(table.len() < 150, "{table}");
        assert!(table.starts_with("| arm | failed |\n| --- | ---: |\n| arm 0 | 0 |\n"), "{table}");
        assert!(table.ends_with("\n96 of 100 rows are left out here.\n"), "{table}");
    }
}
