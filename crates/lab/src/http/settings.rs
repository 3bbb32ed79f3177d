//! The settings of a child process, as a file.

use std::{
    io::{self, Write as _},
    path::Path,
};

use serde_json::{Map, Value};
use stockade_model::private_file;
use stockade_record::record::Role;
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
    let mut arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    arguments.push(path.display().to_string());
    start_with_file(Role::Proxy, program, &arguments, path, &text)
}

/// Starts `stockade ARGUMENTS...` with this text in the file. Only its owner can read it, and after the start a copy without secrets
/// replaces it.
pub(super) fn start_with_file(
    role: Role,
    program: &Path,
    arguments: &[String],
    path: &Path,
    text: &str,
) -> Result<Child, HttpError> {
    let write = |text: &str| {
        let written = private_file::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(file_error(path))
    };
    write(text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let child = Child::start(ChildArguments { role, program, arguments, folder });
    write(&masked_file(text))?;
    Ok(child?)
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
