//! Load generators with their usual options, each on its own core.

use std::{
    env,
    error::Error,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    origin::{Server, pinned},
    process::{children_cpu_seconds, cpu_seconds},
    responder::RESPONDER,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The result of a generator.
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// Requests with a response.
    pub requests: f64,
    /// From its start to its exit.
    pub seconds: f64,
    /// Its own processor time.
    pub cpu_seconds: f64,
    /// The responder's load meanwhile, as a share of one core.
    pub responder_busy: f64,
}

/// The number of requests that wrk's output names.
#[must_use]
pub fn wrk_requests(output: &str) -> Option<f64> {
    output.split_once(" requests in")?.0.rsplit(' ').next()?.parse().ok()
}

/// The number of answered requests that h2load's output names.
#[must_use]
pub fn h2load_requests(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("requests: "))?;
    line.split(", ").find_map(|part| part.strip_suffix(" succeeded"))?.parse().ok()
}

/// Builds `stockade` in release mode and returns its path.
pub fn stockade() -> Result<PathBuf> {
    if let Some(program) = env::var_os("STOCKADE") {
        return Ok(program.into());
    }
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Command::new("cargo")
        .args(["build", "--release", "--package", "stockade", "--features", "agents", "--locked"])
        .current_dir(&workspace)
        .status()?;
    if !built.success() {
        return Err("stockade cannot be built".into());
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or(workspace.join("target"), PathBuf::from);
    Ok(target.join("release/stockade"))
}

/// Starts this program again as the responder, on the first core.
pub fn responder() -> Result<Server> {
    let program = env::current_exe()?;
    Server::start(0, &[program.to_str().ok_or("a path that is not text")?, "respond"], RESPONDER)
}

/// Runs a generator on the second core and returns both outputs and the processor time.
pub fn generate(
    responder: &Server,
    program: &[&str],
    requests: impl Fn(&str) -> Option<f64>,
) -> Result<(Generated, String)> {
    let (began, ours, theirs) = (Instant::now(), children_cpu_seconds()?, cpu_seconds(responder.0.id())?);
    let output = pinned(1).args(program).stdin(Stdio::null()).output()?;
    let seconds = began.elapsed().as_secs_f64();
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let requests =
        requests(&printed).ok_or_else(|| format!("{program:?} printed no number of requests: {printed}"))?;
    let generated = Generated {
        requests,
        seconds,
        cpu_seconds: children_cpu_seconds()? - ours,
        responder_busy: (cpu_seconds(responder.0.id())? - theirs) / seconds,
    };
    Ok((generated, printed))
}
