//! Many clients that request one URL at the same moment.

use std::{env, path::Path, process::Stdio};

use super::{AIM, Bench, Better, Figure, Metric, OURS, Result, Sitting, start_origin};
use crate::{
    origin::{ORIGIN, Server, origin_requests},
    proxies::{Nginx, Proxy},
    samples::{Sample, load, quantile, read},
};

const RECIPE: &str = r#"[
    {"route": "/1", "random_content": "1kb", "stages": [{"at": 0, "latency": "2s"}],
     "headers": {"cache-control": "public, max-age=3600"}},
    {"route": "/10", "random_content": "10kb", "stages": [{"at": 0, "latency": "2s"}],
     "headers": {"cache-control": "public, max-age=3600"}},
    {"route": "/dead", "random_content": "1kb",
     "stages": [{"at": 0, "status": 200}, {"at": "3s", "status": 503}],
     "headers": {"cache-control": "public, max-age=1"}}
]"#;
const CACHE: &str =
    "[cache]\nstrategy = \"breaker\"\nlimit = { bytes = \"256MiB\" }\n[bounds]\nconnections = 15000\n";
const CORES: &str = "0,1";
/// The server that answers the herd: its name, and the program that it needs.
const CONTENDERS: [(&str, &str); 4] =
    [(OURS, "taskset"), ("nginx", "nginx"), ("Varnish", "varnishd"), (HOLDER, "taskset")];
const HOLDER: &str = "a server that holds them";
/// Of some 190,000 requests; the breaker admits probes only.
const DEAD_AIM: f64 = 100.0;

pub(super) const BENCH: Bench = Bench {
    name: "herd",
    shows: "10,000 clients request one cold URL, or one whose origin is down: times and origin requests",
    method: "Clients have open connections; cache, origin and load share two cores. Cold: the origin answers after 2 s, and times are those of \
             the last 1 % of the clients after the first answer, which includes the load's own work. A server that only holds the requests \
             and then answers all shows that share: it has no aim. Dead: the key is stored, becomes stale, and the origin fails from its third \
             second on; requests for 20 s; no request may fail.",
    seconds: 110,
    needs: &["taskset"],
    peers: &["nginx", "varnishd"],
    metrics: &[
        Metric { name: "p99 after the first", unit: "ms", digits: 0, better: Better::Lower, aim: Some(1.0) },
        Metric { name: "origin requests", unit: "", digits: 0, better: Better::Lower, aim: Some(1.0) },
    ],
    limits: &[HOLDER],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let clients = sitting.scaled("10000", "100");
    let many = sitting.scaled("10,000", "100");
    let contenders: Vec<&str> =
        CONTENDERS.iter().filter(|(_, program)| sitting.has(program)).map(|(name, _)| *name).collect();
    let mut figures = Vec::new();
    for &kib in sitting.scaled(&["1", "10"][..], &["1"][..]) {
        let case = format!("{many} clients, cold, {kib} KiB");
        let of_case =
            sitting.interleave(&case, ["p99 after the first", "origin requests"], &contenders, 1, |at| {
                cold(sitting, contenders[at], clients, kib)
            })?;
        // A server without an origin has no figure of it.
        figures.extend(
            of_case.into_iter().filter(|one| one.contender != HOLDER || one.metric != "origin requests"),
        );
    }
    let case = format!("{many} clients, origin down");
    figures.extend(sitting.interleave(&case, ["origin requests"], &[OURS, AIM], 1, |at| {
        Ok([if at == 0 { dead(sitting, clients)? } else { DEAD_AIM }])
    })?);
    Ok(figures)
}

/// The milliseconds between the first answer and that of the 99th percentile, and the requests at the origin.
fn cold(sitting: &Sitting, contender: &str, clients: &str, kib: &str) -> Result<[f64; 2]> {
    let folder = &sitting.folder;
    if contender == HOLDER {
        let program = env::current_exe()?;
        let program = program.to_str().ok_or("a path that is not text")?;
        let _server = Server::start_on(CORES, &[program, "hold", clients, kib], ORIGIN)?;
        burst(folder, clients, &format!("http://{ORIGIN}/{kib}"))?;
        return Ok([p99_after_first(folder)?, 0.0]);
    }
    let _origin = start_origin(sitting, CORES, RECIPE)?;
    let nginx = Nginx { cores: CORES, is_sendfile: true, ..Nginx::new("nginx", "127.0.0.1:18083") };
    let proxy = match contender {
        "nginx" => Proxy::nginx(folder, &nginx)?,
        "Varnish" => Proxy::varnish(folder, CORES, "256m")?,
        _ => Proxy::stockade(folder, CORES, CACHE)?,
    };
    burst(folder, clients, &format!("http://{}/{kib}", proxy.address))?;
    let figures = [p99_after_first(folder)?, origin_requests()? as f64];
    drop(proxy);
    if contender == "nginx" {
        std::fs::remove_dir_all(nginx.store(folder))?;
    }
    Ok(figures)
}

fn burst(folder: &Path, clients: &str, url: &str) -> Result<()> {
    let mut generator = load(folder, &[url, "--burst", clients, "--timeout", "30s"])?;
    generator.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).status()?;
    Ok(())
}

fn p99_after_first(folder: &Path) -> Result<f64> {
    let samples = read(folder)?;
    let failed = failed(&samples);
    if failed > 0 {
        return Err(format!("{failed} of {} requests were not answered with 200", samples.len()).into());
    }
    let mut ended: Vec<u64> = samples.iter().map(Sample::ended_ns).collect();
    ended.sort_unstable();
    let first = *ended.first().ok_or("no client got a response")?;
    Ok((quantile(&ended, 0.99) - first) as f64 / 1e6)
}

fn failed(samples: &[Sample]) -> usize {
    samples.iter().filter(|sample| sample.code != 200).count()
}

/// The requests that reach an origin that fails.
fn dead(sitting: &Sitting, clients: &str) -> Result<f64> {
    let folder = &sitting.folder;
    let _origin = start_origin(sitting, CORES, RECIPE)?;
    let proxy = Proxy::stockade(folder, CORES, CACHE)?;
    let (url, lasts) = (format!("http://{}/dead", proxy.address), sitting.scaled("20s", "2s"));
    let arguments = [url.as_str(), "--connections", clients, "-d", lasts, "--think", "1s"];
    load(folder, &arguments)?.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).status()?;
    let samples = read(folder)?;
    let failed = failed(&samples);
    if failed > 0 {
        return Err(format!("{failed} of {} requests were not answered with 200", samples.len()).into());
    }
    Ok(origin_requests()? as f64)
}
