//! The members of a gzip file (RFC 1952).

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Decompresses members one after the other, as appended logs have them. Zeros after a member are skipped, as `gzip` does: they
/// fill the last block of a tape or of a file system.
pub struct GzipMembers<R> {
    /// None: the file has ended.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    pub fn new(from: R) -> Self {
        Self { member: Some(GzDecoder::new(from)) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            let rest = self.member.take().map(GzDecoder::into_inner);
            self.member = rest.map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

fn next_member<R: BufRead>(mut from: R) -> io::Result<Option<GzDecoder<R>>> {
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros == 0 {
            return Ok(Some(GzDecoder::new(from)));
        }
        from.consume(zeros);
    }
}
