//! Stages, as those who ask see them.

use stockade_origin::{Options, Origin};

use crate::support::{add, get, options, page, serving};

#[test]
fn held_stages_begin_when_they_are_started() {
    // The second stage begins in the first nanosecond.
    let recipe = r#"{"body": "b", "stages": [{"at": 0, "status": 404}, {"at": "1ns", "status": 503}]}"#;
    let origin = Origin::start(&Options { is_held: true, ..options(recipe) }).unwrap();
    let at = origin.address;
    assert_eq!([get(at, "/").status, get(at, "/").status], [404, 404]);
    // One that is added waits, too.
    add(at, &recipe.replace("\"body\"", "\"route\": \"/more\", \"body\""));
    assert_eq!(get(at, "/more").status, 404);
    assert_eq!(page(at, "start"), "ok!");
    assert_eq!([get(at, "/").status, get(at, "/more").status], [503, 503]);
    // As it was started: held, and without what was added.
    page(at, "restart");
    assert_eq!([get(at, "/").status, get(at, "/more").status], [404, 404]);
    assert_eq!(page(at, "routes"), "/*");
}

#[test]
fn a_recipe_that_was_replaced_does_nothing_any_more() {
    let origin = serving(r#"{"body": "old", "stages": [{"at": 0}, {"at": "200ms", "status": 500}]}"#);
    let at = origin.address;
    let began = std::time::Instant::now();
    assert_eq!(add(at, r#"{"body": "new", "stages": [{"at": 0}]}"#).status, 201);
    while began.elapsed() < std::time::Duration::from_millis(400) {
        assert_eq!(get(at, "/").text(), "new");
    }
}

#[test]
fn before_the_first_stage_there_is_no_recipe() {
    let origin = serving(r#"{"route": "/x", "body": "b", "stages": [{"at": "1h"}]}"#);
    let reply = get(origin.address, "/x");
    assert_eq!(reply.status, 406);
    assert_eq!(
        reply.text(),
        "Recipe not set at /x, please POST a recipe for this route to /_admin/add_recipe"
    );
}
