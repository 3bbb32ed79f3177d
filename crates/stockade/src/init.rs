//! `stockade init`: an experiment file to start from.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::Path,
};

use crate::{
    cli::{InitArgs, TargetName},
    exit::{CommandError, Exit},
};

const SCHEMA: &str = include_str!("../experiment.schema.json");
const SCHEMA_FILE: &str = "experiment.schema.json";

/// Writes the file, and the schema for editors next to it. Existing files stay.
pub fn init(args: &InitArgs) -> Result<Exit, CommandError> {
    let text = template(args.target).to_owned();
    #[cfg(feature = "http")]
    let text = of_audit(args)?.unwrap_or(text);
    let file = &args.file;
    let shown = file.display();
    let refused = |error: io::Error| match error.kind() {
        ErrorKind::AlreadyExists => CommandError::Usage(format!("{shown} exists: name another file")),
        _ => CommandError::Usage(format!("cannot write {shown}: {error}")),
    };
    write_new(file, &text.replace("FILE`", &format!("{shown}`"))).map_err(refused)?;
    say!("wrote {shown}");
    write_schema(&file.with_file_name(SCHEMA_FILE))?;
    say!("\n  stockade check {shown}\n  stockade run {shown}");
    Ok(Exit::Done)
}

fn template(target: TargetName) -> &'static str {
    match target {
        TargetName::Engine => include_str!("init/engine.toml"),
        TargetName::Url => include_str!("init/url.toml"),
        TargetName::Proxy => include_str!("init/proxy.toml"),
    }
}

/// The experiment of an answer of an audit, if the arguments name one.
#[cfg(feature = "http")]
fn of_audit(args: &InitArgs) -> Result<Option<String>, CommandError> {
    let Some(path) = &args.from_audit else { return Ok(None) };
    let audit = crate::audit::record::read(path)?;
    let experiment = stockade_audit::experiment(&audit, args.answer.as_deref());
    experiment.map(Some).map_err(|error| CommandError::Usage(format!("{}: {error}", path.display())))
}

/// An existing schema stays, since it may be another file.
fn write_schema(path: &Path) -> Result<(), CommandError> {
    let shown = path.display();
    match write_new(path, SCHEMA) {
        Ok(()) => say!("wrote {shown}, with which editors complete it"),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if fs::read(path).is_ok_and(|kept| kept != SCHEMA.as_bytes()) {
                say!(
                    "kept {shown}, which is of another version; without it, the next `stockade init` writes it"
                );
            }
        }
        Err(error) => return Err(CommandError::Usage(format!("cannot write {shown}: {error}"))),
    }
    Ok(())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    File::create_new(path)?.write_all(text.as_bytes())
}
