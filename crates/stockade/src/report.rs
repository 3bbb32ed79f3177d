//! `stockade report`: a record in another format.

use stockade_record::storage;

use crate::{
    cli::ReportArgs,
    exit::{CommandError, Exit},
    run::print,
};

/// Prints the report. A record that was found below the directory is named on standard error. A refuted hypothesis is not a
/// failure of the report.
pub fn report(args: &ReportArgs) -> Result<Exit, CommandError> {
    let directory = storage::find_latest(&args.record)?;
    if directory != args.record {
        say!("the latest record: {}", directory.display());
    }
    let (record, results) = storage::read(&directory)?;
    print(&(args.format.render)(&record, &results))?;
    Ok(Exit::Done)
}
