#![no_main]

use std::path::Path;

#[path = "../../crates/origin/tests/suite/recipes/property.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let folder = Path::new("/nonexistent");
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(recipes) = property::check(text, folder) {
        property::check_round_trip(&recipes, folder);
    }
});
