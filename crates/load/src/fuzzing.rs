//! Properties of the parsers that hold for every input. The targets in `fuzz/` call them with random inputs, the tests
//! with the kept corpora.

mod access_log;
mod plan;
mod targets;

pub use self::{access_log::check as access_log, plan::check as plan, targets::check as targets};
pub use crate::client::fuzzing::{check as response_reader, response};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn corpora_have_their_properties() {
        replay("access_log", super::access_log);
        replay("plan", super::plan);
        replay("response_reader", super::response_reader);
        replay("targets", super::targets);
    }
}
