//! Counts the requests of logs, for measuring the reader:
//!
//! `cargo run --release -p stockade-logs --example count -- [--format FORMAT] LOG...`

use std::{error::Error, path::PathBuf};

use stockade_logs::{Format, Input, LogReader};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut format: Option<Format> = None;
    if arguments.next_if_eq("--format").is_some() {
        format = Some(arguments.next().unwrap_or_default().parse()?);
    }
    let inputs: Vec<Input> = arguments.map(|path| PathBuf::from(path).into()).collect();
    let mut bytes = 0;
    let summary =
        LogReader::open(&inputs, format)?.for_each(|request| bytes += request.bytes.unwrap_or(0))?;
    println!("{summary:#?}, {bytes} bytes sent");
    Ok(())
}
