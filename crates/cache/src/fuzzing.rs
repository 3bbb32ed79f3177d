//! Properties of the parsers that hold for every input. The targets in `fuzz/` call them with random inputs, the tests
//! with the kept corpora. Not a part of the API.

pub use crate::tier::redis::fuzzing::check as envelope;

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn corpus_has_its_properties() {
        replay("envelope", super::envelope);
    }
}
