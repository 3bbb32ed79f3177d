//! Runs benches: each sitting in a process group of its own, which ends with the runner and within a bound of time.

use std::{
    env, fs,
    io::{IsTerminal, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    signal::{self, unix::SignalKind},
    time::{sleep, timeout},
};

use stockade_record::clock;

use crate::{
    command::{
        fold::rows,
        machine::{Machine, busy_share, commit, version},
        options::Options,
        record::{Record, SittingRecord},
        report,
    },
    generators::stockade,
    process::{is_installed, search_path},
    proxies::in_memory,
    suite::{Bench, Figure, PROGRESS, Result, Sitting, find},
};

/// How long the processes of a sitting may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(15);
/// The failed sittings of a bench after which it is left out.
const FAILURES_MAX: u32 = 2;
/// The last lines of standard error that an error shows.
const LINES_SHOWN: usize = 12;

/// A bench and the record that it fills.
struct Running {
    bench: &'static Bench,
    record: Record,
    /// Seconds of its last sitting, or those of its description.
    expected_seconds: f64,
    /// Of the last sitting that failed.
    error: Option<String>,
    failures: u32,
}

impl Running {
    /// A bench that fails twice is not tried again.
    fn is_given_up(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

/// Runs the benches of the options; false if one of them failed.
pub fn run(options: &Options) -> Result<bool> {
    let mut benches = Vec::new();
    for name in &options.names {
        let bench = find(name)?;
        let missing: Vec<_> = bench.needs.iter().filter(|program| !is_installed(program)).collect();
        if missing.is_empty() {
            benches.push(Running::new(bench));
        } else {
            eprintln!("{name} is left out: not installed: {missing:?}");
        }
    }
    if std::thread::available_parallelism()?.get() < 2 {
        return Err("a bench needs two processors: one for what is measured, one for its load".into());
    }
    // Built once, not in each sitting.
    let program = stockade()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_sittings(options, &mut benches, &program))?;
    let mut is_complete = true;
    for running in &mut benches {
        let rows = rows(running.bench, &running.record);
        if running.error.is_none() && rows.is_empty() {
            running.error = Some("no row has two contenders".to_owned());
        }
        if let Some(error) = &running.error {
            is_complete = false;
            eprintln!("{} failed: {error}", running.bench.name);
        }
        if options.is_smoke {
            println!("{}: {} rows", running.bench.name, rows.len());
        } else if !rows.is_empty() {
            println!("\n{}: {}\n", running.bench.name, running.bench.shows);
            print!("{}", report::rows_table(running.bench, &rows));
        }
    }
    if !options.is_smoke {
        println!("\nWritten to {}.", options.out.join("RESULTS.md").display());
    }
    Ok(is_complete)
}

/// One sitting of each bench, then the next: sittings of a bench are far apart, so that their spread has the drift of the machine.
async fn run_sittings(options: &Options, benches: &mut [Running], program: &Path) -> Result<()> {
    let mut interrupts = Interrupts::new()?;
    for sitting in 1..=options.sittings {
        for at in 0..benches.len() {
            if benches[at].is_given_up() {
                continue;
            }
            let left = seconds_left(benches, at, options.sittings - sitting);
            let running = &mut benches[at];
            let title = format!("{}, sitting {sitting} of {}", running.bench.name, options.sittings);
            let seed = options.seed + u64::from(sitting);
            let busy_before = if options.is_smoke { 0.0 } else { busy_share() };
            let began = Instant::now();
            match sit(running.bench, seed, options.is_smoke, program, &title, left, &mut interrupts).await {
                Ok(figures) => {
                    let seconds = began.elapsed().as_secs_f64();
                    running.expected_seconds = seconds;
                    running.record.sittings.push(SittingRecord { seed, seconds, busy_before, figures });
                    if !options.is_smoke {
                        running.record.write(&options.out, running.bench.name)?;
                        report::write(&options.out)?;
                    }
                }
                Err(Ended::Failed(error)) => {
                    eprintln!("{title} failed: {error}");
                    running.error = Some(error);
                    running.failures += 1;
                }
                Err(Ended::Interrupted) => return Err("interrupted: sittings so far are kept".into()),
            }
        }
    }
    Ok(())
}

fn seconds_left(benches: &[Running], at: usize, later: u32) -> f64 {
    let of = |benches: &[Running]| {
        benches.iter().filter(|one| !one.is_given_up()).map(|one| one.expected_seconds).sum::<f64>()
    };
    of(&benches[at..]) + f64::from(later) * of(benches)
}

impl Running {
    fn new(bench: &'static Bench) -> Self {
        let (peers, missing): (Vec<_>, Vec<_>) =
            bench.peers.iter().map(|peer| (*peer, version(peer))).partition(|(_, version)| version.is_some());
        let record = Record {
            began: clock::now(),
            commit: commit(),
            machine: Machine::this(),
            peers: peers
                .into_iter()
                .filter_map(|(peer, version)| Some((peer.to_owned(), version?)))
                .collect(),
            missing: missing.into_iter().map(|(peer, _)| peer.to_owned()).collect(),
            sittings: Vec::new(),
        };
        Self { bench, record, expected_seconds: bench.seconds as f64, error: None, failures: 0 }
    }
}

/// Why a sitting has no figures.
enum Ended {
    Failed(String),
    Interrupted,
}

impl<E: Into<Box<dyn std::error::Error>>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into().to_string())
    }
}

/// Runs this program again for one sitting and returns its figures.
async fn sit(
    bench: &Bench,
    seed: u64,
    is_smoke: bool,
    program: &Path,
    title: &str,
    left: f64,
    interrupts: &mut Interrupts,
) -> std::result::Result<Vec<Figure>, Ended> {
    let folder = env::temp_dir().join(format!("stockade-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut child = Command::new(env::current_exe()?)
        .args(["sit", bench.name, &seed.to_string(), if is_smoke { "smoke" } else { "full" }])
        .arg(&folder)
        .env("STOCKADE", program)
        .env("PATH", env::join_paths(search_path())?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let figures = tokio::select! {
        figures = timeout(bench.limit(), read_figures(&mut child, title, left)) => {
            figures.unwrap_or_else(|_| Err(format!("ended after {} s, its limit", bench.limit().as_secs()).into()))
        }
        () = interrupts.next() => Err(Ended::Interrupted),
    };
    end(group, &mut child).await;
    let _ = fs::remove_dir_all(in_memory(&folder));
    let _ = fs::remove_dir_all(&folder);
    figures
}

/// Reads the figures from standard output while it shows the progress from standard error.
async fn read_figures(child: &mut Child, title: &str, left: f64) -> std::result::Result<Vec<Figure>, Ended> {
    let (mut stdout, stderr) =
        child.stdout.take().zip(child.stderr.take()).ok_or("a sitting without output")?;
    let began = Instant::now();
    let mut printed = String::new();
    let mut lines = BufReader::new(stderr).lines();
    let mut said = Vec::new();
    let show = async {
        while let Ok(Some(line)) = lines.next_line().await {
            match line.strip_prefix(PROGRESS) {
                Some(case) => show_progress(title, case, left - began.elapsed().as_secs_f64()),
                None => said.push(line),
            }
        }
    };
    let (read, ()) = tokio::join!(stdout.read_to_string(&mut printed), show);
    read?;
    clear_progress();
    if child.wait().await?.success() {
        return Ok(serde_json::from_str(&printed)?);
    }
    let last = said[said.len().saturating_sub(LINES_SHOWN)..].join("\n  ");
    Err(if last.is_empty() { "it was killed".into() } else { last.into() })
}

/// One line that is written again on a terminal, and a line for each case elsewhere.
fn show_progress(title: &str, case: &str, left: f64) {
    let text = format!("{title}: {case}, about {:.0} min left", (left.max(0.0) / 60.0).ceil());
    let mut stderr = std::io::stderr();
    let _ = if stderr.is_terminal() { write!(stderr, "\r\x1b[K{text}") } else { writeln!(stderr, "{text}") };
    let _ = stderr.flush();
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// Ctrl-C, SIGTERM and SIGHUP since its creation.
struct Interrupts([signal::unix::Signal; 3]);

impl Interrupts {
    fn new() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .map(signal::unix::signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
    }
}

/// Ends all processes of a sitting, which may have left servers behind: SIGTERM, and SIGKILL for those that do not end.
async fn end(group: Option<Pid>, child: &mut Child) {
    let Some(group) = group else { return };
    let began = Instant::now();
    let mut next = Signal::TERM;
    while test_kill_process_group(group).is_ok() {
        let _ = kill_process_group(group, next);
        if began.elapsed() > PATIENCE {
            next = Signal::KILL;
        }
        if began.elapsed() > 2 * PATIENCE {
            break;
        }
        let _ = child.try_wait();
        sleep(Duration::from_millis(50)).await;
    }
    let _ = child.wait().await;
}

/// The child process of a sitting: prints its figures as JSON.
pub fn sit_here(arguments: &[&str]) -> Result<()> {
    let [name, seed, kind, folder] = arguments else {
        return Err("a name, a seed, smoke or full, and a folder".into());
    };
    let folder = PathBuf::from(folder);
    let memory_folder = in_memory(&folder);
    let sitting = Sitting::new(seed.parse()?, *kind == "smoke", folder, memory_folder);
    let figures = (find(name)?.measure)(&sitting)?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}
