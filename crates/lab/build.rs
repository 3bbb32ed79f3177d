//! Tells the program which commit it was built from, where there is one.

use std::{path::Path, process::Command};

fn main() {
    // Where git keeps no log of its head, this runs at every build.
    for path in ["../../.git/logs/HEAD", "../../.git/index"] {
        if Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let git = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    if let Ok(output) = git
        && output.status.success()
    {
        println!("cargo::rustc-env=STOCKADE_COMMIT={}", String::from_utf8_lossy(&output.stdout).trim());
    }
}
