//! Pages that say what they are: each has its path, its load, its owner and its variant in its first line, and a checksum of all bytes. Pure.

use std::fmt::Write as _;

use bytes::Bytes;

/// Before the checksum.
const MAGIC: &str = "stockade-audit ";
/// Eight hexadecimal digits and a space.
const CHECKSUM_BYTES: usize = 9;
const LINE_BYTES: usize = 64;

/// The first line of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Path and query of the request that reached the origin.
    pub(crate) path: String,
    /// The number of the load within its case, from 0.
    pub(crate) load: usize,
    /// The user whose page it is; empty: the page of all users.
    pub(crate) owner: String,
    /// Empty: the only one.
    pub(crate) variant: String,
    /// Of the whole page. At least those of its first line.
    pub(crate) bytes: usize,
}

/// A body that is not a whole page of the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("it is not a page of the audit")]
    NotStamped,
    #[error("{got} of its {bytes} bytes arrived, as a whole response")]
    Truncated { got: usize, bytes: usize },
    #[error("its bytes are not those that the origin sent")]
    Corrupt,
}

impl Stamp {
    /// The page: its first line and lines that differ from those of any other page.
    pub(crate) fn body(&self) -> Bytes {
        let Self { path, load, owner, variant, bytes } = self;
        let mut rest =
            format!("bytes={bytes:010} load={load} owner={owner} variant={variant} path={path} \n");
        let filler = crc32fast::hash(rest.as_bytes());
        let target = bytes.saturating_sub(MAGIC.len() + CHECKSUM_BYTES);
        rest.reserve(target.saturating_sub(rest.len()) + LINE_BYTES);
        let mut line = 0_u64;
        while rest.len() < target {
            let _ = writeln!(rest, "{line:>12} of load {load}, {filler:08x}, 0123456789abcdef");
            line += 1;
        }
        if rest.len() > target && line > 0 {
            rest.truncate(target);
        }
        let checksum = crc32fast::hash(rest.as_bytes());
        Bytes::from(format!("{MAGIC}{checksum:08x} {rest}"))
    }

    /// The stamp of a whole page.
    pub(crate) fn of(body: &[u8]) -> Result<Self, BodyFault> {
        let rest = body.strip_prefix(MAGIC.as_bytes()).ok_or(BodyFault::NotStamped)?;
        let (checksum, rest) = rest.split_at_checked(CHECKSUM_BYTES).ok_or(BodyFault::NotStamped)?;
        let stamp = Self::of_line(rest).ok_or(BodyFault::Corrupt)?;
        // A page that is shorter than its first line has no more than that line.
        if body.len() < stamp.bytes {
            return Err(BodyFault::Truncated { got: body.len(), bytes: stamp.bytes });
        }
        let expected = format!("{:08x} ", crc32fast::hash(rest));
        if expected.as_bytes() == checksum { Ok(stamp) } else { Err(BodyFault::Corrupt) }
    }

    fn of_line(rest: &[u8]) -> Option<Self> {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = std::str::from_utf8(&rest[..end]).ok()?;
        let value = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Some(Self {
            path: value("path")?.to_owned(),
            load: value("load")?.parse().ok()?,
            owner: value("owner")?.to_owned(),
            variant: value("variant")?.to_owned(),
            bytes: value("bytes")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(bytes: usize) -> Stamp {
        let [path, owner, variant] = ["/a/page?b=1", "alice", "de"].map(str::to_owned);
        Stamp { path, load: 7, owner, variant, bytes }
    }

    #[test]
    fn page_says_what_it_is() {
        for bytes in [200, 4_096, 100_000] {
            let body = stamp(bytes).body();
            assert_eq!(body.len(), bytes);
            assert_eq!(Stamp::of(&body), Ok(stamp(bytes)));
        }
        assert_eq!(Stamp::of(&stamp(1).body()), Ok(stamp(1)), "its first line at least");
    }

    #[test]
    fn faults_of_bodies_are_seen() {
        let body = stamp(4_096).body();
        assert_eq!(Stamp::of(&body[..1_000]), Err(BodyFault::Truncated { got: 1_000, bytes: 4_096 }));
        assert_eq!(Stamp::of(b"hello"), Err(BodyFault::NotStamped));
        for at in [16, 60, 150, 4_095] {
            let mut changed = body.to_vec();
            changed[at] ^= 1;
            assert!(Stamp::of(&changed).is_err(), "{at}");
        }
        let mut longer = body.to_vec();
        longer.push(b'x');
        assert_eq!(Stamp::of(&longer), Err(BodyFault::Corrupt));
        let mut mixed = body[..2_000].to_vec();
        mixed.extend_from_slice(&Stamp { load: 8, ..stamp(4_096) }.body()[2_000..]);
        assert_eq!(Stamp::of(&mixed), Err(BodyFault::Corrupt));
    }
}
