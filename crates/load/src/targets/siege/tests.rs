//! siege's `urls.txt`, valid and invalid.

use std::fs;

use proptest::prelude::*;

use super::*;

fn read_here(text: &str) -> Result<Vec<RequestTemplate>, TargetFileError> {
    read("urls.txt", text, Path::new("/nowhere"))
}

/// Method, URL, type and body.
fn lines(targets: &[RequestTemplate]) -> Vec<String> {
    let line = |target: &RequestTemplate| {
        let content_type = target.headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
        let body = String::from_utf8_lossy(&target.body);
        format!("{} {} {content_type} {body}", target.method, target.url).trim_end().to_owned()
    };
    targets.iter().map(line).collect()
}

#[test]
fn lines_are_parsed() {
    for (text, target) in [
        ("http://a/b?c=d", "GET http://a/b?c=d"),
        ("www.a.com/b", "GET http://www.a.com/b"),
        ("localhost:8080", "GET http://localhost:8080/"),
        ("localhost:8080 # home", "GET http://localhost:8080/"),
        ("  https://a/#top  ", "GET https://a/"),
        ("http://a/ POST a=1&b= 2 ", &format!("POST http://a/ {FORM} a=1&b= 2")),
        ("http://a/ POST", &format!("POST http://a/ {FORM}")),
        ("http://a/\tPUT\t{a:b}", &format!("PUT http://a/ {FORM} {{a:b}}")),
        ("http://a/ DELETE x=1", &format!("DELETE http://a/ {FORM} x=1")),
        ("http://a/ PATCH x", &format!("PATCH http://a/ {FORM} x")),
        ("http://a/ OPTIONS", &format!("OPTIONS http://a/ {FORM}")),
        ("http://a/ POST -T application/json {\"a\":1}", "POST http://a/ application/json {\"a\":1}"),
        ("http://a/ POST -T application/json; [1]", "POST http://a/ application/json [1]"),
        ("http://a/ POST -Title", &format!("POST http://a/ {FORM} -Title")),
        ("H=a:80\nhttp://$(H)/${H}", "GET http://a:80/a:80"),
        ("H = a # there\nH=b\nhttp://$(H)", "GET http://b/"),
        ("P=https\nB=${P}://a\n$(B)/c", "GET https://a/c"),
        ("http://a/?x=\\$1&y=\\$(H)", "GET http://a/?x=$1&y=$(H)"),
        ("E=\nhttp://a/$(E)b", "GET http://a/b"),
        ("a/{key}", "GET http://a/{key}"),
    ] {
        assert_eq!(lines(&read_here(text).unwrap()), [target], "{text}");
    }
}

#[test]
fn sample_file_of_siege_is_parsed() {
    let sample = "# URLS file for siege\n#\nHOST=www.joedog.org\nPROT=https  # Secure protocol\nPORT=443    # Default\n\n\
        $(PROT)://$(HOST):$(PORT)/siege/jsoner.php?haha=papa\n$(PROT)://$(HOST)/siege/jsoner.php?day=%2332\n\
        $(PROT)://$(HOST)/siege/jsoner.php POST {haha:papa}\n\
        $(PROT)://$(HOST)/siege/jsoner.php?amount=\\$10.00&cost=\\$12.99\n";
    assert_eq!(
        lines(&read_here(sample).unwrap()),
        [
            "GET https://www.joedog.org:443/siege/jsoner.php?haha=papa",
            "GET https://www.joedog.org/siege/jsoner.php?day=%2332",
            &format!("POST https://www.joedog.org/siege/jsoner.php {FORM} {{haha:papa}}"),
            "GET https://www.joedog.org/siege/jsoner.php?amount=$10.00&cost=$12.99",
        ]
    );
}

#[test]
fn body_file_has_the_type_of_its_extension() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["form", "a.json", "a.TXT", "a.png"] {
        fs::write(folder.path().join(name), " {}\n").unwrap();
    }
    let text = "D=a\nhttp://h/ POST <form\nh PUT < a.json\nh POST <./$(D).TXT\nh POST<a.png\nh POST -T text/x <a.json\n";
    fs::write(folder.path().join("urls.txt"), text).unwrap();
    let targets = open(&folder.path().join("urls.txt")).unwrap();
    let found: Vec<_> = targets
        .iter()
        .map(|target| (target.headers[CONTENT_TYPE].to_str().unwrap(), &target.body[..]))
        .collect();
    assert_eq!(
        found,
        [
            (FORM, &b"{}"[..]),
            ("application/json", b" {}\n"),
            ("text/plain", b"{}"),
            ("image/png", b" {}\n"),
            ("text/x", b" {}\n"),
        ]
    );
    assert_eq!(targets[1].body.as_ptr(), targets[4].body.as_ptr());
}

#[test]
fn error_has_its_line() {
    let grows = format!("A={}\n{}http://$(A)/", "a".repeat(1_000), "A=$(A)$(A)$(A)\n".repeat(100));
    for (text, message) in [
        ("", "urls.txt: there is no target in it: write one URL per line"),
        ("# http://a/\nA=b\n", "urls.txt: there is no target in it: write one URL per line"),
        (
            "ftp://a/",
            "urls.txt:1: `ftp://a/` is neither http nor https: write `http://` or `https://` before the host",
        ),
        (
            "\nhttp://$(HOST)/",
            "urls.txt:2: there is no variable `HOST` before this line: write `HOST=value` on one",
        ),
        (
            "HOST=a\nhttp://$(HOTS)/",
            "urls.txt:2: there is no variable `HOTS` before this line: did you mean `HOST`?",
        ),
        ("HOST=a\nhttp://$(HOST/", "urls.txt:2: a variable is not closed: write `)` after its name"),
        ("HOST=a\nhttp://${HOST)/", "urls.txt:2: a variable is not closed: write `}` after its name"),
        (
            "http://a/?x=$1",
            "urls.txt:1: a `$` starts a variable: write `$(NAME)`, or `\\$` for the character",
        ),
        (
            "http://a/ HEAD",
            "urls.txt:1: `HEAD` after a URL is not POST, PUT, PATCH, DELETE or OPTIONS: write one of them, a comment on a line of its own, and a space in a URL as `%20`",
        ),
        (
            "http://a/ # home",
            "urls.txt:1: `#` after a URL is not POST, PUT, PATCH, DELETE or OPTIONS: write one of them, a comment on a line of its own, and a space in a URL as `%20`",
        ),
        (
            "http://a/ POST <none",
            "urls.txt:1: the body `/nowhere/none`: cannot read it: No such file or directory (os error 2)",
        ),
        (
            "http://me:secret@a/",
            "urls.txt:1: the URL has a user name: remove it, and send a header `Authorization: Basic ...`",
        ),
        (
            &grows,
            "urls.txt:5: the line has more than 64 KiB: write a long body into a file, as in `POST <file`",
        ),
    ] {
        assert_eq!(read_here(text).unwrap_err().to_string(), message, "{text:.80}");
    }
}

fn written(targets: &[RequestTemplate]) -> String {
    let line = |target: &RequestTemplate| {
        let body = String::from_utf8(target.body.to_vec()).unwrap().replace('$', "\\$");
        let method = if target.method == Method::GET { "" } else { target.method.as_str() };
        format!("{} {method} {body}\n", target.url.to_string().replace('$', "\\$"))
    };
    targets.iter().map(line).collect()
}

fn targets() -> impl Strategy<Value = Vec<RequestTemplate>> {
    let url = "https?://[a-z]{1,8}(:[1-9][0-9]{0,3})?/[a-zA-Z0-9_.~/$-]{0,12}(\\?[a-z0-9=&{}$]{0,8})?";
    let get = url.prop_map(|url| RequestTemplate::get(url.parse().unwrap()));
    let posted = (url, prop::sample::select(METHODS.to_vec()), "([!-,.-;=-~]([ -~]{0,12}[!-\\[\\]-~])?)?");
    let posted = posted.prop_map(|(url, method, body)| {
        let mut target = RequestTemplate::new(method, url.parse().unwrap());
        target.headers.insert(CONTENT_TYPE, HeaderValue::from_static(FORM));
        target.body = body.replace('\\', "/").into();
        target
    });
    prop::collection::vec(prop_oneof![get, posted], 1..5)
}

proptest! {
    #[test]
    fn generated_files_are_parsed(targets in targets()) {
        prop_assert_eq!(read_here(&written(&targets)), Ok(targets));
    }

    #[test]
    fn arbitrary_text_does_not_panic(
        text in "\\PC{0,80}", lines in "(H=|\\$\\(H\\)|\\$\\{|http://|a/| POST |<|#|[a-z$\\\\(){} ]|-T |\n){0,40}",
    ) {
        let _ = (read_here(&text), read_here(&lines));
    }

    #[test]
    fn mutated_text_does_not_panic(
        targets in targets(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..6),
    ) {
        let mut chars: Vec<char> = written(&targets).chars().collect();
        for (index, char) in &changes {
            let at = index.index(chars.len());
            chars[at] = *char;
        }
        let _ = read_here(&chars.into_iter().collect::<String>());
    }
}
