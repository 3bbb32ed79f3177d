//! One line a second: memory, descriptors, threads and processor time of both proxies.

use std::{
    fs::{self, File},
    io::Write,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::process::cpu_seconds;

use super::{Result, client::call, context::Context, traffic::Role};

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the start of the traffic.
    pub seconds: u64,
    pub role: Role,
    pub pid: u32,
    pub resident_bytes: u64,
    pub descriptors: u64,
    pub threads: u64,
    pub cpu_seconds: f64,
    /// Finished requests since the start of the traffic.
    pub finished: u64,
}

/// Open file descriptors of a process.
pub fn descriptors(pid: u32) -> Result<u64> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

/// Reads both proxies each second until it is dropped. Stops the run if one is gone.
pub async fn sample(context: Arc<Context>, samples: Arc<std::sync::Mutex<Vec<Sample>>>) {
    if let Err(error) = sample_all(&context, &samples).await {
        context.stop(format!("a proxy cannot be read any more, at {:.0?}: {error}", context.elapsed()));
    }
}

async fn sample_all(context: &Context, samples: &std::sync::Mutex<Vec<Sample>>) -> Result<()> {
    let mut file = File::create(context.out.join("samples.csv"))?;
    writeln!(file, "seconds,proxy,pid,resident_bytes,descriptors,threads,cpu_seconds,requests")?;
    for seconds in 0.. {
        sleep_until(context.started + Duration::from_secs(seconds)).await;
        for role in Role::ALL {
            let one = read(context, role, seconds)?;
            writeln!(
                file,
                "{seconds},{},{},{},{},{},{:.2},{}",
                role.name(),
                one.pid,
                one.resident_bytes,
                one.descriptors,
                one.threads,
                one.cpu_seconds,
                one.finished
            )?;
            samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(one);
        }
    }
    Ok(())
}

fn read(context: &Context, role: Role, seconds: u64) -> Result<Sample> {
    let pid = context.pid(role);
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.ok_or_else(|| format!("process {pid} of {} has ended: no {name}", role.name()))
    };
    Ok(Sample {
        seconds,
        role,
        pid,
        resident_bytes: field("VmRSS:")? * 1_024,
        descriptors: descriptors(pid)?,
        threads: field("Threads:")?,
        cpu_seconds: cpu_seconds(pid).map_err(|error| error.to_string())?,
        finished: context.tally().finished[role as usize],
    })
}

/// The counts of a proxy without traffic.
#[derive(Clone, Copy, Debug)]
pub struct AtRest {
    pub descriptors: u64,
    pub requests_in_flight: u64,
    pub connections: u64,
}

/// Reads a proxy until it has no connection of clients left, 90 s at most.
pub async fn at_rest(pid: u32, admin: std::net::SocketAddr) -> Result<AtRest> {
    let began = Instant::now();
    loop {
        let (_, _, body) = call(admin, "GET", "/stats").await?;
        let stats: Value = serde_json::from_slice(&body)?;
        let of = |name: &str| stats[name].as_u64().ok_or_else(|| format!("/stats has no {name}"));
        let idle_at_origin =
            stats["origins"][0]["connections_idle"].as_u64().ok_or("/stats has no connections_idle")?;
        let rest = AtRest {
            descriptors: descriptors(pid)?,
            requests_in_flight: of("requests_in_flight")?,
            connections: of("connections")?,
        };
        let is_at_rest = rest.connections == 0 && rest.requests_in_flight == 0 && idle_at_origin == 0;
        if is_at_rest || began.elapsed() > Duration::from_secs(90) {
            return Ok(rest);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
