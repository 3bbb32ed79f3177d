//! Performs the faults, and checks that each took effect.

use std::{
    fs,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Result,
    child::{OriginProcess, ProxyProcess, ProxySettings, Reloadable, STEADY_DESCRIPTORS, signal},
    client::call,
    content::HOST,
    context::{Context, Purge, PurgeScope},
    origin::unix_ms,
    sampler::descriptors,
    schedule::{Fault, Scheduled},
    traffic::Role,
};

/// The clock of the rolled proxy.
const HOUR_SECONDS: i64 = 3_600;
const DAY_SECONDS: i64 = 86_400;
/// Enough for one line of an access log.
const LOG_TAIL_BYTES: u64 = 8_192;
const EFFECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A process that ended on purpose.
#[derive(Clone, Debug)]
pub struct Ended {
    pub role: Role,
    pub pid: u32,
    pub lived: Duration,
    pub drained: Duration,
    /// `None`: by a signal.
    pub exit_code: Option<i32>,
}

pub struct Injector {
    pub context: Arc<Context>,
    pub settings: [ProxySettings; 2],
    pub reloadable: [Reloadable; 2],
    pub proxies: [ProxyProcess; 2],
    pub origin: OriginProcess,
    pub ended: Vec<Ended>,
    /// Old processes that drain.
    pub rolls: JoinSet<std::result::Result<Ended, String>>,
    /// A small file system, if it could be mounted.
    pub small_disk: Option<PathBuf>,
    pub log_lines: u64,
    pub random: Pcg64Mcg,
}

type Outcome = std::result::Result<String, Box<dyn std::error::Error + Send + Sync>>;

impl Injector {
    /// Performs the schedule. A fault that has no effect is recorded as one that did not hold.
    pub async fn run(&mut self, schedule: &[Scheduled]) -> u64 {
        let mut without_effect = 0;
        for one in schedule {
            sleep_until(self.context.started + one.at).await;
            without_effect += u64::from(!self.perform(one).await);
            while let Some(ended) = self.rolls.try_join_next() {
                without_effect += u64::from(!self.collect(ended));
            }
        }
        while let Some(ended) = self.rolls.join_next().await {
            without_effect += u64::from(!self.collect(ended));
        }
        without_effect
    }

    fn collect(
        &mut self,
        ended: std::result::Result<std::result::Result<Ended, String>, tokio::task::JoinError>,
    ) -> bool {
        if let Ok(Ok(ended)) = ended {
            let is_clean = ended.exit_code == Some(0);
            self.ended.push(ended);
            return is_clean;
        }
        false
    }

    async fn perform(&mut self, one: &Scheduled) -> bool {
        let (fault, started) = (one.fault, self.context.elapsed());
        if matches!(fault, Fault::ClockForward | Fault::ClockBack) && self.settings[1].clock.is_none() {
            // Named in the report.
            return true;
        }
        let duration = fault.duration(one.slot);
        if fault == Fault::Roll {
            // Its window closes when the old process has ended.
            return match self.roll(started).await {
                Ok(()) => true,
                Err(error) => {
                    self.context.record_fault(fault, started, &Err(error.to_string()));
                    false
                }
            };
        }
        let window = self.context.open_window(fault);
        let outcome = match fault {
            Fault::ReloadBySignal => self.reload_by_signal().await,
            Fault::ReloadByAdmin => self.reload_by_admin().await,
            Fault::PurgeUrl | Fault::PurgeTag | Fault::PurgePrefix | Fault::PurgeAll => {
                self.purge(fault).await
            }
            Fault::OriginKilled => self.kill_origin(duration).await,
            Fault::OriginStopped => self.stop_origin(duration).await,
            Fault::DescriptorsFull => self.fill_descriptors(duration).await,
            Fault::LogDiskFull => self.fill_log_disk(duration).await,
            Fault::ClockForward => self.step_clock(HOUR_SECONDS, duration).await,
            Fault::ClockBack => self.step_clock(-HOUR_SECONDS, duration).await,
            Fault::Roll => Err("a roll has a window of its own".into()),
        };
        self.context.close_window(window);
        let outcome = outcome.map_err(|error| error.to_string());
        self.context.record_fault(fault, started, &outcome);
        outcome.is_ok()
    }

    /// SIGHUP after the log was renamed, with a changed route.
    async fn reload_by_signal(&mut self) -> Outcome {
        let mut lines = 0;
        for role in Role::ALL {
            lines += self.rotate_log(role).await?;
        }
        self.log_lines += lines;
        Ok(format!("both proxies opened a new log; {lines} lines of the old ones are JSON"))
    }

    /// Renames a log, reloads, and checks the lines of the renamed file.
    async fn rotate_log(&mut self, role: Role) -> Result<u64> {
        let index = role as usize;
        let log = self.settings[index].log();
        let renamed = log.with_extension("log.1");
        fs::rename(&log, &renamed)?;
        self.reloadable[index].negative_seconds ^= 1;
        self.settings[index].rewrite(&self.proxies[index], &self.reloadable[index])?;
        signal(self.proxies[index].pid, Signal::HUP)?;
        self.until("a new log after SIGHUP", || Ok(log.exists())).await?;
        sleep(Duration::from_millis(500)).await;
        let lines = tokio::task::spawn_blocking(move || checked_lines(&renamed)).await??;
        Ok(lines)
    }

    async fn until(&self, name: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !is_so()? {
            if began.elapsed() > EFFECT_TIMEOUT {
                return Err(format!("{name}: not within {} s", EFFECT_TIMEOUT.as_secs()).into());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn reload_by_admin(&mut self) -> Outcome {
        for role in Role::ALL {
            let index = role as usize;
            self.reloadable[index].negative_seconds ^= 1;
            self.settings[index].rewrite(&self.proxies[index], &self.reloadable[index])?;
            let (status, _, body) = call(self.proxies[index].admin, "POST", "/reload").await?;
            let body: Value = serde_json::from_slice(&body)?;
            let changes = body["changes"].as_array().map_or(0, Vec::len);
            if status != 200 || changes == 0 {
                return Err(format!("{}: status {status}, {body}", role.name()).into());
            }
        }
        Ok("both proxies reported the changed route".to_owned())
    }

    async fn purge(&mut self, fault: Fault) -> Outcome {
        let id = self.random.random_range(0..100);
        let (target, scope): (String, fn(u32) -> PurgeScope) = match fault {
            Fault::PurgeUrl => (format!("/purge?url=http://{HOST}/plain/{id}"), |id| {
                PurgeScope::Path(format!("/plain/{id}"))
            }),
            Fault::PurgeTag => ("/purge?tag=class-swr".to_owned(), |_| PurgeScope::Class("swr")),
            Fault::PurgePrefix => (format!("/purge?prefix=http://{HOST}/sie/"), |_| PurgeScope::Class("sie")),
            _ => ("/purge_all".to_owned(), |_| PurgeScope::All),
        };
        let mut purged = Vec::new();
        for role in Role::ALL {
            let started_ms = unix_ms();
            let (status, _, body) = call(self.proxies[role as usize].admin, "POST", &target).await?;
            let ended_ms = unix_ms() + 1;
            self.context.add_purge(Purge { role, scope: scope(id), started_ms, ended_ms });
            if status != 200 {
                return Err(format!("{}: status {status}", role.name()).into());
            }
            let text = String::from_utf8_lossy(&body).split_whitespace().collect::<Vec<_>>().join(" ");
            purged.push(format!("{}: {text}", role.name()));
        }
        Ok(format!("{target}: {}", purged.join(", ")))
    }

    async fn kill_origin(&mut self, duration: Duration) -> Outcome {
        self.origin.kill().await?;
        sleep(duration).await;
        self.origin.restart().await?;
        Ok(format!("no listener for {:.0} s", duration.as_secs_f64()))
    }

    async fn stop_origin(&mut self, duration: Duration) -> Outcome {
        self.origin.signal(Signal::STOP)?;
        sleep(duration).await;
        self.origin.signal(Signal::CONT)?;
        Ok(format!("no progress for {:.0} s", duration.as_secs_f64()))
    }

    /// Idle connections until the steady proxy has no descriptor left, again and again: it closes idle ones.
    async fn fill_descriptors(&mut self, duration: Duration) -> Outcome {
        let (address, pid) = (self.context.target(Role::Steady).address(), self.context.pid(Role::Steady));
        let (began, mut held, mut most, mut opened) = (Instant::now(), Vec::new(), 0, 0_u64);
        while began.elapsed() < duration {
            for _ in 0..STEADY_DESCRIPTORS {
                if descriptors(pid)? >= STEADY_DESCRIPTORS - 2 {
                    break;
                }
                let connect = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address));
                if let Ok(Ok(tcp)) = connect.await {
                    held.push(tcp);
                    opened += 1;
                }
                most = most.max(descriptors(pid)?);
                tokio::task::yield_now().await;
            }
            most = most.max(descriptors(pid)?);
            // Those that the proxy has closed make room for new ones.
            held.retain(|tcp| {
                matches!(tcp.try_read(&mut [0; 16]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
            });
            sleep(Duration::from_millis(100)).await;
        }
        drop(held);
        if most + 4 < STEADY_DESCRIPTORS {
            return Err(format!("{most} descriptors of {STEADY_DESCRIPTORS} were in use at most").into());
        }
        Ok(format!("{most} descriptors of {STEADY_DESCRIPTORS} in use, {opened} idle connections opened"))
    }

    /// The steady proxy's log on a file system of 64 KiB, or on `/dev/full`.
    async fn fill_log_disk(&mut self, duration: Duration) -> Outcome {
        let (index, dropped_before) = (Role::Steady as usize, self.log_dropped().await?);
        self.reloadable[index].log = match &self.small_disk {
            Some(folder) => folder.join("access.log"),
            None => PathBuf::from("/dev/full"),
        };
        self.settings[index].rewrite(&self.proxies[index], &self.reloadable[index])?;
        signal(self.proxies[index].pid, Signal::HUP)?;
        sleep(duration).await;
        let dropped = self.log_dropped().await? - dropped_before;
        let full = self.reloadable[index].log.clone();
        self.reloadable[index].log = self.settings[index].log();
        self.lines_so_far(index).await?;
        signal(self.proxies[index].pid, Signal::HUP)?;
        let log = self.reloadable[index].log.clone();
        self.until(
            "a new log after the full one",
            || Ok(fs::metadata(&log).is_ok_and(|file| file.len() > 0)),
        )
        .await?;
        if self.small_disk.is_some() {
            fs::remove_file(&full)?;
        }
        if dropped == 0 {
            return Err("no line was dropped: the disk was not full".into());
        }
        let disk = if self.small_disk.is_some() { "a file system of 64 KiB" } else { "/dev/full" };
        Ok(format!("{disk}: {dropped} lines dropped; the log works again"))
    }

    /// Checks and removes the log, so that new lines show that it is written again.
    async fn lines_so_far(&mut self, index: usize) -> Result<()> {
        self.settings[index].rewrite(&self.proxies[index], &self.reloadable[index])?;
        let log = self.reloadable[index].log.clone();
        self.log_lines += tokio::task::spawn_blocking(move || checked_lines(&log)).await??;
        Ok(())
    }

    async fn log_dropped(&self) -> Result<u64> {
        let (_, _, body) = call(self.proxies[0].admin, "GET", "/stats").await?;
        let stats: Value = serde_json::from_slice(&body)?;
        Ok(stats["log_dropped"].as_u64().ok_or("/stats has no log_dropped")?)
    }

    async fn step_clock(&mut self, seconds: i64, duration: Duration) -> Outcome {
        let stepped = self.set_clock(seconds).await;
        if stepped.is_ok() {
            sleep(duration).await;
        }
        let date_off = self.set_clock(0).await?;
        stepped?;
        Ok(format!(
            "{seconds:+} s in the access log of the rolled proxy, then right again; then Date was off by {date_off} s"
        ))
    }

    /// Shifts the clock of the rolled proxy and waits until its access log shows it. Returns how far its `Date` is off.
    async fn set_clock(&self, seconds: i64) -> Result<i64> {
        let (_, file) = self.settings[1].clock.as_ref().ok_or("no clock library")?;
        fs::write(file, format!("{seconds:+}\n"))?;
        let log = self.settings[1].log();
        self.until("the shifted clock in the access log", || {
            let shown = last_log_seconds(&log)?;
            let real = (unix_ms() / 1_000).cast_signed();
            // Times of the day: a log line has no more here.
            let off = (shown - real - seconds).rem_euclid(DAY_SECONDS);
            Ok(off.min(DAY_SECONDS - off) <= 3)
        })
        .await?;
        let (_, date, _) = call(self.proxies[1].admin, "GET", "/healthz").await?;
        let date = httpdate::parse_http_date(&date.ok_or("no Date")?)?;
        let shown = date.duration_since(std::time::UNIX_EPOCH)?.as_secs().cast_signed();
        Ok(shown - (unix_ms() / 1_000).cast_signed() - seconds)
    }

    /// A new process takes new connections; the old one gets SIGTERM and completes its open requests.
    async fn roll(&mut self, started: Duration) -> Result<()> {
        let index = Role::Rolled as usize;
        self.reloadable[index].log = self.settings[index].log();
        let new = self.settings[index].start(&self.reloadable[index]).await?;
        let window = self.context.open_window(Fault::Roll);
        self.context.target(Role::Rolled).set_address(new.address);
        self.context.set_pid(Role::Rolled, new.pid);
        let mut old = std::mem::replace(&mut self.proxies[index], new);
        let context = Arc::clone(&self.context);
        self.rolls.spawn(async move {
            // A load balancer, too, has connections under way to the old address.
            sleep(Duration::from_millis(500)).await;
            let ended = old.terminate().await.map_err(|error| error.to_string());
            context.close_window(window);
            let ended = ended.map(|(status, drained)| Ended {
                role: Role::Rolled,
                pid: old.pid,
                lived: old.started.elapsed(),
                drained,
                exit_code: status.code(),
            });
            let outcome = ended.as_ref().map_err(Clone::clone).and_then(|ended| {
                let text = format!(
                    "process {} ended after a drain of {:.1} s, exit code {:?}",
                    ended.pid,
                    ended.drained.as_secs_f64(),
                    ended.exit_code
                );
                if ended.exit_code == Some(0) { Ok(text) } else { Err(text) }
            });
            context.record_fault(Fault::Roll, started, &outcome);
            ended
        });
        Ok(())
    }
}

/// The number of lines of a log, which is removed. Each has to be a JSON object.
fn checked_lines(log: &Path) -> Result<u64> {
    let text = fs::read_to_string(log)?;
    let mut lines = 0;
    for line in text.lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(Value::Object(_)) => lines += 1,
            _ => return Err(format!("line {} of {} is not JSON: {line}", lines + 1, log.display()).into()),
        }
    }
    fs::remove_file(log)?;
    Ok(lines)
}

/// The time of the last whole line of a log, in seconds of its day.
fn last_log_seconds(log: &Path) -> Result<i64> {
    let mut file = fs::File::open(log)?;
    let start = file.metadata()?.len().saturating_sub(LOG_TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let tail = String::from_utf8_lossy(&tail).into_owned();
    let line = tail.rsplit('\n').nth(1).ok_or("no line in the access log")?;
    let record: Value = serde_json::from_str(line)?;
    // 2026-01-31T12:34:56.789Z
    let time = record["time"].as_str().and_then(|time| time.get(11..19)).ok_or("a line without a time")?;
    let parts: Vec<i64> = time.split(':').map(str::parse).collect::<std::result::Result<_, _>>()?;
    Ok(parts.iter().fold(0, |seconds, part| seconds * 60 + part))
}

/// Mounts a file system of 64 KiB, which takes root; `None` without.
pub fn mount_small_disk(folder: &Path) -> Option<PathBuf> {
    let folder = folder.join("small-disk");
    fs::create_dir_all(&folder).ok()?;
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&folder).stderr(std::process::Stdio::null());
    matches!(mount.status(), Ok(status) if status.success()).then_some(folder)
}

pub fn unmount(folder: &Path) {
    // The folder may be busy for a moment; it is in memory.
    let _ = Command::new("umount").arg("-l").arg(folder).status();
    let _ = fs::remove_dir(folder);
}

pub fn random(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed.wrapping_add(0x5EED))
}
