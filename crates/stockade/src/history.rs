//! `stockade history`: a figure over the records of a directory, and where it changed.

use stockade_record::history::{self, IndexedRecords};

use crate::{
    cli::HistoryArgs,
    exit::{CommandError, Exit},
    progress::LiveScreen,
    run::print,
};

/// Messages about records that cannot be read, at most.
const MESSAGES_MAX: usize = 5;

/// Prints it. Records that cannot be read are named on standard error; an index that cannot be written is not a failure.
pub fn history(args: &HistoryArgs) -> Result<Exit, CommandError> {
    let mut live = None;
    let mut progress = |read: usize, all: usize| {
        live.get_or_insert_with(|| LiveScreen::steps(all)).next(format!("records read: {read}"));
    };
    let IndexedRecords { records, unreadable, unwritten } =
        history::read_records(&args.records, args.rebuild, &mut progress)?;
    drop(live);
    for error in unreadable.iter().take(MESSAGES_MAX) {
        say!("left out: {error}");
    }
    if let Some(more @ 1..) = unreadable.len().checked_sub(MESSAGES_MAX) {
        say!("left out: {more} more records that cannot be read");
    }
    let (records, incomplete): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| record.is_complete);
    if !incomplete.is_empty() {
        say!("left out: records in progress, or stopped before their end: {}", incomplete.len());
    }
    if let Some(error) = unwritten {
        say!("the index is not kept, so the next call reads every record again: {error}");
    }
    let history = history::history(&records, args.metric, args.min_effect);
    if history.series.is_empty() {
        let metric = args.metric.map_or("a compared metric", |metric| metric.name);
        return Err(CommandError::Usage(format!(
            "{}: no record has a figure of {metric}",
            args.records.display()
        )));
    }
    print(&(args.format.render)(&history))?;
    Ok(Exit::Done)
}
