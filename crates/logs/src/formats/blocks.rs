//! Traces of keys and of blocks.

use super::{LineParser, Parsed, Visit};
use crate::{
    format::FormatKind,
    logged::{LoggedKey, LoggedRequest},
    value::{Problem, number},
};

pub(crate) const KEYS: FormatKind = FormatKind {
    is_free_text: true,
    ..FormatKind::trace("keys", "one key a line, any text", || Box::new(KeyLines))
};

pub(crate) const LIRS: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::trace("lirs", "one block number a line", || Box::new(LirsLines))
};

pub(crate) const ARC: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::trace("arc", "first block, blocks, ignored, request number", || Box::new(ArcLines))
};

/// The most blocks of a line; ARC's own traces have at most some hundreds.
const BLOCKS_MAX: u64 = 1_000_000;

/// One key a line, any text.
#[derive(Debug)]
pub(crate) struct KeyLines;

/// One block number a line, and lines of `*` between phases, as in the traces of LIRS.
#[derive(Debug)]
pub(crate) struct LirsLines;

/// `first_block blocks ignored request_number`, as in the traces of ARC: a request for each of the blocks.
#[derive(Debug)]
pub(crate) struct ArcLines;

impl LineParser for KeyLines {
    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        visit(LoggedRequest::read(LoggedKey::Text(line)));
        Ok(Parsed::Requests)
    }
}

impl LineParser for LirsLines {
    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let line = line.trim_ascii();
        if line.starts_with(b"*") {
            return Ok(Parsed::Comment);
        }
        let block = number(line).ok_or("the line is not a block number")?;
        visit(LoggedRequest::read(LoggedKey::Number(block)));
        Ok(Parsed::Requests)
    }
}

impl LineParser for ArcLines {
    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(number);
        let (Some(Some(first)), Some(Some(count)), Some(Some(_)), Some(Some(_)), None) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Err("the line is not four numbers: first block, blocks, ignored, request".into());
        };
        let end = first.checked_add(count).filter(|_| (1..=BLOCKS_MAX).contains(&count));
        let end = end.ok_or("the number of blocks is not between 1 and 1,000,000")?;
        (first..end).for_each(|block| visit(LoggedRequest::read(LoggedKey::Number(block))));
        Ok(Parsed::Requests)
    }
}
