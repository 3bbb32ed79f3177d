//! Stages over time.

use stockade_origin::{Origin, OriginOptions};

use crate::http::support::{add_recipes, get, options, page, start};

#[test]
fn held_stages_begin_when_they_are_started() {
    // The second stage begins after a nanosecond.
    let recipe = r#"{"body": "b", "stages": [{"at": 0, "status": 404}, {"at": "1ns", "status": 503}]}"#;
    let origin = Origin::start(&OriginOptions { is_clock_held: true, ..options(recipe) }).unwrap();
    let address = origin.address;
    assert_eq!([get(address, "/").status, get(address, "/").status], [404, 404]);
    // The clock of an added route is held, too.
    add_recipes(address, &recipe.replace("\"body\"", "\"route\": \"/more\", \"body\""));
    assert_eq!(get(address, "/more").status, 404);
    assert_eq!(page(address, "start"), "ok!");
    assert_eq!([get(address, "/").status, get(address, "/more").status], [503, 503]);
    // A restart holds the clocks again, and removes the added route.
    page(address, "restart");
    assert_eq!([get(address, "/").status, get(address, "/more").status], [404, 404]);
    assert_eq!(page(address, "routes"), "/*");
}

#[test]
fn replaced_recipe_has_no_effect() {
    let stages = r#""stages": [{"at": 0}, {"at": "200ms", "status": 500}]"#;
    // Both clocks start at the same time, so `/witness` shows when the replaced stage would have begun.
    let old = format!(r#"{{"body": "old", {stages}}}"#);
    let origin = start(&format!(r#"[{old}, {{"route": "/witness", "body": "w", {stages}}}]"#));
    let address = origin.address;
    assert_eq!(add_recipes(address, r#"{"body": "new", "stages": [{"at": 0}]}"#).status, 201);
    while get(address, "/witness").status != 500 {
        assert_eq!(get(address, "/").text(), "new");
    }
    assert_eq!(get(address, "/").text(), "new");
}

#[test]
fn route_answers_406_before_its_first_stage() {
    let origin = start(r#"{"route": "/x", "body": "b", "stages": [{"at": "1h"}]}"#);
    let reply = get(origin.address, "/x");
    assert_eq!(reply.status, 406);
    assert_eq!(
        reply.text(),
        "Recipe not set at /x, please POST a recipe for this route to /_admin/add_recipe"
    );
}
