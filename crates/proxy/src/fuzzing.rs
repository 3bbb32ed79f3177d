//! Properties of the parsers that hold for every input. The targets in `fuzz/` call them with random inputs, the tests
//! with the kept corpora.

pub use crate::{
    admin::fuzzing::check as purge,
    config::fuzzing::{check as config, patterns},
    policy::fuzzing::{
        date::check as date, directives::check as directives, field::check as field,
        forwarded::check as forwarded, key::check as url_key, range::check as range, vary::check as vary,
    },
    serve::fuzzing::check as entry,
};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn corpora_have_their_properties() {
        replay("config", super::config);
        replay("date", super::date);
        replay("directives", super::directives);
        replay("entry", super::entry);
        replay("field", super::field);
        replay("forwarded", super::forwarded);
        replay("patterns", super::patterns);
        replay("purge", super::purge);
        replay("range", super::range);
        replay("url_key", super::url_key);
        replay("vary", super::vary);
    }
}
