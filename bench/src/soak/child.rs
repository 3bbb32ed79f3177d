//! The child processes: proxies and the origin.

use std::{
    env,
    fs::{self, OpenOptions},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use super::{Result, client::call, content::SWR_SECONDS, traffic::Role};

/// Descriptors of the steady proxy: enough for the traffic, and few enough to use them up.
pub const STEADY_DESCRIPTORS: u64 = 512;
const ROLLED_DESCRIPTORS: u64 = 4_096;
/// The proxy drains for 40 s at most.
const EXIT_TIMEOUT: Duration = Duration::from_secs(50);
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A port that is free now.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no process id")?;
    Ok(kill_process(pid, signal)?)
}

/// The files and addresses of a proxy, which outlive its processes.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    pub role: Role,
    pub program: PathBuf,
    pub folder: PathBuf,
    pub origin: SocketAddr,
    /// The library that shifts the clock, and the file with the shift.
    pub clock: Option<(PathBuf, PathBuf)>,
}

pub struct ProxyProcess {
    pub child: Child,
    pub pid: u32,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub started: Instant,
    config: PathBuf,
}

/// The settings that a reload changes.
#[derive(Clone, Debug)]
pub struct Reloadable {
    pub log: PathBuf,
    /// Lifetime of 404 responses of one route that declare none.
    pub negative_seconds: u32,
}

impl ProxySettings {
    pub fn log(&self) -> PathBuf {
        self.folder.join(format!("{}-access.log", self.role.name()))
    }

    pub fn reloadable(&self) -> Reloadable {
        Reloadable { log: self.log(), negative_seconds: 5 }
    }

    /// Starts a process and waits until it is ready.
    pub async fn start(&self, reloadable: &Reloadable) -> Result<ProxyProcess> {
        let (address, admin) = (free_address()?, free_address()?);
        let config = self.folder.join(format!("{}-{}.toml", self.role.name(), address.port()));
        fs::write(&config, self.config(address, admin, reloadable))?;
        let errors = self.folder.join(format!("{}-stderr.log", self.role.name()));
        let errors = OpenOptions::new().create(true).append(true).open(errors)?;
        let descriptors = match self.role {
            Role::Steady => STEADY_DESCRIPTORS,
            Role::Rolled => ROLLED_DESCRIPTORS,
        };
        let mut command = Command::new("prlimit");
        // Both programs become the next one and keep the process id. The proxy ends with this process.
        command
            .arg(format!("--nofile={descriptors}:{descriptors}"))
            .args(["setpriv", "--pdeathsig", "TERM"])
            .arg(&self.program)
            .args(["proxy", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .kill_on_drop(true);
        if let Some((library, shift)) = &self.clock {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", shift)
                .env("FAKETIME_CACHE_DURATION", "1")
                // A step changes the wall clock alone, as `date --set` does.
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let child = command.spawn().map_err(|error| format!("prlimit: {error}"))?;
        let pid = child.id().ok_or("a process without an id")?;
        let mut process = ProxyProcess { child, pid, address, admin, started: Instant::now(), config };
        process.wait_until_ready().await?;
        Ok(process)
    }

    fn config(&self, address: SocketAddr, admin: SocketAddr, reloadable: &Reloadable) -> String {
        format!(
            "listen = [\"{address}\"]\nthreads = 2\n\n[admin]\nlisten = \"{admin}\"\n\n\
             [cache]\nstrategy = \"breaker\"\nswr = \"{SWR_SECONDS}s\"\n\
             limit = {{ bytes = \"64MiB\", max_object = \"2MiB\" }}\n\
             load = {{ max_concurrent = 256, deadline = \"10s\" }}\n\n\
             [log]\nformat = \"json\"\npath = \"{log}\"\n\n\
             [timeouts]\nhead = \"5s\"\nbody = \"20s\"\nwrite = \"20s\"\nidle = \"20s\"\ndrain = \"40s\"\n\n\
             [[origin]]\nname = \"soak\"\nurl = \"http://{origin}\"\ntimeouts = {{ idle = \"10s\" }}\n\n\
             [[route]]\npath = \"/*\"\n\n[[route]]\npath = \"/error/*\"\n\n\
             [[route]]\npath = \"/missing/*\"\nnegative_ttl = \"{negative}s\"\n",
            log = reloadable.log.display(),
            origin = self.origin,
            negative = reloadable.negative_seconds,
        )
    }

    /// Writes the file that a reload reads.
    pub fn rewrite(&self, process: &ProxyProcess, reloadable: &Reloadable) -> Result<()> {
        Ok(fs::write(&process.config, self.config(process.address, process.admin, reloadable))?)
    }
}

impl ProxyProcess {
    async fn wait_until_ready(&mut self) -> Result<()> {
        while self.started.elapsed() < START_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("the proxy ended at its start: {status}").into());
            }
            if matches!(call(self.admin, "GET", "/readyz").await, Ok((200, ..))) {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err(format!("the proxy at {} is not ready after {} s", self.admin, START_TIMEOUT.as_secs()).into())
    }

    /// SIGTERM, and the exit status with the time that it took.
    pub async fn terminate(&mut self) -> Result<(ExitStatus, Duration)> {
        let began = Instant::now();
        signal(self.pid, Signal::TERM)?;
        let status = timeout(EXIT_TIMEOUT, self.child.wait()).await;
        let status =
            status.map_err(|_| format!("no exit within {} s of SIGTERM", EXIT_TIMEOUT.as_secs()))??;
        Ok((status, began.elapsed()))
    }
}

/// The origin, which can be killed and started again at the same address.
pub struct OriginProcess {
    pub address: SocketAddr,
    pub child: Child,
    seed: u64,
}

impl OriginProcess {
    pub async fn start(seed: u64) -> Result<Self> {
        let address = free_address()?;
        Ok(Self { address, child: spawn_origin(address, seed).await?, seed })
    }

    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    pub async fn restart(&mut self) -> Result<()> {
        self.child = spawn_origin(self.address, self.seed).await?;
        Ok(())
    }

    pub fn signal(&self, name: Signal) -> Result<()> {
        signal(self.child.id().ok_or("the origin has ended")?, name)
    }
}

async fn spawn_origin(address: SocketAddr, seed: u64) -> Result<Child> {
    let child = Command::new(env::current_exe()?)
        .args(["--origin", &address.to_string(), "--seed", &seed.to_string()])
        // It ends when this pipe is closed.
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let began = Instant::now();
    while TcpStream::connect(address).await.is_err() {
        if began.elapsed() > START_TIMEOUT {
            return Err(format!("no origin listens at {address}").into());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(child)
}

/// libfaketime for programs with threads, where Debian installs it.
pub fn clock_library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.filter_map(std::result::Result::ok);
    let in_folder = |folder: &Path| folder.join("faketime/libfaketimeMT.so.1");
    folders.map(|folder| in_folder(&folder.path())).find(|library| library.exists())
}
