//! `stockade report`: a record in another format.

use stockade_lab::{report::find_format, storage};

use crate::{
    cli::ReportArgs,
    exit::{CommandError, Exit},
    run::print,
};

/// Prints the report. A refuted hypothesis is no failure of the report.
pub fn report(args: &ReportArgs) -> Result<Exit, CommandError> {
    let (record, results) = storage::read(&args.record)?;
    print(&find_format(&args.format).render(&record, &results))?;
    Ok(Exit::Done)
}
