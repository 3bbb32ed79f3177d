//! The frames of a zstd file (RFC 8878).

use std::io::{self, BufRead, Read};

use ruzstd::decoding::BlockDecodingStrategy::UptoBlocks;
use ruzstd::decoding::{
    FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The most bytes of a window, which a frame declares and a decoder keeps: what `zstd --ultra -22` writes.
const WINDOW_BYTES_MAX: u64 = 128 << 20;

/// True if the bytes begin a frame of data, or one to be skipped, as `pzstd` writes it.
pub fn begins_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Decodes frames one after the other. Checksums are not verified.
pub struct ZstdFrames<R> {
    from: R,
    decoder: FrameDecoder,
    is_within_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    pub fn new(from: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { from, decoder, is_within_frame: false }
    }

    /// Begins the next frame; false: the file has ended.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.from.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.from) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut self.from.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_within_frame {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    self.decoder.decode_blocks(&mut self.from, UptoBlocks(1)).map_err(io::Error::other)?;
                }
                if self.decoder.can_collect() > 0 {
                    return self.decoder.read(buffer);
                }
            }
            self.is_within_frame = self.begin_frame()?;
            if !self.is_within_frame {
                return Ok(0);
            }
        }
    }
}
