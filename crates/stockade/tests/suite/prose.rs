//! Comments, messages and documents are free of idioms that slow a reader down.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::support::root;

/// Directories without text of ours, and the kept inputs of fuzz targets.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "runs", "corpus"];
const EXTENSIONS: [&str; 3] = ["rs", "md", "toml"];

/// Words in a row, each with its alternatives, and what to write instead. A last `*` stands for any word.
const IDIOMS: [(&[&str], &str); 9] = [
    (&["is|are|was|were", "no", "*"], "write \"is not a ...\", or \"has no ...\""),
    (&["is|are|was|were", "none"], "name what is missing, or write \"without\""),
    (&["so", "many"], "name the number: \"this number of\", or the argument"),
    (&["of", "which"], "begin a new sentence, or write \"whose\" or \"in which\""),
    (&["none", "of"], "write \"no ... of\", or \"does not\""),
    (&["or", "why"], "write \"or the reason\""),
    (&["such", "a|an"], "write \"this\" or \"that\", or say which one is meant"),
    (&["beside"], "write \"with\", \"during\", \"in addition to\", \"compared with\" or \"next to\""),
    (&["whoever"], "name the subject"),
];

/// Words that make a sentence with "is no" a plain one: "is no longer", "there is no".
const PLAIN_AFTER: [&str; 3] = ["longer", "more", "less"];
const PLAIN_BEFORE: &str = "there";

/// The files with text below a directory.
fn texts(directory: &Path) -> Vec<PathBuf> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let is_skipped = SKIPPED.iter().any(|skipped| path.ends_with(skipped));
        if path.is_dir() && !is_skipped {
            texts.extend(self::texts(&path));
        } else if path.extension().is_some_and(|of| EXTENSIONS.iter().any(|extension| of == *extension)) {
            texts.push(path);
        }
    }
    texts
}

/// The words of a text in lower case with the numbers of their lines: a sentence of several comment lines is one row of words. Code in
/// backticks keeps the first of them: `None` is not a word.
fn words(text: &str) -> Vec<(usize, String)> {
    let is_mark = |word: &&str| !["//", "///", "//!", "#", ">", "|", "*", "\\"].contains(word);
    let lines = text.lines().zip(1..);
    lines
        .flat_map(|(line, number)| line.split_whitespace().filter(is_mark).map(move |word| (number, word)))
        .map(|(number, word)| {
            (number, word.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '`').to_lowercase())
        })
        .collect()
}

/// A word without the punctuation marks after it.
fn plain(word: &str) -> &str {
    word.trim_end_matches(|c: char| !c.is_alphanumeric())
}

/// The idioms of a text: line, words, remedy. Within an idiom no word has a punctuation mark after it.
fn idioms(text: &str) -> Vec<(usize, String, &'static str)> {
    let words = words(text);
    let starts: BTreeSet<&str> = IDIOMS.iter().flat_map(|(idiom, _)| idiom[0].split('|')).collect();
    let mut found = Vec::new();
    for (at, (line, word)) in words.iter().enumerate() {
        if !starts.contains(plain(word)) {
            continue;
        }
        for (idiom, remedy) in IDIOMS {
            let Some(row) = words.get(at..at + idiom.len()) else { continue };
            let is_one = idiom.iter().zip(row).enumerate().all(|(place, (one_of, (_, word)))| {
                let is_last = place + 1 == idiom.len();
                let word = if is_last { plain(word) } else { word };
                *one_of == "*" || one_of.split('|').any(|one| one == word)
            });
            let last = plain(&row[row.len() - 1].1);
            let before = at.checked_sub(1).map_or("", |before| &words[before].1);
            let is_plain =
                idiom.contains(&"no") && (before.ends_with(PLAIN_BEFORE) || PLAIN_AFTER.contains(&last));
            if is_one && !is_plain {
                let row: Vec<_> = row.iter().map(|(_, word)| word.as_str()).collect();
                found.push((*line, row.join(" "), remedy));
            }
        }
    }
    found
}

#[test]
fn texts_have_no_idioms() {
    let files = texts(&root());
    assert!(files.len() > 1_000, "{}", files.len());
    let mut all = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("tests/suite/prose.rs")) {
        let name = file.strip_prefix(root()).expect("inside").display();
        for (line, idiom, remedy) in idioms(&fs::read_to_string(file).expect("UTF-8")) {
            all.push(format!("{name}:{line}: \"{idiom}\": {remedy}"));
        }
    }
    assert!(all.is_empty(), "{} idioms:\n{}", all.len(), all.join("\n"));
}

#[test]
fn idioms_are_found_across_lines_and_plain_sentences_are_not() {
    let found =
        |text: &str| -> Vec<_> { idioms(text).into_iter().map(|(line, idiom, _)| (line, idiom)).collect() };
    let one = |line: usize, idiom: &str| vec![(line, idiom.to_owned())];
    assert_eq!(found("x\n/// A peek is no\n/// request."), one(2, "is no request."));
    assert_eq!(found("// `None`: there are none."), one(1, "are none."));
    assert_eq!(found("error(\"`{0}` is no size: write\")"), one(1, "is no size:"));
    assert_eq!(found("Ten loads, of\nwhich two wait"), one(1, "of which"));
    assert_eq!(found("\"none \\\n    of them\""), one(1, "none of"));
    assert_eq!(found("So many hits, Beside a cache"), [one(1, "so many"), one(1, "beside")].concat());
    for plain in [
        "There is no cache.",
        "It is no longer stored.",
        "Is it? No page is.",
        "Besides, such as `a`.",
        "What is it? None. Of all",
        "`no-store` is no-store",
        "format!(\"there is no cache\")",
        "It is `None` if",
    ] {
        assert_eq!(found(plain), [], "{plain}");
    }
}
