//! A test in its own process.

use std::{
    env,
    process::Command,
    sync::{Mutex, PoisonError},
};

/// Set in the process of one test.
const VARIABLE: &str = "STOCKADE_TEST_IN_OWN_PROCESS";

/// Runs a test in its own process: for tests that measure or limit the whole process.
///
/// The test calls this function with its own path in the test program (`module::name`). The function starts the
/// test program again with only this test. A shell first runs `setup` there, for example `ulimit -n 64`. In the
/// new process the same call runs `body`. Tests of one program run one at a time.
///
/// # Panics
/// If the process cannot be started, if it fails, or if the program has no test with this path.
pub fn in_own_process(test: &str, setup: &str, body: impl FnOnce()) {
    static RUNNING: Mutex<()> = Mutex::new(());
    if env::var_os(VARIABLE).is_some() {
        return body();
    }
    let _lock = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let program = env::current_exe().expect("the path of the test program");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{setup}\nexec \"$0\" --exact \"$1\" --nocapture"));
    shell.arg(program).arg(test).env(VARIABLE, "1");
    let output = shell.output().expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let output_text = text(&output.stdout) + &text(&output.stderr);
    println!("{output_text}");
    assert!(output.status.success() && output_text.contains("1 passed"), "{test} failed in its own process");
}
