//! What is served: sizes, templates, other origins, versions.

use std::io::Read;

use flate2::read::GzDecoder;
use stockade_origin::{Options, Origin};

use crate::support::{Reply, add, ask, get, page, serving};

fn unpacked(reply: &Reply) -> String {
    assert_eq!(reply.header("content-encoding"), "gzip");
    let mut text = String::new();
    GzDecoder::new(&reply.body[..]).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn random_content_is_text_of_the_size_that_was_asked_for() {
    for (size, bytes) in [("1b", 1), ("7b", 7), ("50kb", 50 << 10), ("428kb", 428 << 10), ("1mb", 1 << 20)] {
        let recipe = format!(r#"{{"random_content": "{size}", "stages": [{{"at": 0}}]}}"#);
        let origin = serving(&recipe);
        let (reply, again) = (get(origin.address, "/"), get(origin.address, "/"));
        assert_eq!(reply.body.len(), bytes);
        assert!(reply.text().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)));
        assert_eq!(reply.body, again.body, "it is made once");
    }
}

#[test]
fn a_size_is_named_before_gzip_which_saves_a_quarter_of_it() {
    for kib in [10, 200] {
        let recipe = format!(
            r#"{{"random_content": "{kib}kb", "stages": [{{"at": 0}}], "headers": {{"content-encoding": "gzip"}}}}"#
        );
        let origin = serving(&recipe);
        let reply = get(origin.address, "/");
        assert_eq!(unpacked(&reply).len(), kib << 10);
        let share = reply.body.len() as f64 / (kib << 10) as f64;
        assert!((0.75..0.78).contains(&share), "base64 has six bits in a byte: {share}");
    }
}

#[test]
fn holes_of_a_template_are_filled() {
    let body = r#"{\"data\":\"<<256kb>>\", \"metadata\":\"<<128b>>and<<16b>>\", \"collection\":[\"<<128kb>>\", \"<<256kb>>\"]}"#;
    let recipe = |route, headers| {
        format!(r#"{{"route": "{route}", "body": "{body}", "stages": [{{"at": 0}}], "headers": {headers}}}"#)
    };
    let gzip = r#"{"content-encoding": "gzip", "content-type": "application/json; charset=utf-8"}"#;
    let origin = serving(&format!("[{}, {}]", recipe("/plain", "{}"), recipe("/gzip", gzip)));
    let plain = get(origin.address, "/plain");
    assert_eq!(plain.header("content-type"), "application/json; charset=utf-8");
    for text in [plain.text().to_owned(), unpacked(&get(origin.address, "/gzip"))] {
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["data"].as_str().unwrap().len(), 256 << 10);
        assert_eq!(json["metadata"].as_str().unwrap().len(), 128 + 3 + 16);
        assert_eq!(json["collection"][0].as_str().unwrap().len(), 128 << 10);
        assert_ne!(json["data"], json["collection"][1], "each of its own");
    }
}

#[test]
fn what_another_origin_serves_is_fetched_once() {
    let far = serving(
        r#"[{"route": "/plain", "body": "from afar", "stages": [{"at": 0}]},
            {"route": "/gzip", "body": "from afar", "stages": [{"at": 0}], "headers": {"content-encoding": "gzip"}}]"#,
    );
    let origin = Origin::start(&Options::default()).unwrap();
    let recipe = |route: &str, headers: &str, path: &str| {
        let uri = format!("http://{}{path}", far.address);
        format!(r#"{{"route": "{route}", "origin": "{uri}", "stages": [{{"at": 0}}], "headers": {headers}}}"#)
    };
    let gzip = r#"{"content-encoding": "gzip"}"#;
    let recipes = [recipe("/a", "{}", "/plain"), recipe("/b", gzip, "/gzip"), recipe("/c", gzip, "/plain")];
    let reply = add(origin.address, &format!("[{}]", recipes.join(",")));
    assert_eq!(reply.status, 201, "{}", reply.text());
    for _ in 0..3 {
        assert_eq!(get(origin.address, "/a").text(), "from afar");
        assert_eq!(unpacked(&get(origin.address, "/b")), "from afar");
        assert_eq!(unpacked(&get(origin.address, "/c")), "from afar", "packed here, as it came plain");
    }
    let count: serde_json::Value = serde_json::from_str(&page(far.address, "current_count")).unwrap();
    assert_eq!(count["routes"], serde_json::json!({"/plain": {"200": 2}, "/gzip": {"200": 1}}));
    // Packed, unasked: nobody could tell what it is.
    let unasked = add(origin.address, &recipe("/d", "{}", "/gzip"));
    assert_eq!(unasked.status, 502);
    assert!(unasked.text().contains("it answers in gzip, unasked"), "{}", unasked.text());
}

#[test]
fn a_version_is_told_with_its_time_and_has_a_tag_of_its_own() {
    let recipe = r#"{"body": "version <<version>>", "stages": [{"at": 0}], "etag": true, "last_modified": true,
                     "version_every": "1h"}"#;
    let origin = serving(recipe);
    let reply = get(origin.address, "/");
    assert_eq!((reply.text(), reply.header("stockade-version")), ("version 1", "1"));
    let time: f64 = reply.header("stockade-time").parse().unwrap();
    assert!(time > 1_700_000_000.0, "{time}");
    let tag = reply.header("etag");
    let asked = |condition: &str| ask(origin.address, "GET", "/", &format!("{condition}\r\n"), "").unwrap();
    let unchanged = asked(&format!("If-None-Match: {tag}"));
    assert_eq!(
        (unchanged.status, unchanged.header("etag"), unchanged.header("stockade-version")),
        (304, tag, "1")
    );
    assert_eq!(asked(&format!("If-Modified-Since: {}", reply.header("last-modified"))).status, 304);
    // The same content in a later version is another.
    let other = serving(&recipe.replace("1h", "1ms"));
    let reply = get(other.address, "/");
    let mut later = get(other.address, "/");
    while later.header("etag") == reply.header("etag") {
        later = get(other.address, "/");
    }
    assert_ne!(reply.header("stockade-version"), later.header("stockade-version"));
    assert_eq!(later.text(), format!("version {}", later.header("stockade-version")));
}
