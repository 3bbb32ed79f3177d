//! Loads whose first request is silent, late or closed: the time of the requests that wait for it.

use std::{
    collections::HashMap,
    env, fs,
    future::pending,
    io::{self, Read, Write},
    net::TcpStream,
    sync::{Arc, Barrier, Mutex},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime, time::sleep};

use super::{AIM, Bench, Better, Figure, Metric, OURS, Result, Sitting};
use crate::{
    origin::{ORIGIN, Server, get},
    proxies::{Nginx, Proxy},
};

const CORES: &str = "0,1";
const CONTENDERS: [(&str, &str); 4] =
    [(OURS, "taskset"), ("nginx", "nginx"), ("Varnish", "varnishd"), (AIM, "taskset")];
const CACHE: &str = "[cache]\nstrategy = \"swr\"\nload = { hedge_after = \"learned\" }\n";
/// The time in which the origin answers all other requests.
const LOAD: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_secs(1);
const CALLERS: usize = 10;
/// Of the keys, whose first request has one of these fates.
const KEYS: usize = 400;
const SILENT: usize = 200;
const LATE: usize = 250;
const CLOSED: usize = 300;
/// When a caller gives up.
const GIVES_UP: Duration = Duration::from_secs(10);

pub(super) const BENCH: Bench = Bench {
    name: "leaders",
    shows: "ten callers of each key, whose first request the origin never answers, answers late or closes: waits and extra requests",
    method: "Ten callers ask for one cold key after another, all at once, each over a connection of its own. The origin answers after 20 ms, but of \
             400 keys it leaves the first request of one unanswered, answers that of another after 1 s, and closes the connection of a third. A \
             caller gives up after 10 s. Ours hedges after twice the 99th percentile of its own loads (`hedge_after = \"learned\"`); nginx has \
             `proxy_cache_lock` with its default times of 5 s, and looks for a response every 500 ms; Varnish has its defaults. The aim is \
             twice a usual load for all callers, and one extra request in a hundred.",
    seconds: 300,
    needs: &["taskset"],
    peers: &["nginx", "varnishd"],
    metrics: &[
        Metric { name: ALL, unit: "ms", digits: 0, better: Better::Lower, aim: Some(1.0) },
        Metric { name: BEHIND_FAILED, unit: "ms", digits: 0, better: Better::Lower, aim: Some(1.0) },
        Metric { name: ERRORS, unit: "%", digits: 2, better: Better::Lower, aim: None },
        Metric { name: EXTRA, unit: "%", digits: 2, better: Better::Lower, aim: None },
    ],
    limits: &[],
    measure,
    child: Some(serve_unsteadily),
};

const ALL: &str = "p99 of all waits";
const BEHIND_FAILED: &str = "mean wait for the three";
const ERRORS: &str = "callers without a page";
const EXTRA: &str = "extra requests";

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let keys = sitting.scaled(KEYS, 20);
    let contenders: Vec<&str> =
        CONTENDERS.iter().filter(|(_, program)| sitting.has(program)).map(|(name, _)| *name).collect();
    let metrics = [ALL, BEHIND_FAILED, ERRORS, EXTRA];
    let figures =
        sitting.interleave("three of 400 keys", metrics, &contenders, 1, |at| match contenders[at] {
            AIM => Ok([2e3 * LOAD.as_secs_f64(), f64::NAN, f64::NAN, 1.0]),
            contender => wait_for_keys(sitting, contender, keys),
        })?;
    Ok(figures.into_iter().filter(|one| one.rounds.iter().all(|value| value.is_finite())).collect())
}

fn wait_for_keys(sitting: &Sitting, contender: &str, keys: usize) -> Result<[f64; 4]> {
    let folder = &sitting.folder;
    let program = env::current_exe()?;
    let program = program.to_str().ok_or("a path that is not text")?;
    let _origin = Server::start_on(CORES, &[program, "child", BENCH.name], ORIGIN)?;
    let nginx = Nginx { cores: CORES, lock: "5s", ..Nginx::new("nginx", "127.0.0.1:18083") };
    let proxy = match contender {
        "nginx" => Proxy::nginx(folder, &nginx)?,
        "Varnish" => Proxy::varnish(folder, CORES, "256m")?,
        _ => Proxy::stockade(folder, CORES, CACHE)?,
    };
    let barrier = Barrier::new(CALLERS);
    let calls = thread::scope(|scope| {
        let callers: Vec<_> =
            (0..CALLERS).map(|_| scope.spawn(|| ask_for_keys(proxy.address, keys, &barrier))).collect();
        callers.into_iter().map(|caller| caller.join().expect("no caller panics")).collect::<Vec<_>>()
    });
    let calls: Vec<Call> = calls.into_iter().flatten().collect();
    let ms = |wait: Duration| wait.as_secs_f64() * 1e3;
    let mut waits: Vec<Duration> = calls.iter().map(|call| call.wait).collect();
    waits.sort_unstable();
    let is_failed = |call: &&Call| [SILENT, LATE, CLOSED].contains(&call.key);
    let behind: Vec<f64> = calls.iter().filter(is_failed).map(|call| ms(call.wait)).collect();
    let errors = calls.iter().filter(|call| !call.is_answered).count();
    let requests: f64 = String::from_utf8(get(ORIGIN, "/count")?)?.parse()?;
    let figures = [
        ms(waits[waits.len() * 99 / 100]),
        behind.iter().sum::<f64>() / behind.len() as f64,
        errors as f64 / calls.len() as f64 * 100.0,
        (requests / keys as f64 - 1.0) * 100.0,
    ];
    drop(proxy);
    if contender == "nginx" {
        fs::remove_dir_all(nginx.store(folder))?;
    }
    Ok(figures)
}

struct Call {
    key: usize,
    wait: Duration,
    /// True if the page arrived whole.
    is_answered: bool,
}

/// The calls of one caller. All ask for each key at the same time.
fn ask_for_keys(address: &str, keys: usize, barrier: &Barrier) -> Vec<Call> {
    let ask = |key| {
        barrier.wait();
        let began = Instant::now();
        let reply = ask_for(address, key);
        Call { key, wait: began.elapsed(), is_answered: reply.is_ok_and(|reply| reply.ends_with(BODY)) }
    };
    (0..keys).map(ask).collect()
}

fn ask_for(address: &str, key: usize) -> io::Result<Vec<u8>> {
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(GIVES_UP))?;
    // HTTP/1.0 has no chunks.
    write!(tcp, "GET /{key} HTTP/1.0\r\nHost: a\r\n\r\n")?;
    let mut reply = Vec::new();
    tcp.read_to_end(&mut reply)?;
    Ok(reply)
}

const BODY: &[u8] = b"the page of this key, whole";

/// The origin, until it is killed.
fn serve_unsteadily(_: &[&str]) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let requests: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
    runtime.block_on(async {
        let listener = TcpListener::bind(ORIGIN).await?;
        loop {
            let (tcp, _) = listener.accept().await?;
            tcp.set_nodelay(true)?;
            let requests = Arc::clone(&requests);
            let service = service_fn(move |request: Request<Incoming>| {
                let path = request.uri().path().trim_start_matches('/').to_owned();
                let (key, mut requests) = (path.parse::<usize>(), requests.lock().expect("no panic"));
                let number = match key {
                    Ok(_) => requests.entry(path).or_default(),
                    Err(_) => &mut requests.values().sum(),
                };
                let (is_first, count) = (*number == 0, *number);
                *number += 1;
                async move { answer(key.ok(), is_first, count).await }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
        }
    })
}

/// The error closes the connection.
async fn answer(
    key: Option<usize>,
    is_first: bool,
    count: u64,
) -> std::result::Result<Response<Full<Bytes>>, &'static str> {
    let Some(key) = key else { return Ok(Response::new(count.to_string().into())) };
    match (is_first, key) {
        (true, SILENT) => pending().await,
        (true, LATE) => sleep(SLOW).await,
        (true, CLOSED) => return Err("closed on purpose"),
        _ => sleep(LOAD).await,
    }
    let response = Response::builder().header("cache-control", "public, max-age=3600");
    response.body(Bytes::from_static(BODY).into()).map_err(|_| "a bad response")
}
