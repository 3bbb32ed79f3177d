//! The settings of a child process, as a TOML file.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use serde_json::{Map, Value};
use stockade_model::record::Role;
use stockade_source::secrets::masked_file;

use super::{
    HttpError,
    child::{Child, ChildArguments},
};

/// Starts `stockade COMMAND... FILE` with these settings in the file. After the start a copy without secrets
/// replaces the file.
pub(super) fn start_with_settings(
    program: &Path,
    command: &[&str],
    settings: &Map<String, Value>,
    path: &Path,
) -> Result<Child, HttpError> {
    let text: String = settings.iter().map(line).collect();
    write_secret(path, &text).map_err(file_error(path))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    arguments.push(path.display().to_string());
    let child = Child::start(ChildArguments { role: Role::Proxy, program, arguments: &arguments, folder });
    fs::write(path, masked_file(&text)).map_err(file_error(path))?;
    Ok(child?)
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn line((key, value): (&String, &Value)) -> String {
    format!("{} = {}\n", Value::from(key.as_str()), toml(value))
}

/// TOML on one line: JSON except for tables.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let pairs =
                table.iter().map(|(key, value)| format!("{} = {}", Value::from(key.as_str()), toml(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

pub(super) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> HttpError {
    let path = path.to_owned();
    |error| HttpError::File { path, error }
}
