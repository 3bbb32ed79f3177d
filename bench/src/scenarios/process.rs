//! A scenario in a process of its own, which may hang, abort or overflow its stack.

use std::{
    env, io,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use super::{Observed, Scenario, Verdict, contender::Kind};

/// How long a scenario may take. The longest one that ends takes 4 s.
const LIMIT: Duration = Duration::from_secs(10);
/// Scenarios that run at the same time. Most of them sleep.
const AT_ONCE: usize = 3;

/// The option of a child, which is followed by the names of a scenario and of a cache.
pub const CHILD: &str = "--child";

/// What each [`Kind`] of cache did; `None`: the scenario does not apply to it.
pub type Row = [Option<Observed>; 4];

/// Runs all scenarios on all caches, each in a child process. Prints progress.
///
/// # Panics
/// If one of its threads has panicked.
pub fn run_all(scenarios: &[&Scenario]) -> io::Result<Vec<Row>> {
    let rows: Mutex<Vec<Row>> = Mutex::new(vec![Row::default(); scenarios.len()]);
    let all = scenarios.iter().enumerate().flat_map(|(row, scenario)| {
        let applies = |kind: &Kind| scenario.run_of(*kind).is_some();
        Kind::ALL.into_iter().filter(applies).map(move |kind| (row, *scenario, kind))
    });
    let queue = Mutex::new(all);
    let work = || -> io::Result<()> {
        loop {
            let next = queue.lock().expect("no panic").next();
            let Some((row, scenario, kind)) = next else { return Ok(()) };
            let observed = run_child(scenario, kind)?;
            eprintln!("{:28} {:13} {}", scenario.name, kind.name(), line(&observed));
            rows.lock().expect("no panic")[row][kind as usize] = Some(observed);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    Ok(rows.into_inner().expect("no panic"))
}

/// The line that a child prints.
#[must_use]
pub fn line(observed: &Observed) -> String {
    format!("{}: {}", observed.verdict.word(), observed.fact)
}

fn run_child(scenario: &Scenario, kind: Kind) -> io::Result<Observed> {
    let mut child = Command::new(env::current_exe()?)
        .args([CHILD, scenario.name, kind.name()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A hundred callers may panic.
        .stderr(Stdio::null())
        .spawn()?;
    let Some(status) = wait(&mut child)? else {
        return Ok(Observed::when(false, "hung"));
    };
    let printed = io::read_to_string(child.stdout.take().expect("piped"))?;
    Ok(observed(status, &printed))
}

/// Waits for the end of a child, and ends it at the [`LIMIT`]: `None`.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Judges a child that has ended.
fn observed(status: ExitStatus, printed: &str) -> Observed {
    let fact = match (status.signal(), status.code()) {
        (Some(6), _) => "aborted (SIGABRT)".to_owned(),
        (Some(signal), _) => format!("ended by signal {signal}"),
        (_, Some(0)) => match parse(printed) {
            Some(observed) => return observed,
            None => "ended without a word".to_owned(),
        },
        (_, Some(101)) => "panicked".to_owned(),
        (_, code) => format!("ended with code {code:?}"),
    };
    Observed::when(false, fact)
}

fn parse(printed: &str) -> Option<Observed> {
    let (word, fact) = printed.trim_end().split_once(": ")?;
    let verdict = Verdict::ALL.into_iter().find(|verdict| verdict.word() == word)?;
    Some(Observed { verdict, fact: fact.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_judged_by_its_line_and_its_end() {
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        let fine = Observed::when(true, "stored: 1");
        assert_eq!(observed(exit(0), "ok: stored: 1\n"), fine);
        assert_eq!(observed(exit(0), &line(&fine)), fine);
        assert_eq!(observed(exit(0), "none: it has no bound\n"), Observed::no_setting("bound"));
        for (status, printed, fact) in [
            (exit(0), "not: lost\n", "lost"),
            (exit(0), "", "ended without a word"),
            (exit(101), "ok: but panicked later\n", "panicked"),
            (exit(2), "", "ended with code Some(2)"),
            (ExitStatus::from_raw(6), "", "aborted (SIGABRT)"),
            (ExitStatus::from_raw(11), "", "ended by signal 11"),
        ] {
            assert_eq!(observed(status, printed), Observed::when(false, fact));
        }
    }
}
