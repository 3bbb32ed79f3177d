//! Ends with whoever has started this program: their end of its standard input goes with them.

use std::{io, thread};

use rustix::process::{Signal, getpid, kill_process};

/// Asks this program to end, as SIGTERM does, when its standard input has ended. Nothing on it is read.
pub fn end_with_stdin() {
    let watch = || {
        let _ended = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _told = kill_process(getpid(), Signal::TERM);
    };
    // Without a thread it has to be told.
    drop(thread::Builder::new().name("lifeline".to_owned()).spawn(watch));
}
