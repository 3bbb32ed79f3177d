//! `stockade report`: a record in another format.

use stockade_lab::{report::FORMATS, storage};

use crate::{
    cli::ReportArgs,
    exit::{Exit, Failure},
    run::print,
};

/// Prints it. That the run refuted something is no failure of the report.
pub fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let (record, results) = storage::read(&args.record)?;
    let format =
        FORMATS.iter().find(|format| format.name == args.format).expect("clap lets no other format pass");
    print(&(format.render)(&record, &results))?;
    Ok(Exit::Done)
}
