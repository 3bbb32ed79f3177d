//! Response times of polite clients of `stockade proxy` with hostile ones, and the memory of the proxy.
//!
//! From one address: 10,000 heads that never end, 10,000 idle connections, and 1,000 clients that read a byte a second of a
//! stored response of 4 MiB. Each opens a new connection when the proxy closes its own. From another address `stockade load` requests a
//! stored response of 1 KiB, 300 times a second for 20 s: first alone, then with the hostile clients, once they are
//! there. Three tables of connections: of 22,000, which takes all of them, of 18,000, and of the default of 10,000. The limit of
//! the cache is 64 MiB.
//!
//! The proxy and its origin have the first core, all clients the second. There the polite load has a real-time priority, because
//! otherwise the processor time of the hostile clients, and not the proxy's, would be in its response times.
//!
//! The documented memory is 1.15 times the limit, 128 KiB for each connection of clients, 256 KiB for each of the 256 to the origin, and
//! 50 MiB.
//!
//! `proxy_hostile [ROUNDS]`; `taskset` and `chrt` have to be installed, `ulimit -n` has to allow for 20,000 descriptors, and the user
//! to set priorities (root may).

use std::{
    env,
    error::Error,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use stockade_bench::{
    hostile,
    origin::{Server, pinned, serve},
    process::resident_bytes_of,
    proxies::Proxy,
    samples::{load, quantile, read},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const RECIPE: &str = r#"[
    {"route": "/small", "random_content": "1kb", "stages": [{"at": 0}],
     "headers": {"cache-control": "public, max-age=3600"}},
    {"route": "/large", "random_content": "4096kb", "stages": [{"at": 0}],
     "headers": {"cache-control": "public, max-age=3600"}}
]"#;
const SLOW_HEADS: usize = 10_000;
const IDLE: usize = 10_000;
const READERS: usize = 1_000;
const LIMIT_MIB: u64 = 64;
const ORIGIN_CONNECTIONS: u64 = 256;
/// For the hostile clients to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("serve") => return serve(RECIPE.to_owned()),
        Some("attack") => {
            let address = arguments.get(1).ok_or("attack which address?")?.parse()?;
            let number = |at: usize| arguments.get(at).map_or(Ok(0), |number| number.parse::<usize>());
            return hostile::attack(address, number(2)?, number(3)?, number(4)?);
        }
        _ => {}
    }
    let rounds: usize = arguments.first().map_or(Ok(3), |rounds| rounds.parse())?;
    let folder = env::temp_dir().join(format!("stockade-proxy-hostile-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    println!(
        "| connections at most | p50 alone, ms | p99 alone | p50 with them | p99 with them | p99, times | failed | hostile, open | opened | \
         resident at most, MiB | documented | proxy's core busy |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let result = (0..rounds).try_for_each(|_| {
        [22_000, 18_000, 10_000].into_iter().try_for_each(|table| print_row(&folder, table))
    });
    fs::remove_dir_all(&folder)?;
    result
}

/// Ends the hostile clients when it is dropped.
struct Attack {
    process: Child,
    lines: mpsc::Receiver<String>,
    clients: u64,
}

impl Attack {
    fn start(address: &str, slow_heads: usize, idle: usize, readers: usize) -> Result<Self> {
        let clients = [slow_heads, idle, readers].map(|count| count.to_string());
        let mut command = pinned(1);
        let mut process = command
            .arg(env::current_exe()?)
            .args(["attack", address])
            .args(&clients)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Self { process, lines, clients: (slow_heads + idle + readers) as u64 })
    }

    /// The open connections, and all that were opened, of the last line.
    fn latest(&self) -> Option<(u64, u64)> {
        let line = self.lines.try_iter().last()?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        Some((numbers.iter().take(3).sum(), *numbers.get(3)?))
    }

    /// Until all have arrived.
    fn wait(&self) {
        let started = Instant::now();
        while started.elapsed() < ARRIVAL_MAX && self.latest().is_none_or(|(_, opened)| opened < self.clients)
        {
            thread::sleep(Duration::from_secs(1));
        }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn print_row(folder: &Path, connections_max: u64) -> Result<()> {
    let _origin = Server::origin()?;
    let settings = format!(
        "[cache]\nlimit = {{ bytes = \"{LIMIT_MIB}MiB\", max_object = \"8MiB\" }}\n[bounds]\nconnections = {connections_max}\n"
    );
    let proxy = Proxy::stockade(folder, "0", &settings)?;
    let (alone, _) = polite(folder, &proxy)?;
    // Two processes, because each has its own bound on descriptors.
    let attacks =
        [Attack::start(proxy.address, SLOW_HEADS, 0, READERS)?, Attack::start(proxy.address, 0, IDLE, 0)?];
    attacks.iter().for_each(Attack::wait);
    let (started, cpu_before) = (Instant::now(), proxy.cpu_seconds()?);
    let (attacked, resident) = polite(folder, &proxy)?;
    let busy = (proxy.cpu_seconds()? - cpu_before) / started.elapsed().as_secs_f64();
    let latest = attacks.each_ref().map(|attack| attack.latest().unwrap_or_default());
    let (open, opened) = (latest[0].0 + latest[1].0, latest[0].1 + latest[1].1);
    let documented =
        LIMIT_MIB * 115 / 100 + connections_max * 128 / 1_024 + ORIGIN_CONNECTIONS * 256 / 1_024 + 50;
    println!(
        "| {connections_max} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} of {} | {open} | {opened} | {} | {documented} | {:.0} % |",
        alone.p50_ms,
        alone.p99_ms,
        attacked.p50_ms,
        attacked.p99_ms,
        attacked.p99_ms / alone.p99_ms,
        attacked.failed,
        attacked.requests,
        resident >> 20,
        100.0 * busy,
    );
    Ok(())
}

struct Times {
    p50_ms: f64,
    p99_ms: f64,
    failed: usize,
    requests: usize,
}

/// The times of polite clients, and the proxy's resident bytes at most meanwhile.
fn polite(folder: &Path, proxy: &Proxy) -> Result<(Times, u64)> {
    let url = format!("http://{}/small", proxy.address);
    let arguments = [&*url, "--rate", "300/s", "-d", "20s", "--timeout", "10s"];
    let load = load(folder, &arguments)?;
    let mut generator = pinned(1);
    generator.args(["chrt", "--fifo", "10"]).arg(load.get_program()).args(load.get_args());
    let mut generator = generator.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).spawn()?;
    let mut resident = 0;
    while generator.try_wait()?.is_none() {
        resident = resident.max(resident_bytes_of(proxy.process())?);
        thread::sleep(Duration::from_millis(200));
    }
    let samples = read(folder)?;
    let mut took: Vec<u64> = samples.iter().map(|sample| sample.took_ns).collect();
    took.sort_unstable();
    let ms = |share| quantile(&took, share) as f64 / 1e6;
    let failed = samples.iter().filter(|sample| sample.code != 200).count();
    Ok((Times { p50_ms: ms(0.5), p99_ms: ms(0.99), failed, requests: samples.len() }, resident))
}
