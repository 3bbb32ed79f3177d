//! Serves every recipe of OriginSimulator's README, examples and tests.

use std::{fs, path::Path};

use serde_json::Value;
use stockade_origin::{Origin, OriginOptions};

use crate::http::support::{add_recipes, get, page, start};

#[test]
fn recipes_of_origin_simulator_are_served_unchanged() {
    let far = start(r#"{"body": "far", "stages": [{"at": 0}]}"#);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/recipes");
    let mut served = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_recipe = path.extension().is_some_and(|extension| extension == "json");
        if !is_recipe || name.starts_with("refused-") {
            continue;
        }
        // A local origin stands for those that recipes fetch from. All else is unchanged.
        let text = fs::read_to_string(&path).unwrap().replace("ORIGIN", &far.address.to_string());
        let origin =
            Origin::start(&OriginOptions { is_clock_held: true, ..OriginOptions::default() }).unwrap();
        let reply = add_recipes(origin.address, &text);
        assert_eq!(reply.status, 201, "{name}: {}", reply.text());
        for recipe in reply.json().as_array().unwrap() {
            check_first_response(&origin, recipe, &name);
        }
        served += 1;
    }
    assert!(served >= 50, "only {served} recipes were found");
}

/// Requests the route, unless its first stage has a long latency.
fn check_first_response(origin: &Origin, recipe: &Value, name: &str) {
    let route = recipe["route"].as_str().unwrap();
    let first = recipe["stages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|stage| ["0", "0s", "0ms"].contains(&text(&stage["at"]).as_str()));
    let (status, latency) = first
        .map_or((406, "0".to_owned()), |stage| (stage["status"].as_u64().unwrap(), text(&stage["latency"])));
    let line = page(origin.address, "routes_status");
    let line = line.lines().find(|line| line.starts_with(&format!("{route} "))).unwrap();
    assert!(line.starts_with(&format!("{route} {status} ")), "{name}: {line}");
    if !["0", "0s", "0ms", "50ms", "100ms", "200ms", "100ms..200ms"].contains(&latency.as_str()) {
        return;
    }
    let reply = get(origin.address, route.trim_end_matches('*'));
    assert_eq!(u64::from(reply.status), status, "{name}");
    let is_gzip = recipe["headers"]["content-encoding"] == "gzip";
    if status == 200 {
        assert_eq!(reply.header("content-encoding"), if is_gzip { "gzip" } else { "" }, "{name}");
        assert_eq!(recipe["origin"].is_string() && !is_gzip, reply.body == b"far", "{name}");
        assert!(!reply.body.is_empty(), "{name}");
    }
    for (header, value) in recipe["headers"].as_object().unwrap() {
        let is_sent = status == 200 || header != "content-encoding";
        assert!(!is_sent || reply.header(&header.to_lowercase()) == value, "{name}: {header}: {reply:?}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
