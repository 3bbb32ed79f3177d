//! Links in Markdown files resolve, the book has all of its pages, and the README starts with commands.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::support::{Sandbox, root};

/// Directories that hold no pages of the project.
const SKIPPED: [&str; 4] = ["target", ".git", "node_modules", "runs"];

fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let is_skipped = SKIPPED.iter().any(|skipped| path.ends_with(skipped));
        if path.is_dir() && !is_skipped {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

/// The lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of the links and images of a page.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(text) {
        let plain: String = line.split('`').step_by(2).collect();
        for start in ["](", "src=\"", "href=\""] {
            let ends = [')', '"'];
            let targets = plain.split(start).skip(1).filter_map(|rest| rest.split(ends).next());
            links.extend(targets.map(str::to_owned));
        }
    }
    links
}

/// The anchors of a page, as GitHub and mdBook make them of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let slug: String = heading
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let repeated = (1..).map(|n| format!("{slug}-{n}"));
        let mut names = std::iter::once(slug.clone()).chain(repeated);
        anchors.insert(names.find(|name| !anchors.contains(name)).expect("a free name"));
    }
    anchors
}

/// Why a link does not resolve.
fn broken(page: &Path, text: &str, link: &str) -> Option<&'static str> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = page.parent().expect("a directory").join(path);
    if !path.is_empty() && !target.exists() {
        return Some("no such file");
    }
    let anchor = anchor?;
    let has_anchor = match path {
        "" => anchors(text).contains(anchor),
        _ => fs::read_to_string(target).is_ok_and(|text| anchors(&text).contains(anchor)),
    };
    (!has_anchor).then_some("no such heading")
}

#[test]
fn relative_links_and_anchors_resolve() {
    let mut all = Vec::new();
    let mut links_total = 0;
    for page in pages(&root()) {
        let text = fs::read_to_string(&page).expect("readable");
        for link in links(&text) {
            links_total += 1;
            if let Some(why) = broken(&page, &text, &link) {
                all.push(format!("{}: {link}: {why}", page.strip_prefix(root()).expect("inside").display()));
            }
        }
    }
    assert!(links_total > 100, "only {links_total} links found");
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn links_are_found_outside_of_code() {
    let text = "# A `b` c!\n[x](a.md#b) `[y](c.md)` [`z`](d.md)\n```\n[no](e.md)\n```\n# A b c\n";
    assert_eq!(links(text), ["a.md#b", "d.md"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-b-c".to_owned(), "a-b-c-1".to_owned()]));
}

#[test]
fn summary_lists_every_page_of_the_book() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("docs/SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links(&summary).into_iter().map(|link| docs.join(link)).collect();
    let pages: BTreeSet<PathBuf> =
        pages(&docs).into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(pages, listed);
}

/// A window of 24 lines, and no picture above the commands; 100 lines in all.
#[test]
fn first_screen_of_the_readme_has_the_main_command_and_the_tests() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    assert!(text.lines().count() <= 100, "README.md has {} lines: move some to docs/", text.lines().count());
    let screen: Vec<&str> = text.lines().take(24).take_while(|line| !line.starts_with("![")).collect();
    for command in ["cargo run --no-default-features -- run experiments/", "make test "] {
        assert!(screen.iter().any(|line| line.starts_with(command)), "{command}: {screen:?}");
    }
}

/// It is computed in virtual time: each machine prints these lines.
#[test]
fn first_command_of_the_readme_prints_the_lines_below_it() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    let command = text.lines().find_map(|line| line.strip_prefix("cargo run --no-default-features -- "));
    let experiment = root().join("experiments/outage.toml").display().to_string();
    let arguments = command.expect("a command").replace("experiments/outage.toml", &experiment);
    let output = Sandbox::new().stockade(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(output.code, 0, "{}", output.stderr);
    let block = text.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("its output");
    assert!(block.lines().count() > 2, "{block}");
    for line in block.lines() {
        assert!(
            output.stdout.lines().any(|printed| printed == line),
            "README.md: {line}\nprinted:\n{}",
            output.stdout
        );
    }
}

#[test]
fn recipes_of_contributing_name_files_that_exist() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let paths: Vec<_> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| ["crates/", "docs/", "deploy/"].iter().any(|start| code.starts_with(start)))
        .filter(|path| !path.contains("NAME"))
        .collect();
    assert!(paths.len() > 15, "{paths:?}");
    let missing: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The words in backticks in the first cells of a table.
fn first_cells(text: &str, header: &str) -> Vec<String> {
    let (_, table) = text.split_once(header).unwrap_or_else(|| panic!("no table `{header}`"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The files of a folder of `bench` with this ending, with the ending or without.
fn bench_files(folder: &str, ending: &str, has_ending: bool) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("bench").join(folder)).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    names
        .filter_map(|name| {
            let stem = name.strip_suffix(ending)?.to_owned();
            Some(if has_ending { name } else { stem })
        })
        .collect()
}

#[test]
fn readme_of_the_benches_lists_each_bench_and_each_other_program() {
    let text = fs::read_to_string(root().join("bench/README.md")).expect("bench/README.md");
    let benches: BTreeSet<String> =
        first_cells(&text, "| bench | peers | also needs |").into_iter().collect();
    assert_eq!(benches, bench_files("src/suite", ".rs", false));

    let commands = first_cells(&text, "| command | measures | also needs | minutes |");
    let starters = ["node", "python3", "cargo", "run", "--bin"];
    let program =
        |command: &String| command.split(' ').find(|word| !starters.contains(word)).map(str::to_owned);
    let listed: BTreeSet<String> = commands.iter().filter_map(program).collect();
    let mut programs = bench_files("src/bin", ".rs", false);
    assert!(programs.remove("bench"), "the program of `make bench`");
    programs.extend(bench_files("", ".py", true));
    programs.extend(bench_files("", ".mjs", true));
    assert_eq!(listed, programs);
}
