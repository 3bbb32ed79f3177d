//! Vegeta's targets, valid and invalid.

use std::{fmt::Write, fs};

use bytes::Bytes;
use http::{Method, Uri};
use proptest::prelude::*;

use super::*;

fn read_here(text: &str) -> Result<Vec<RequestTemplate>, TargetFileError> {
    read("targets", text, Path::new("/nowhere"))
}

fn error_of(text: &str) -> String {
    read_here(text).unwrap_err().to_string()
}

/// The method, URL and sent headers of each target.
fn lines(targets: &[RequestTemplate]) -> Vec<String> {
    let line = |target: &RequestTemplate| {
        let headers =
            target.headers.iter().map(|(name, value)| format!(" {name}={}", value.to_str().unwrap()));
        format!("{} {}{}", target.method, target.url, headers.collect::<String>())
    };
    targets.iter().map(line).collect()
}

#[test]
fn text_is_parsed() {
    for (text, targets) in [
        ("GET http://a/", vec!["GET http://a/"]),
        ("\u{feff}# first\r\n\r\nGET  http://a/ \r\n", vec!["GET http://a/"]),
        (
            "GET http://a/\nHEAD http://a/b\n\n\nDELETE http://a",
            vec!["GET http://a/", "HEAD http://a/b", "DELETE http://a/"],
        ),
        (
            "GET http://a/\nX: 1\n# c\nY:2\nx : 3\n\nGET http://b/",
            vec!["GET http://a/ x=1 x=3 y=2", "GET http://b/"],
        ),
        (
            "GET http://a/\nX: a:b\nPOST http://b/\nACCEPT : */*\n",
            vec!["GET http://a/ x=a:b", "POST http://b/ accept=*/*"],
        ),
        ("GET http://a/{key}?x\nX-Empty:\n", vec!["GET http://a/{key}?x x-empty="]),
    ] {
        assert_eq!(lines(&read_here(text).unwrap()), targets, "{text}");
    }
}

#[test]
fn json_is_parsed() {
    for (text, targets) in [
        (r#"{"method":"GET","url":"http://a"}"#, vec!["GET http://a/"]),
        (
            "\n {\"url\":\"http://a/\",\"method\":\"PUT\",\"header\":{\"B\":[\"1\",\"2\"],\"A\":[\"3\"]},\"body\":null}\r\n\n{\"method\":\"GET\",\"url\":\"http://b/\",\"header\":null}",
            vec!["PUT http://a/ b=1 b=2 a=3", "GET http://b/"],
        ),
    ] {
        assert_eq!(lines(&read_here(text).unwrap()), targets, "{text}");
    }
    let targets = read_here(r#"{"method":"POST","url":"http://a/","body":"Rk9P"}"#).unwrap();
    assert_eq!(targets[0].body, "FOO");
}

#[test]
fn body_file_is_read_once_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("body"), b"\xff\n").unwrap();
    let absolute = folder.path().join("body").display().to_string();
    fs::write(
        folder.path().join("targets"),
        format!("POST http://a/\nX: 1\n@body\nPUT http://a/\n@ body\n\nPUT http://b/\n@{absolute}\n"),
    )
    .unwrap();
    let targets = open(&folder.path().join("targets")).unwrap();
    assert_eq!(lines(&targets), ["POST http://a/ x=1", "PUT http://a/", "PUT http://b/"]);
    assert!(targets.iter().all(|target| target.body == b"\xff\n"[..]));
    assert_eq!(targets[0].body.as_ptr(), targets[1].body.as_ptr());
}

#[test]
fn text_error_has_its_line() {
    let long = format!("GET http://a/\nX: {}", "a".repeat(70_000));
    let many = format!("GET http://a/\n{}", format!("X: {}\n", "a".repeat(60_000)).repeat(2));
    for (text, message) in [
        ("", "targets: there is no target in it: write one such as `GET http://localhost:8080/`"),
        (
            "# GET http://a/\n",
            "targets: there is no target in it: write one such as `GET http://localhost:8080/`",
        ),
        ("http://a/", "targets:1: the URL has no method before it: write `GET` and a space"),
        (
            "\nGET",
            "targets:2: a target starts with its method and its URL: write `GET http://localhost:8080/`",
        ),
        ("GET a/b", "targets:1: `a/b` has no scheme: write `http://a/b`"),
        ("get http://a/", "targets:1: `get` is not a method: write `GET`"),
        ("G-T http://a/", "targets:1: `G-T` is not a method: write one such as `GET`"),
        (
            "GET http://a/ HTTP/1.1",
            "targets:1: `http://a/ HTTP/1.1` is not a URL: there is a space in it, write `%20`",
        ),
        (
            "GET http://a/\n\nAuthorization: secret",
            "targets:3: a header without a target: write a method and a URL on the line before",
        ),
        ("GET http://a/\nsecret", "targets:2: a header has a colon: write `Accept: */*`"),
        (
            "GET http://a/\nse cret: 1",
            "targets:2: a header's name is letters, digits and hyphens: write `Accept: */*`",
        ),
        (
            "GET http://a/\nKey: sec\u{1}ret",
            "targets:2: the value of `key` has a character that is not allowed in headers: remove it",
        ),
        (
            "GET http://a/\n@none",
            "targets:2: the body `/nowhere/none`: cannot read it: No such file or directory (os error 2)",
        ),
        ("GET http://a/\n@/", "targets:2: the body `/`: it is not a regular file: name one"),
        ("GET http://a/\n@/dev/null", "targets:2: the body `/dev/null`: it is not a regular file: name one"),
        (&long, "targets:2: the line has more than 64 KiB: write a long body into a file"),
        (&many, "targets:3: the headers have more than 64 KiB: send fewer"),
    ] {
        assert_eq!(error_of(text), message, "{text:.80}");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("body"), "").unwrap();
    let error = read("targets", "GET http://a/\n@body\nX: 1", folder.path()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "targets:3: the body ends a target: write headers before it, and a blank line after it"
    );
}

#[test]
fn json_error_has_its_line() {
    let sample = "write one object per line, such as {\"method\":\"GET\",\"url\":\"http://localhost/\"}";
    for (text, message) in [
        ("{}", "targets:1: there is no `method`: write \"method\":\"GET\""),
        ("\n{\"method\":\"GET\"}", "targets:2: there is no `url`: write \"url\":\"http://localhost:8080/\""),
        (r#"{"method":"get","url":"http://a/"}"#, "targets:1: `get` is not a method: write `GET`"),
        (r#"{"method":"","url":"http://a/"}"#, "targets:1: `` is not a method: write one such as `GET`"),
        (r#"{"method":"GET","url":"a"}"#, "targets:1: `a` has no scheme: write `http://a`"),
        (
            r#"{"method":"GET","url":"http://a/","body":"FOO!"}"#,
            "targets:1: `body` is not base64 (Invalid symbol 33, offset 3.): write \"Rk9P\" for FOO",
        ),
        (
            r#"{"headers":{}}"#,
            &format!(
                "targets:1: column 10: unknown field `headers`, expected one of `method`, `url`, `body`, `header`; {sample}"
            ),
        ),
        (
            "{\"a\u{7f}\":1}",
            &format!(
                "targets:1: column 5: unknown field `a\u{fffd}`, expected one of `method`, `url`, `body`, `header`; {sample}"
            ),
        ),
        ("{\n", &format!("targets:1: column 1: EOF while parsing an object; {sample}")),
        (
            r#"{"header":{"A":["x"],"Authorization":"secret"}}"#,
            &format!(
                "targets:1: column 46: the values of header `Authorization` are not a list of strings; {sample}"
            ),
        ),
    ] {
        assert_eq!(error_of(text), message, "{text}");
    }
}

#[test]
fn missing_or_binary_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("targets");
    fs::write(&path, b"GET http://a/\nGET http://a/\xff").unwrap();
    let open_error = |path: &Path| open(path).unwrap_err().to_string();
    let name = path.display();
    assert_eq!(
        open_error(&path),
        format!("{name}:2: it is not UTF-8: write other bytes of a URL as `%` and two hex digits")
    );
    assert_eq!(
        open_error(folder.path()),
        format!("{}: it is not a regular file: name one", folder.path().display())
    );
    fs::File::create(&path).unwrap().set_len(super::super::FILE_BYTES_MAX + 1).unwrap();
    assert_eq!(
        open_error(&path),
        format!("{name}: it has more than 256 MiB: write bodies into files of their own")
    );
}

/// Random valid targets.
fn targets() -> impl Strategy<Value = Vec<RequestTemplate>> {
    let header = ("[a-z][a-z0-9-]{0,8}", "([!-~]([ -~]{0,12}[!-~])?)?");
    let target = (
        prop::sample::select(vec![Method::GET, Method::POST, Method::PUT, Method::HEAD]),
        "https?://[a-z]{1,8}(:[1-9][0-9]{0,3})?/[a-zA-Z0-9_.~/-]{0,12}(\\?[a-z0-9=&{}]{0,8})?",
        prop::collection::vec(header, 0..5),
        prop::collection::vec(any::<u8>(), 0..40),
    );
    let target = target.prop_map(|(method, url, headers, body)| {
        let mut target = RequestTemplate::new(method, url.parse::<Uri>().unwrap());
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            target.headers.append(name, HeaderValue::from_str(&value).unwrap());
        }
        target.body = Bytes::from(body);
        target
    });
    prop::collection::vec(target, 1..5)
}

fn as_text(targets: &[RequestTemplate], folder: &Path) -> String {
    let mut text = String::new();
    for (n, target) in targets.iter().enumerate() {
        writeln!(text, "{} {}", target.method, target.url).unwrap();
        for (name, value) in &target.headers {
            writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
        }
        if !target.body.is_empty() {
            fs::write(folder.join(n.to_string()), &target.body).unwrap();
            writeln!(text, "@{n}").unwrap();
        }
        text += "\n";
    }
    text
}

fn as_json(targets: &[RequestTemplate]) -> String {
    let line = |target: &RequestTemplate| {
        let headers: Vec<_> = target
            .headers
            .keys()
            .map(|name| {
                let values = target.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
                format!("\"{name}\":{}", serde_json::to_string(&values.collect::<Vec<_>>()).unwrap())
            })
            .collect();
        format!(
            "{{\"method\":\"{}\",\"url\":{},\"body\":\"{}\",\"header\":{{{}}}}}\n",
            target.method,
            serde_json::to_string(&target.url.to_string()).unwrap(),
            BASE64_STANDARD.encode(&target.body),
            headers.join(",")
        )
    };
    targets.iter().map(line).collect()
}

proptest! {
    #[test]
    fn generated_files_are_parsed(targets in targets()) {
        let folder = tempfile::tempdir().unwrap();
        prop_assert_eq!(read("text", &as_text(&targets, folder.path()), folder.path()), Ok(targets.clone()));
        prop_assert_eq!(read_here(&as_json(&targets)), Ok(targets));
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,80}", lines in "(GET |http://a/|[A-Z]{1,3}|[a-z:@{}\" ]|\n|#|/){0,40}") {
        let _ = (read_here(&text), read_here(&lines));
    }

    #[test]
    fn mutated_text_does_not_panic(
        targets in targets(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..6),
    ) {
        // Without bodies, which are files.
        let targets: Vec<_> = targets.into_iter().map(|target| RequestTemplate { body: Bytes::new(), ..target }).collect();
        for text in [as_text(&targets, Path::new("/nowhere")), as_json(&targets)] {
            let mut chars: Vec<char> = text.chars().collect();
            for (index, char) in &changes {
                let at = index.index(chars.len());
                chars[at] = *char;
            }
            let _ = read_here(&chars.into_iter().collect::<String>());
        }
    }
}
