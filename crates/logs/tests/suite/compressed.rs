//! Gzip and zstd.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::{read, try_read};

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A frame of raw blocks (RFC 8878, 3.1.1): a window of 128 KiB, no checksum.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3];
    let mut blocks = bytes.chunks(100_000).peekable();
    if blocks.peek().is_none() {
        frame.extend([1, 0, 0]);
    }
    while let Some(block) = blocks.next() {
        let is_last = u32::from(blocks.peek().is_none());
        let header = u32::try_from(block.len()).unwrap() << 3 | is_last;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}

/// `zstd -19` of `key-1` to `key-50`, a line each.
const COMPRESSED: &[u8] = include_bytes!("keys.zst");

#[test]
fn compressed_logs_are_read_as_plain_ones() {
    let keys: String = (0..100_000).flat_map(|n| [format!("key-{n}"), "\n".to_owned()]).collect();
    let plain = try_read(&keys, Some("keys")).unwrap();
    let (first, second) = keys.as_bytes().split_at(500_001);
    let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    for log in [
        gzip(keys.as_bytes()),
        [gzip(first), gzip(second)].concat(),
        // A tape fills its blocks with zeros.
        [gzip(first), vec![0; 70_000], gzip(second), vec![0; 512]].concat(),
        zstd(keys.as_bytes()),
        [zstd(first), zstd(b""), zstd(second)].concat(),
        [&skipped[..], &zstd(first), &skipped, &zstd(second), &skipped].concat(),
    ] {
        assert!(try_read(&log, Some("keys")).unwrap() == plain);
    }
    assert_eq!(read(COMPRESSED, "keys").len(), 50);
    assert_eq!(read(COMPRESSED, "keys")[49], "read key-50");
    assert_eq!(try_read(COMPRESSED, None).unwrap().1.format.to_string(), "keys");
}

#[test]
fn damage_is_reported_with_its_line() {
    let error = |bytes: &[u8]| try_read(bytes, Some("keys")).unwrap_err().to_string();
    let keys = "key\n".repeat(3);
    let packed = gzip(keys.as_bytes());
    let end =
        "cannot read on from here (unexpected end of file): the gzip is damaged, check it with `gzip -t`";
    assert_eq!(error(&packed[..packed.len() - 1]), format!("log:4: {end}"));
    // Other bytes than zeros after a member.
    assert!(error(&[&packed[..], b"\0x"].concat()).starts_with("log:4: cannot read on from here ("));
    let packed = zstd(keys.as_bytes());
    for cut in [packed.len() - 1, 7, 5] {
        let message = error(&packed[..cut]);
        assert!(message.starts_with("log:1: cannot read on from here ("), "{message}");
        assert!(message.ends_with("): the zstd file is damaged, check it with `zstd -t`"), "{message}");
    }
    // A window of 2 GiB is not allocated.
    let message = error(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 1, 0, 0]);
    assert!(message.contains("indow"), "{message}");
    // Other bytes after the last frame.
    let message = error(&[&packed[..], b"x"].concat());
    assert!(message.starts_with("log:4: cannot read on from here ("), "{message}");
}
