//! `[[event]]` of every kind of target: events within the load, in the order of time.

use std::time::Duration;

use stockade_cache::spec::TomlError;
use stockade_model::units::format_duration;
use toml::Spanned;

/// A bound: over HTTP each event has a thread.
const EVENTS_MAX: usize = 100;

/// The events of a load that ends after this time. `read` returns the event of a table, `None` if the arm leaves it out, or the reason
/// why it is refused.
pub(super) fn within_load<T, E>(
    tables: &[Spanned<T>],
    ends: Duration,
    at: impl Fn(&T) -> Duration,
    read: impl Fn(&T) -> Result<Option<E>, String>,
) -> Result<Vec<(Duration, E)>, TomlError> {
    let refused = |message: String, table: &Spanned<T>| TomlError::new(message, Some(table.span()));
    if let Some(table) = tables.get(EVENTS_MAX) {
        return Err(refused(format!("a load has at most {EVENTS_MAX} events"), table));
    }
    let mut events = Vec::new();
    for table in tables {
        let at = at(table.get_ref());
        if at >= ends {
            let ends = format_duration(ends);
            return Err(refused(format!("the load is over after {ends}: write an earlier `at`"), table));
        }
        let event = read(table.get_ref()).map_err(|message| refused(message, table))?;
        events.extend(event.map(|event| (at, event)));
    }
    events.sort_by_key(|(at, _)| *at);
    Ok(events)
}
