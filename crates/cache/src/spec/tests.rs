//! A table by itself. The crates that read files test its meaning in a file.

use std::time::Duration;

use super::*;
use crate::{Limit, PRESETS, Policy};

fn read(text: &str) -> Result<Strategy, String> {
    let table: CacheTable = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    table.strategy().map_err(|error| error.to_string())
}

#[test]
fn table_is_its_preset_until_overridden() {
    assert_eq!(read(""), Ok(NONE));
    for preset in &PRESETS {
        assert_eq!(read(&format!("strategy = \"{}\"", preset.name)).as_ref(), Ok(&preset.strategy));
    }
    let breaker = Strategy::preset("breaker").expect("a preset");
    let limit = Limit { policy: Policy::LRW, reclaim: 0.3, ..Limit::entries(9) };
    let expected = Strategy { swr: Duration::from_secs(5), limit: Some(limit), ..breaker };
    let text =
        "strategy = \"breaker\"\nswr = \"5s\"\nlimit = { entries = 9, policy = \"lrw\", reclaim = 0.3 }";
    assert_eq!(read(text), Ok(expected));
}

#[test]
fn invalid_settings_are_rejected() {
    for (text, message) in [
        ("ttl = 30", "`30` has no unit: write `30ms` or `30s`"),
        (
            "swr = \"1s\"",
            "without a ttl only an invalidation makes values stale: give one, or write ttl = \"none\"",
        ),
        (
            "limit = { bytes = \"100B\" }",
            "nothing could be stored: an entry alone costs more than `max_object`",
        ),
        ("shared = \"redis:\"", "there is no shared tier here: leave `shared` out"),
        ("writer = { mailbox = { capacity = 0 } }", "a mailbox holds 1 to 16777216 writes"),
        ("load = { max_concurrent = 0 }", "one load at least may be under way"),
    ] {
        assert_eq!(read(text).unwrap_err(), message, "{text}");
    }
}

#[test]
fn misspelt_key_suggests_the_nearest() {
    let error = toml::from_str::<CacheTable>("tll = \"1s\"").expect_err("an error");
    let error = TomlError::from_toml(&error, &[]);
    assert_eq!(error.message, "unknown key `tll`");
    assert_eq!((error.span, error.help.as_deref()), (Some(0..3), Some("did you mean `ttl`?")));
}
