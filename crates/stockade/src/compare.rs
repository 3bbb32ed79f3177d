//! `stockade compare`: two records of one experiment.

use std::path::Path;

use stockade_record::{
    compare::{self, Compared},
    metrics::Results,
    record::{Record, Verdict},
    storage,
};

use crate::{
    cli::{CompareArgs, FailOn},
    exit::{CommandError, Exit},
    run::print,
};

/// Prints the comparison.
pub fn compare(args: &CompareArgs) -> Result<Exit, CommandError> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let [before, after] = [&before, &after].map(|(record, results)| Compared { record, results });
    let comparison = compare::compare(before, after, args.min_effect)
        .map_err(|unlike| CommandError::Usage(unlike.to_string()))?;
    print(&(args.format.render)(&comparison))?;
    Ok(match comparison.verdict() {
        Verdict::Refuted => Exit::Refuted,
        Verdict::Supported => Exit::Done,
        _ if args.fail_on == Some(FailOn::Regression) => Exit::Done,
        _ => Exit::Undecided,
    })
}

fn read(directory: &Path) -> Result<(Record, Results), CommandError> {
    #[cfg(feature = "http")]
    if directory.is_file() && crate::audit::record::read(directory).is_ok() {
        let shown = directory.display();
        let text = format!(
            "{shown} is the record of an audit: `stockade audit URL --against {shown}` compares with it"
        );
        return Err(CommandError::Usage(text));
    }
    let latest = storage::find_latest(directory)?;
    if latest != directory {
        say!("the latest record of {}: {}", directory.display(), latest.display());
    }
    Ok(storage::read_figures(&latest)?)
}
