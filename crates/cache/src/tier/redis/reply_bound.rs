//! Bounds of the replies of a server, checked before the driver buffers them.
//!
//! The driver keeps a reply in memory until it is complete, however long the server says it is. [`ReplyScanner`] reads the same bytes
//! first, and only their lengths (RESP2 and RESP3). It is pure; [`BoundedStream`] is the stream around it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a reply besides one value: a batch of the log with 1,000 keys of 16 KiB, names of a scan, the slots of a cluster.
const REPLY_MARGIN_BYTES: u64 = 16 << 20;
/// The longest simple string, error or number.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Digits of a length, with its sign.
const LENGTH_BYTES_MAX: usize = 20;
/// Values of a reply. Each takes memory of its own. A slot map has 16,384 slots at most.
const VALUES_MAX: u64 = 256 << 10;
const DEPTH_MAX: usize = 16;

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RefusedReply {
    #[error("a reply is longer than {max} bytes")]
    TooLong { max: u64 },
    #[error("a line of a reply is longer than {LINE_BYTES_MAX} bytes")]
    LongLine,
    #[error("a reply has more than {VALUES_MAX} values")]
    TooManyValues,
    #[error("the values of a reply are nested more than {DEPTH_MAX} deep")]
    TooDeep,
    #[error("a reply is not in the protocol of Redis")]
    Malformed,
}

/// Follows the replies of one connection.
#[derive(Debug)]
pub(super) struct ReplyScanner {
    bytes_max: u64,
    /// Of the current reply.
    bytes: u64,
    /// Of the current reply, including those that its arrays announce.
    values: u64,
    /// How many values are left of each array around the current value.
    left: Vec<u64>,
    state: ScanState,
}

#[derive(Clone, Copy, Debug)]
enum ScanState {
    /// Before the type of a value.
    Type,
    /// In a line without a length. `after_cr`: the last byte was a CR.
    Line {
        bytes: u64,
        after_cr: bool,
    },
    Length(LengthLine),
    /// In a string, with the line end after it.
    Bytes {
        left: u64,
    },
}

/// The line after the type of a value that has a length.
#[derive(Clone, Copy, Debug)]
struct LengthLine {
    kind: LengthKind,
    digits: [u8; LENGTH_BYTES_MAX],
    count: usize,
    after_cr: bool,
}

#[derive(Clone, Copy, Debug)]
enum LengthKind {
    Bytes,
    /// As bytes, but there is always a value.
    Text,
    Values,
    Pairs,
    /// Pairs, and the value that they are about.
    Attributes,
}

impl ReplyScanner {
    /// For replies with one value of `value_bytes_max`.
    pub(super) fn new(value_bytes_max: u64) -> Self {
        let bytes_max = value_bytes_max.saturating_add(REPLY_MARGIN_BYTES);
        Self { bytes_max, bytes: 0, values: 0, left: Vec::new(), state: ScanState::Type }
    }

    /// Reads what has arrived. After an error nothing of `input` may be passed on.
    pub(super) fn scan(&mut self, mut input: &[u8]) -> Result<(), RefusedReply> {
        while let Some(first) = input.first() {
            let taken = match &mut self.state {
                ScanState::Bytes { left } => {
                    let taken = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    let has_ended = *left == 0;
                    // The whole string was counted with its length.
                    input = &input[taken..];
                    if has_ended {
                        self.end_value();
                    }
                    continue;
                }
                ScanState::Type => {
                    self.state = ScanState::of_type(*first)?;
                    1
                }
                ScanState::Line { bytes, after_cr } => {
                    *bytes += 1;
                    if *bytes > LINE_BYTES_MAX {
                        return Err(RefusedReply::LongLine);
                    }
                    let has_ended = *after_cr && *first == b'\n';
                    *after_cr = *first == b'\r';
                    if has_ended {
                        self.count(1)?;
                        self.end_value();
                        input = &input[1..];
                        continue;
                    }
                    1
                }
                ScanState::Length(line) => {
                    if let Some(length) = line.push(*first)? {
                        let kind = line.kind;
                        self.count(1)?;
                        self.begin(kind, length)?;
                        input = &input[1..];
                        continue;
                    }
                    1
                }
            };
            self.count(taken)?;
            input = &input[1..];
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<(), RefusedReply> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max { Err(RefusedReply::TooLong { max: self.bytes_max }) } else { Ok(()) }
    }

    /// A length has been read; a negative one stands for no value.
    fn begin(&mut self, kind: LengthKind, length: i64) -> Result<(), RefusedReply> {
        let Ok(length) = u64::try_from(length) else {
            // The driver takes any other negative length for a large one.
            if !matches!(kind, LengthKind::Bytes | LengthKind::Values) {
                return Err(RefusedReply::Malformed);
            }
            self.end_value();
            return Ok(());
        };
        let values = match kind {
            LengthKind::Bytes | LengthKind::Text => {
                let left = length.saturating_add(2);
                self.count(left)?;
                self.state = ScanState::Bytes { left };
                return Ok(());
            }
            LengthKind::Values => length,
            LengthKind::Pairs => length.saturating_mul(2),
            LengthKind::Attributes => length.saturating_mul(2).saturating_add(1),
        };
        self.values = self.values.saturating_add(values);
        if self.values > VALUES_MAX {
            return Err(RefusedReply::TooManyValues);
        }
        if values == 0 {
            self.end_value();
            return Ok(());
        }
        if self.left.len() >= DEPTH_MAX {
            return Err(RefusedReply::TooDeep);
        }
        self.left.push(values);
        self.state = ScanState::Type;
        Ok(())
    }

    /// Ends a value, and the arrays that end with it.
    fn end_value(&mut self) {
        self.state = ScanState::Type;
        while let Some(left) = self.left.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.left.pop();
        }
        (self.bytes, self.values) = (0, 0);
    }
}

impl ScanState {
    fn of_type(first: u8) -> Result<Self, RefusedReply> {
        let kind = match first {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {
                return Ok(Self::Line { bytes: 0, after_cr: false });
            }
            b'$' => LengthKind::Bytes,
            b'!' | b'=' => LengthKind::Text,
            b'*' | b'~' | b'>' => LengthKind::Values,
            b'%' => LengthKind::Pairs,
            b'|' => LengthKind::Attributes,
            _ => return Err(RefusedReply::Malformed),
        };
        Ok(Self::Length(LengthLine { kind, digits: [0; LENGTH_BYTES_MAX], count: 0, after_cr: false }))
    }
}

impl LengthLine {
    /// The length, at the end of the line.
    fn push(&mut self, byte: u8) -> Result<Option<i64>, RefusedReply> {
        match byte {
            b'\n' if self.after_cr => {
                let digits = std::str::from_utf8(&self.digits[..self.count]).ok();
                return digits
                    .and_then(|digits| digits.parse().ok())
                    .ok_or(RefusedReply::Malformed)
                    .map(Some);
            }
            b'\r' if !self.after_cr => self.after_cr = true,
            b'0'..=b'9' | b'-' if !self.after_cr && self.count < LENGTH_BYTES_MAX => {
                self.digits[self.count] = byte;
                self.count += 1;
            }
            _ => return Err(RefusedReply::Malformed),
        }
        Ok(None)
    }
}

/// A connection whose replies are bounded: a reply beyond its bounds is an error of the stream.
#[derive(Debug)]
pub(super) struct BoundedStream<S> {
    inner: S,
    replies: ReplyScanner,
}

impl<S> BoundedStream<S> {
    pub(super) fn new(inner: S, value_bytes_max: u64) -> Self {
        Self { inner, replies: ReplyScanner::new(value_bytes_max) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        Poll::Ready(this.replies.scan(&buffer.filled()[before..]).map_err(|refused| {
            buffer.set_filled(before);
            io::Error::new(io::ErrorKind::InvalidData, refused)
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUE_MAX: u64 = 1_000;

    fn scan(input: &[u8]) -> Result<(), RefusedReply> {
        ReplyScanner::new(VALUE_MAX).scan(input)
    }

    #[test]
    fn replies_of_every_kind_end_where_they_end() {
        let replies: [&[u8]; 24] = [
            b"+OK\r\n",
            b"-ERR what\r\n",
            b":-12\r\n",
            b"$5\r\nhe\r\no\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n:1\r\n$1\r\na\r\n",
            b"*2\r\n*2\r\n:1\r\n*0\r\n*1\r\n*1\r\n+a\r\n",
            b"%1\r\n+a\r\n%1\r\n+b\r\n_\r\n",
            b"%0\r\n",
            b"~2\r\n#t\r\n,1.5\r\n",
            b">3\r\n+message\r\n$1\r\na\r\n$2\r\nbc\r\n",
            b"|1\r\n+ttl\r\n:3\r\n*1\r\n:1\r\n",
            b"|0\r\n+a\r\n",
            b"(3492890328409238509324850943850943825024385\r\n",
            b"!21\r\nSYNTAX invalid syntax\r\n",
            b"=8\r\ntxt:some\r\n",
            b"_\r\n",
            b"#f\r\n",
            b",inf\r\n",
            b"+a\rb\nc\r\n",
            b"+\r\r\n",
        ];
        for reply in replies {
            let mut scanner = ReplyScanner::new(VALUE_MAX);
            for byte in reply {
                let shown = String::from_utf8_lossy(reply);
                assert_eq!(scanner.scan(&[*byte]), Ok(()), "{shown:?}");
                let is_between = matches!(scanner.state, ScanState::Type) && scanner.left.is_empty();
                assert_eq!(is_between, scanner.bytes == 0, "{shown:?}");
            }
            assert!(matches!(scanner.state, ScanState::Type) && scanner.left.is_empty(), "{reply:?}");
            // The driver reads the same.
            assert!(::redis::parse_redis_value(reply).is_ok(), "{reply:?}");
        }
        assert_eq!(scan(&replies.concat().repeat(100_000)), Ok(()), "only a single reply is bounded");
    }

    #[test]
    fn replies_beyond_their_bounds_are_refused_with_their_lengths() {
        let too_long = Err(RefusedReply::TooLong { max: VALUE_MAX + REPLY_MARGIN_BYTES });
        let many = format!("*{}\r\n", VALUES_MAX / 2 + 1);
        for (input, expected) in [
            ("$16778203\r\n".to_owned(), Ok(())),
            ("$16778204\r\n".to_owned(), too_long),
            ("$9223372036854775807\r\n".to_owned(), too_long),
            ("!9223372036854775807\r\n".to_owned(), too_long),
            ("=9223372036854775807\r\n".to_owned(), too_long),
            ("*9\r\n$9999999\r\n".to_owned() + &"a".repeat(9_999_999) + "\r\n$9999999\r\n", too_long),
            ("*9223372036854775807\r\n".to_owned(), Err(RefusedReply::TooManyValues)),
            ("~262145\r\n".to_owned(), Err(RefusedReply::TooManyValues)),
            (">262145\r\n".to_owned(), Err(RefusedReply::TooManyValues)),
            ("%131073\r\n".to_owned(), Err(RefusedReply::TooManyValues)),
            ("|9223372036854775807\r\n".to_owned(), Err(RefusedReply::TooManyValues)),
            (many.clone(), Ok(())),
            (many.clone() + &many, Err(RefusedReply::TooManyValues)),
            ("*1\r\n".repeat(DEPTH_MAX), Ok(())),
            ("*1\r\n".repeat(DEPTH_MAX + 1), Err(RefusedReply::TooDeep)),
            ("+".to_owned() + &"a".repeat(64 << 10), Ok(())),
            ("+".to_owned() + &"a".repeat((64 << 10) + 1), Err(RefusedReply::LongLine)),
            ("-".to_owned() + &"\r".repeat((64 << 10) + 1), Err(RefusedReply::LongLine)),
            ("$".to_owned() + &"0".repeat(21), Err(RefusedReply::Malformed)),
            ("$1x".to_owned(), Err(RefusedReply::Malformed)),
            ("$\r\n".to_owned(), Err(RefusedReply::Malformed)),
            ("$?\r\n".to_owned(), Err(RefusedReply::Malformed)),
            ("!-1\r\n".to_owned(), Err(RefusedReply::Malformed)),
            ("=-1\r\n".to_owned(), Err(RefusedReply::Malformed)),
            ("%-1\r\n".to_owned(), Err(RefusedReply::Malformed)),
            ("|-1\r\n".to_owned(), Err(RefusedReply::Malformed)),
            ("*1\r\r\n".to_owned(), Err(RefusedReply::Malformed)),
            ("HTTP/1.1 400 Bad Request\r\n".to_owned(), Err(RefusedReply::Malformed)),
        ] {
            assert_eq!(scan(input.as_bytes()), expected, "{:?}", &input[..input.len().min(40)]);
        }
    }

    proptest! {
        /// The parts in which bytes arrive do not matter.
        #[test]
        fn parts_do_not_matter(
            input in prop::collection::vec(prop::sample::select(b"+-:$*%|>_0123\r\nab".as_slice()), 0..80),
            cuts in prop::collection::vec(1..5_usize, 80),
        ) {
            let whole = scan(&input);
            let (mut scanner, mut rest, mut result) = (ReplyScanner::new(VALUE_MAX), input.as_slice(), Ok(()));
            for cut in cuts {
                let (part, after) = rest.split_at(cut.min(rest.len()));
                result = result.and_then(|()| scanner.scan(part));
                rest = after;
            }
            prop_assert_eq!(result, whole);
        }
    }
}
