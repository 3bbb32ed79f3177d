//! Replays a kept corpus, in the ordinary tests of the crate that owns the property.

use std::{fs, path::Path};

/// Checks the property on every file of `fuzz/corpus/TARGET`.
pub(crate) fn replay(target: &str, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files: Vec<_> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("an entry")).collect();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let input = fs::read(file.path()).expect("readable");
        let result = std::panic::catch_unwind(|| property(&input));
        assert!(result.is_ok(), "{}: the property does not hold", file.path().display());
    }
}
