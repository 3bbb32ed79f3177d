//! `stockade` as a child process with a limit on its time.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::Result;
use crate::origin::pinned;

/// For the start and the end of a measurement's processes, in addition to its load.
const OVERHEAD_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Done, inconclusive or invalid, refuted.
const VERDICT_EXITS: [i32; 3] = [0, 98, 99];

/// The arguments of one `stockade run`, and its bounds.
pub struct RunPlan<'a> {
    pub program: &'a Path,
    pub experiment: &'a str,
    pub repeats: u32,
    pub seed: u64,
    /// Of its measurements together.
    pub load: Duration,
    /// The only core of its processes; `None`: all cores.
    pub core: Option<usize>,
}

/// The folder of a trial, with its experiment, its output and its record.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn create(out: &Path, name: &str) -> Result<Self> {
        let folder = out.join(name);
        // The record of an earlier call.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub fn record(&self) -> PathBuf {
        self.0.join("record")
    }

    /// Keeps the folder if `is_wrong`.
    pub fn close(self, is_wrong: bool) -> Result<()> {
        if is_wrong {
            eprintln!("kept: {}", self.0.display());
            return Ok(());
        }
        fs::remove_dir_all(&self.0)?;
        Ok(())
    }
}

/// A `stockade run` in progress. It is killed when this is dropped.
pub struct Running {
    process: Child,
    until: Instant,
    output: PathBuf,
}

impl Running {
    pub fn start(plan: &RunPlan<'_>, folder: &Folder) -> Result<Self> {
        let file = folder.0.join("experiment.toml");
        fs::write(&file, plan.experiment)?;
        let output = folder.0.join("output.txt");
        let mut command = plan.core.map_or_else(
            || Command::new(plan.program),
            |core| {
                let mut command = pinned(core);
                command.arg(plan.program);
                command
            },
        );
        command.arg("run").arg(&file).args([
            "--repeat",
            &plan.repeats.to_string(),
            "--seed",
            &plan.seed.to_string(),
        ]);
        command.arg("--out").arg(folder.record());
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&output)?).spawn()?;
        Ok(Self { process, until: Instant::now() + plan.load * 2 + OVERHEAD_MAX * plan.repeats, output })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn wait(mut self) -> Result<()> {
        let status = self.status()?;
        if status.code().is_some_and(|code| VERDICT_EXITS.contains(&code)) {
            return Ok(());
        }
        Err(format!("stockade run: {status}: {}", fs::read_to_string(&self.output)?).into())
    }

    fn status(&mut self) -> Result<ExitStatus> {
        while Instant::now() < self.until {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err("stockade run did not end in time".into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs an experiment to its end.
pub fn run(plan: &RunPlan<'_>, folder: &Folder) -> Result<()> {
    Running::start(plan, folder)?.wait()
}

/// The JSON of `stockade compare`.
pub fn compare(program: &Path, before: &Path, after: &Path) -> Result<String> {
    let output =
        Command::new(program).arg("compare").args([before, after]).args(["--format", "json"]).output()?;
    if output.status.code().is_some_and(|code| VERDICT_EXITS.contains(&code)) {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(format!("stockade compare: {}", String::from_utf8_lossy(&output.stderr)).into())
}
