//! Ten thousand clients request one URL at the same moment: the requests that reach the origin, and the time from its
//! response to that of the last client.
//!
//! **Cold.** The key is not cached, and the origin responds after 2 s; all clients, whose connections are open, then get
//! the response. Times count from the first response: before that the origin had not responded. The same load on a
//! server that only holds requests and answers all of them at once shows the generator's and the machine's share. Proxy, origin and generator share two cores.
//!
//! **Dead.** The key is cached and becomes stale, and the origin fails from its third second on. The clients send
//! requests for 20 s, under `breaker`.
//!
//! `proxy_herd [CLIENTS]`; `taskset` has to be installed, and `ulimit -n` to allow for two descriptors a client.

use std::{
    env,
    error::Error,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Stdio,
};

use stockade_bench::{
    herd,
    origin::{ORIGIN, Server, serve},
    proxies::Proxy,
    samples::{Sample, load, quantile, read},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const RECIPE: &str = r#"[
    {"route": "/1", "random_content": "1kb", "stages": [{"at": 0, "latency": "2s"}],
     "headers": {"cache-control": "public, max-age=3600"}},
    {"route": "/10", "random_content": "10kb", "stages": [{"at": 0, "latency": "2s"}],
     "headers": {"cache-control": "public, max-age=3600"}},
    {"route": "/dead", "random_content": "1kb",
     "stages": [{"at": 0, "status": 200}, {"at": "3s", "status": 503}],
     "headers": {"cache-control": "public, max-age=1"}}
]"#;
const ROUNDS: usize = 5;
const CACHE: &str =
    "[cache]\nstrategy = \"breaker\"\nlimit = { bytes = \"256MiB\" }\n[bounds]\nconnections = 15000\n";

fn main() -> Result<()> {
    let first = env::args().nth(1);
    match first.as_deref() {
        Some("serve") => return serve(RECIPE.to_owned()),
        Some("hold") => {
            let clients = env::args().nth(2).ok_or("hold how many?")?.parse()?;
            return herd::hold(clients);
        }
        _ => {}
    }
    let clients = first.unwrap_or_else(|| "10000".to_owned());
    let folder = env::temp_dir().join(format!("stockade-proxy-herd-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    println!("| {clients} clients, after the first | p50, ms | p90 | p99 | last | origin saw | failed |");
    println!("|---|---|---|---|---|---|---|");
    let result = (0..ROUNDS).try_for_each(|_| {
        cold(&folder, &clients, "1")?;
        cold(&folder, &clients, "10")?;
        held(&folder, &clients)
    });
    let result = result.and_then(|()| dead(&folder, &clients));
    fs::remove_dir_all(&folder)?;
    result
}

fn cold(folder: &Path, clients: &str, kib: &str) -> Result<()> {
    let _origin = Server::origin_on("0,1")?;
    let proxy = Proxy::stockade(folder, "0,1", CACHE)?;
    burst(folder, clients, &format!("http://{}/{kib}", proxy.address))?;
    print_row(folder, &format!("`stockade proxy`, {kib} KiB"), &seen()?.to_string())
}

fn held(folder: &Path, clients: &str) -> Result<()> {
    let program = env::current_exe()?;
    let program = program.to_str().ok_or("a path that is no text")?;
    let _server = Server::start_on("0,1", &[program, "hold", clients], ORIGIN)?;
    burst(folder, clients, &format!("http://{ORIGIN}/1"))?;
    print_row(folder, "a server that holds them, 1 KiB", "")
}

fn burst(folder: &Path, clients: &str, url: &str) -> Result<()> {
    let mut generator = load(folder, &[url, "--burst", clients, "--timeout", "20s"])?;
    generator.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).status()?;
    Ok(())
}

fn print_row(folder: &Path, name: &str, seen: &str) -> Result<()> {
    let samples = read(folder)?;
    let failed = samples.iter().filter(|sample| sample.code != 200).count();
    let mut ended: Vec<u64> =
        samples.iter().filter(|sample| sample.code == 200).map(Sample::ended_ns).collect();
    ended.sort_unstable();
    let first = *ended.first().ok_or("no client got a response")?;
    let after = |share: f64| (quantile(&ended, share) - first) as f64 / 1e6;
    println!(
        "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {seen} | {failed} |",
        after(0.5),
        after(0.9),
        after(0.99),
        after(1.0)
    );
    Ok(())
}

fn dead(folder: &Path, clients: &str) -> Result<()> {
    let _origin = Server::origin_on("0,1")?;
    let proxy = Proxy::stockade(folder, "0,1", CACHE)?;
    let url = format!("http://{}/dead", proxy.address);
    let arguments = [url.as_str(), "--connections", clients, "-d", "20s", "--think", "1s"];
    load(folder, &arguments)?.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let samples = read(folder)?;
    let failed = samples.iter().filter(|sample| sample.code != 200).count();
    println!(
        "\nDead: {} requests of {clients} clients, {failed} not answered with 200; the origin saw {}.",
        samples.len(),
        counts()?
    );
    Ok(())
}

/// The number of requests that the origin has answered.
fn seen() -> Result<u64> {
    let counts: serde_json::Value = serde_json::from_str(&counts()?)?;
    counts["total_requests"].as_u64().ok_or_else(|| format!("no total in {counts}").into())
}

fn counts() -> Result<String> {
    let mut tcp = TcpStream::connect(ORIGIN)?;
    write!(tcp, "GET /_admin/current_count HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut reply = String::new();
    tcp.read_to_string(&mut reply)?;
    Ok(reply.split_once("\r\n\r\n").ok_or("no reply")?.1.to_owned())
}
