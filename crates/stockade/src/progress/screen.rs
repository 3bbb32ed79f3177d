//! Lines at the end of a terminal that are drawn in place.
//!
//! A line ends before the last column, and with a line feed: a terminal that became wider does not join lines, and one that became
//! narrower wraps lines to a known number of rows.

use std::{
    fmt::Write as _,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use console::{Term, colors_enabled_stderr, is_dumb, measure_text_width, truncate_str};
use stockade_model::message::printable_lines;

use super::layout::Paint;

/// Between two drawings.
pub const PERIOD: Duration = Duration::from_millis(250);

/// The content of a live view.
pub trait View: Send + 'static {
    /// Its lines, `now` after it was opened. Each has at most `width` columns.
    fn lines(&self, width: usize, now: Duration, paint: Paint) -> Vec<String>;
}

/// A view that is drawn at a terminal until it is dropped. Elsewhere it is never drawn.
///
/// A thread of its own draws, so that a terminal that does not read cannot stop a measurement.
pub struct LiveScreen<V> {
    /// `None`: standard error is not a terminal.
    drawing: Option<Drawing<V>>,
}

struct Drawing<V> {
    view: Arc<Mutex<V>>,
    started: Instant,
    /// Dropped: the thread ends.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<V: View> LiveScreen<V> {
    /// A view that appears after the first period: a shorter command draws nothing.
    pub fn open(view: V) -> Self {
        if !is_terminal() {
            return Self::closed();
        }
        let (view, started) = (Arc::new(Mutex::new(view)), instant());
        let paint = Paint { has_colors: colors_enabled_stderr() };
        let (stop, stopped) = mpsc::channel();
        let drawn = Arc::clone(&view);
        let draw = move || {
            while stopped.recv_timeout(PERIOD) == Err(mpsc::RecvTimeoutError::Timeout) {
                let (rows, columns) = size();
                let mut lines = locked(&drawn).lines(columns.saturating_sub(1), started.elapsed(), paint);
                lines.truncate(rows.saturating_sub(1).max(1));
                locked(&SCREEN).draw(lines, columns);
            }
        };
        let thread = thread::Builder::new().name("terminal".to_owned()).spawn(draw).ok();
        Self { drawing: Some(Drawing { view, started, stop: Some(stop), thread }) }
    }

    /// A view that is never drawn.
    pub fn closed() -> Self {
        Self { drawing: None }
    }

    /// Changes the view; `change` also has the time since it was opened.
    pub fn update(&self, change: impl FnOnce(&mut V, Duration)) {
        if let Some(drawing) = &self.drawing {
            change(&mut locked(&drawing.view), drawing.started.elapsed());
        }
    }
}

impl<V> Drop for LiveScreen<V> {
    fn drop(&mut self) {
        let Some(drawing) = &mut self.drawing else { return };
        drawing.stop = None;
        if let Some(thread) = drawing.thread.take() {
            // It panicked: the lines stay as they are.
            let _ = thread.join();
        }
        locked(&SCREEN).draw(Vec::new(), size().1);
    }
}

/// True if standard error is a terminal that can move its cursor.
pub fn is_terminal() -> bool {
    Term::stderr().is_term() && !is_dumb()
}

/// Prints a line on standard error, above the live view if there is one.
pub fn message(text: &str) {
    locked(&SCREEN).print(&printable_lines(text));
}

/// Removes the live view and ends the program.
pub fn exit(code: u8) -> ! {
    // A terminal that does not read holds the lock: then the lines stay.
    let screen = match SCREEN.try_lock() {
        Ok(screen) => Some(screen),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(mut screen) = screen {
        screen.draw(Vec::new(), size().1);
        // Nothing is drawn between here and the end.
        process::exit(code.into());
    }
    process::exit(code.into());
}

/// The one terminal of this process.
static SCREEN: Mutex<Screen> = Mutex::new(Screen { lines: Vec::new(), columns: 0 });

/// The lines that are drawn, with the cursor in the first column of the last one.
struct Screen {
    lines: Vec<String>,
    /// Of the terminal when they were drawn.
    columns: usize,
}

impl Screen {
    fn draw(&mut self, lines: Vec<String>, columns: usize) {
        if lines != self.lines || columns != self.columns {
            write(&(self.erased(columns) + &drawn(&lines, columns)));
            *self = Self { lines, columns };
        }
    }

    fn print(&mut self, text: &str) {
        if self.lines.is_empty() {
            eprintln!("{text}");
        } else {
            let columns = size().1;
            write(&format!("{}{text}\n{}", self.erased(columns), drawn(&self.lines, columns)));
            self.columns = columns;
        }
    }

    /// Moves to the first line, and erases from there. Lines that a narrower terminal has wrapped take more rows.
    fn erased(&self, columns: usize) -> String {
        let Some((_, above)) = self.lines.split_last() else { return String::new() };
        let rows = |line: &String| measure_text_width(line).div_ceil(columns.max(1)).max(1);
        let up: usize = above.iter().map(rows).sum();
        if up == 0 { "\r\x1b[J".to_owned() } else { format!("\r\x1b[{up}A\x1b[J") }
    }
}

/// The lines, without the line feed of the last one.
fn drawn(lines: &[String], columns: usize) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let end = if index + 1 < lines.len() { "\n" } else { "\r" };
        let _ = write!(text, "{}{end}", truncate_str(line, columns.saturating_sub(1), ""));
    }
    text
}

/// A terminal that is gone does not stop the command.
fn write(text: &str) {
    let _ = Term::stderr().write_str(text);
}

/// Rows and columns of the terminal.
pub fn size() -> (usize, usize) {
    let (rows, columns) = Term::stderr().size();
    (rows.into(), columns.into())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "a terminal is redrawn in real time")]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(lines: &[&str], columns: usize) -> Screen {
        Screen { lines: lines.iter().map(|line| (*line).to_owned()).collect(), columns }
    }

    #[test]
    fn erases_the_rows_that_a_narrower_terminal_made_of_its_lines() {
        let lines = ["a".repeat(79), "b".repeat(30), String::new(), "c".repeat(79)];
        let screen = screen(&lines.each_ref().map(String::as_str), 80);
        assert_eq!(screen.erased(80), "\r\x1b[3A\x1b[J");
        assert_eq!(screen.erased(200), "\r\x1b[3A\x1b[J");
        assert_eq!(screen.erased(40), "\r\x1b[4A\x1b[J", "79 columns are two rows of 40");
        assert_eq!(self::screen(&["one"], 80).erased(80), "\r\x1b[J");
        assert_eq!(self::screen(&[], 80).erased(80), "");
    }

    #[test]
    fn no_line_reaches_the_last_column_and_the_last_one_does_not_scroll() {
        let lines = ["\x1b[31mred\x1b[0m and more".to_owned(), "short".to_owned()];
        assert_eq!(drawn(&lines, 6), "\x1b[31mred\x1b[0m a\nshort\r");
    }
}
