//! Tells the program which commit it was built from, where there is one.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    if let Ok(output) = git
        && output.status.success()
    {
        println!("cargo::rustc-env=STOCKADE_COMMIT={}", String::from_utf8_lossy(&output.stdout).trim());
    }
}
