//! Progress on standard error: lines in place at a terminal, nothing in a pipe; cancellation by Ctrl-C.

mod layout;
mod run_view;
mod screen;
mod steps;
mod time_left;

use stockade_lab::engine::CancellationToken;

pub use self::{
    run_view::RunView,
    screen::{LiveScreen, is_terminal, message, size},
};
use crate::exit::Exit;

/// Cancels on the first Ctrl-C (or SIGTERM), keeping the measurements; ends the program on the second.
pub fn stop_on_signals() -> CancellationToken {
    let stop = CancellationToken::new();
    let handle = stop.clone();
    let installed = ctrlc::set_handler(move || {
        if handle.is_cancelled() {
            screen::exit(Exit::Undecided.code());
        }
        handle.cancel();
        message("stopping; finished measurements are kept (again to stop at once)");
    });
    if let Err(error) = installed {
        message(&format!("warning: Ctrl-C will lose the measurements: {error}"));
    }
    stop
}
