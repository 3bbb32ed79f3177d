//! Properties of the parsers that hold for every input. The targets in `fuzz/` call them with random inputs, the tests
//! with the kept corpora.

pub use crate::frontend::fuzzing::{check as framing, proxied::check as proxy_protocol};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn corpora_have_their_properties() {
        replay("framing", super::framing);
        replay("proxy_protocol", super::proxy_protocol);
    }
}
