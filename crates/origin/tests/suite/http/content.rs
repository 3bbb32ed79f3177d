//! Contents: sizes, templates, other origins, versions.

use std::io::Read;

use flate2::read::GzDecoder;
use stockade_origin::{Origin, OriginOptions};

use crate::http::support::{Reply, add_recipes, current_count, get, request, start};

fn decompress(reply: &Reply) -> String {
    assert_eq!(reply.header("content-encoding"), "gzip");
    let mut text = String::new();
    GzDecoder::new(&reply.body[..]).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn random_content_has_the_size_of_the_recipe() {
    for (size, bytes) in [("1b", 1), ("7b", 7), ("50kb", 50 << 10), ("428kb", 428 << 10), ("1mb", 1 << 20)] {
        let recipe = format!(r#"{{"random_content": "{size}", "stages": [{{"at": 0}}]}}"#);
        let origin = start(&recipe);
        let (reply, again) = (get(origin.address, "/"), get(origin.address, "/"));
        assert_eq!(reply.body.len(), bytes);
        assert!(reply.text().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)));
        assert_eq!(reply.body, again.body, "the content is made once");
    }
}

#[test]
fn size_is_that_before_gzip_which_saves_a_quarter() {
    for kib in [10, 200] {
        let recipe = format!(
            r#"{{"random_content": "{kib}kb", "stages": [{{"at": 0}}], "headers": {{"content-encoding": "gzip"}}}}"#
        );
        let origin = start(&recipe);
        let reply = get(origin.address, "/");
        assert_eq!(decompress(&reply).len(), kib << 10);
        let share = reply.body.len() as f64 / (kib << 10) as f64;
        assert!((0.75..0.78).contains(&share), "base64 carries six bits per byte: {share}");
    }
}

#[test]
fn placeholders_of_a_template_are_filled() {
    let body = r#"{\"data\":\"<<256kb>>\", \"metadata\":\"<<128b>>and<<16b>>\", \"collection\":[\"<<128kb>>\", \"<<256kb>>\"]}"#;
    let recipe = |route, headers| {
        format!(r#"{{"route": "{route}", "body": "{body}", "stages": [{{"at": 0}}], "headers": {headers}}}"#)
    };
    let gzip = r#"{"content-encoding": "gzip", "content-type": "application/json; charset=utf-8"}"#;
    let origin = start(&format!("[{}, {}]", recipe("/plain", "{}"), recipe("/gzip", gzip)));
    let plain = get(origin.address, "/plain");
    assert_eq!(plain.header("content-type"), "application/json; charset=utf-8");
    for text in [plain.text().to_owned(), decompress(&get(origin.address, "/gzip"))] {
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["data"].as_str().unwrap().len(), 256 << 10);
        assert_eq!(json["metadata"].as_str().unwrap().len(), 128 + 3 + 16);
        assert_eq!(json["collection"][0].as_str().unwrap().len(), 128 << 10);
        assert_ne!(json["data"], json["collection"][1], "each placeholder has its own text");
    }
}

#[test]
fn content_of_another_origin_is_fetched_once() {
    let far = start(
        r#"[{"route": "/plain", "body": "far", "stages": [{"at": 0}]},
            {"route": "/gzip", "body": "far", "stages": [{"at": 0}], "headers": {"content-encoding": "gzip"}}]"#,
    );
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let recipe = |route: &str, headers: &str, path: &str| {
        let uri = format!("http://{}{path}", far.address);
        format!(r#"{{"route": "{route}", "origin": "{uri}", "stages": [{{"at": 0}}], "headers": {headers}}}"#)
    };
    let gzip = r#"{"content-encoding": "gzip"}"#;
    let recipes = [recipe("/a", "{}", "/plain"), recipe("/b", gzip, "/gzip"), recipe("/c", gzip, "/plain")];
    let reply = add_recipes(origin.address, &format!("[{}]", recipes.join(",")));
    assert_eq!(reply.status, 201, "{}", reply.text());
    for _ in 0..3 {
        assert_eq!(get(origin.address, "/a").text(), "far");
        assert_eq!(decompress(&get(origin.address, "/b")), "far");
        assert_eq!(
            decompress(&get(origin.address, "/c")),
            "far",
            "compressed by this origin, since the other sent it plain"
        );
    }
    assert_eq!(
        current_count(far.address)["routes"],
        serde_json::json!({"/plain": {"200": 2}, "/gzip": {"200": 1}})
    );
    // Without the header in the recipe, no client could decode a compressed body.
    let rejected = add_recipes(origin.address, &recipe("/d", "{}", "/gzip"));
    assert_eq!(rejected.status, 502);
    let message = "the server answers in gzip, which the request does not accept";
    assert!(rejected.text().contains(message), "{}", rejected.text());
}

#[test]
fn version_has_its_own_number_time_and_tag() {
    let recipe = r#"{"body": "version <<version>>", "stages": [{"at": 0}], "etag": true, "last_modified": true,
                     "version_every": "1h"}"#;
    let origin = start(recipe);
    let reply = get(origin.address, "/");
    assert_eq!((reply.text(), reply.header("stockade-version")), ("version 1", "1"));
    let time: f64 = reply.header("stockade-time").parse().unwrap();
    assert!(time > 1_700_000_000.0, "{time}");
    let tag = reply.header("etag");
    let get_if =
        |condition: &str| request(origin.address, "GET", "/", &format!("{condition}\r\n"), "").unwrap();
    let unchanged = get_if(&format!("If-None-Match: {tag}"));
    assert_eq!(
        (unchanged.status, unchanged.header("etag"), unchanged.header("stockade-version")),
        (304, tag, "1")
    );
    assert_eq!(get_if(&format!("If-Modified-Since: {}", reply.header("last-modified"))).status, 304);
    // A later version has another tag, even where the text is the same.
    let other = start(&recipe.replace("1h", "1ms"));
    let reply = get(other.address, "/");
    let mut later = get(other.address, "/");
    while later.header("etag") == reply.header("etag") {
        later = get(other.address, "/");
    }
    assert_ne!(reply.header("stockade-version"), later.header("stockade-version"));
    assert_eq!(later.text(), format!("version {}", later.header("stockade-version")));
}

#[test]
fn answers_state_the_fields_of_their_user_and_variant() {
    let recipe = r#"{"body": "x", "stages": [{"at": 0}], "owner": "cookie", "variant": "accept-language"}"#;
    let origin = start(recipe);
    let of = |lines: &str| {
        let reply = request(origin.address, "GET", "/", lines, "").unwrap();
        [reply.header("stockade-owner"), reply.header("stockade-variant")].map(str::to_owned)
    };
    assert_eq!(of(""), ["cookie -", "accept-language -"]);
    let [ann, german] = of("Cookie: id=ann\r\nAccept-Language: de\r\n");
    let [bob, again] = of("Cookie: id=bob\r\nAccept-Language: de\r\n");
    assert_ne!(ann, bob);
    assert_eq!(german, again);
    assert!(ann.starts_with("cookie ") && german.starts_with("accept-language "), "{ann}, {german}");
    assert_eq!(of("Cookie: id=ann\r\nAccept-Language: de\r\n"), [ann, german]);
    assert_eq!(
        get(start(r#"{"body": "x", "stages": [{"at": 0}]}"#).address, "/").header("stockade-owner"),
        ""
    );
}

#[test]
fn answers_state_what_the_origin_sent() {
    let headers = r#""headers": {"cache-control": "max-age=60, stale-while-revalidate=5"}"#;
    let plain = format!(
        r#"{{"route": "/a", "body": "123456789", "etag": true, "stages": [{{"at": 0}}], {headers}}}"#
    );
    let gzip = r#"{"route": "/b", "body": "123456789", "stages": [{"at": 0, "latency": "150ms"}],
                   "headers": {"content-encoding": "gzip"}}"#;
    let missing =
        format!(r#"{{"route": "/c", "body": "x", "stages": [{{"at": 0, "status": 404}}], {headers}}}"#);
    let origin = start(&format!("[{plain}, {gzip}, {missing}]"));
    let reply = get(origin.address, "/a");
    assert_eq!(reply.header("stockade-sent"), "200 9 cbf43926 60 5 0");
    assert_eq!(reply.header("stockade-delay"), "", "at once");
    let of = |line: &str| request(origin.address, "GET", "/a", line, "").unwrap();
    let part = of("Range: bytes=0-3\r\n");
    assert_eq!((part.status, part.header("stockade-sent")), (206, "200 9 cbf43926 60 5 0"));
    let unchanged = of(&format!("If-None-Match: {}\r\n", reply.header("etag")));
    assert_eq!((unchanged.status, unchanged.header("stockade-sent")), (304, ""));
    assert!(!unchanged.header("stockade-time").is_empty());
    let slow = get(origin.address, "/b");
    assert_eq!(slow.header("stockade-sent"), "200 9 cbf43926 - - -");
    assert!(slow.header("stockade-delay").parse::<f64>().unwrap() >= 0.15);
    assert_eq!(get(origin.address, "/c").header("stockade-sent"), "404 - - 60 5 0");
}
