//! Loads whose first request is silent, slow or reset: the time of the requests that wait for it.

use std::{
    collections::HashMap,
    env,
    future::pending,
    io::{Read, Write},
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
/// A usual load.
const LOAD: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_secs(1);
const CALLERS: usize = 10;
/// One key in so many has a silent first request, one a slow one, and one a request whose connection is closed.
const PERIOD: usize = 300;
/// When a caller gives up.
const GIVES_UP: Duration = Duration::from_secs(10);

pub(super) const BENCH: Bench = Bench {
    name: "leaders",
    shows: "ten callers of each key, whose first request the origin never answers, answers late or resets: waits and extra requests",
    method: "Ten callers ask for one cold key after another, all at once. The origin answers after 20 ms, but of 300 keys it leaves the first \
             request of one unanswered, answers that of another after 1 s, and closes the connection of a third. A caller gives up after 10 s. \
             Ours hedges after twice the 99th percentile of its own loads (`hedge_after = \"learned\"`); nginx has `proxy_cache_lock` with its \
             default times of 5 s, Varnish its defaults. The aim is twice a usual load, and one extra request in a hundred.",
    seconds: 200,
    needs: &["taskset"],
    peers: &["nginx", "varnishd"],
    metrics: &[
        Metric { name: "p99 of waits", unit: "ms", digits: 0, better: Better::Lower, aim: Some(1.0) },
        Metric { name: "longest wait", unit: "ms", digits: 0, better: Better::Lower, aim: Some(1.0) },
        Metric { name: "extra requests", unit: "%", digits: 1, better: Better::Lower, aim: Some(1.0) },
    ],
    limits: &[],
    measure,
    child: Some(serve_unsteadily),
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let keys = sitting.scaled(4 * PERIOD, 20);
    let contenders: Vec<&str> =
        CONTENDERS.iter().filter(|(_, program)| sitting.has(program)).map(|(name, _)| *name).collect();
    let metrics = ["p99 of waits", "longest wait", "extra requests"];
    let figures =
        sitting.interleave("one first request in a hundred fails", metrics, &contenders, 1, |at| {
            match contenders[at] {
                AIM => Ok([2e3 * LOAD.as_secs_f64(), f64::INFINITY, 1.0]),
                contender => wait_for_keys(sitting, contender, keys),
            }
        })?;
    // No bound of a single wait is an aim.
    Ok(figures.into_iter().filter(|one| one.rounds.iter().all(|value| value.is_finite())).collect())
}

fn wait_for_keys(sitting: &Sitting, contender: &str, keys: usize) -> Result<[f64; 3]> {
    let folder = &sitting.folder;
    let program = env::current_exe()?;
    let program = program.to_str().ok_or("a path that is no text")?;
    let _origin = Server::start_on(CORES, &[program, "child", BENCH.name], ORIGIN)?;
    let nginx = Nginx { cores: CORES, lock: "5s", ..Nginx::new("nginx", "127.0.0.1:18083") };
    let proxy = match contender {
        "nginx" => Proxy::nginx(folder, &nginx)?,
        "Varnish" => Proxy::varnish(folder, CORES, "256m")?,
        _ => Proxy::stockade(folder, CORES, CACHE)?,
    };
    let barrier = Barrier::new(CALLERS);
    let waits = thread::scope(|scope| {
        let callers: Vec<_> =
            (0..CALLERS).map(|_| scope.spawn(|| ask_for_keys(proxy.address, keys, &barrier))).collect();
        callers.into_iter().map(|caller| caller.join().expect("no caller panics")).collect::<Vec<_>>()
    });
    let mut waits: Vec<Duration> = waits.into_iter().flatten().collect();
    waits.sort_unstable();
    let ms = |at: usize| waits[at].as_secs_f64() * 1e3;
    let requests: f64 = String::from_utf8(get(ORIGIN, "/count")?)?.parse()?;
    let figures = [ms(waits.len() * 99 / 100), ms(waits.len() - 1), (requests / keys as f64 - 1.0) * 100.0];
    drop(proxy);
    if contender == "nginx" {
        std::fs::remove_dir_all(nginx.store(folder))?;
    }
    Ok(figures)
}

/// The waits of one caller. All ask for each key at the same time.
fn ask_for_keys(address: &str, keys: usize, barrier: &Barrier) -> Vec<Duration> {
    let mut connection = None;
    let ask = |key| {
        barrier.wait();
        let began = Instant::now();
        let reply = connection.take().map_or_else(|| connect(address), Ok);
        // A failure is an answer, too: the longest wait tells of those that give up.
        connection = reply.and_then(|tcp| ask_for(tcp, key)).ok().flatten();
        began.elapsed()
    };
    (0..keys).map(ask).collect()
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    let tcp = TcpStream::connect(address)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(GIVES_UP))?;
    Ok(tcp)
}

/// Returns the connection, if it can be used again.
fn ask_for(mut tcp: TcpStream, key: usize) -> std::io::Result<Option<TcpStream>> {
    write!(tcp, "GET /{key} HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let (mut reply, mut part) = (Vec::new(), [0; 4_096]);
    // Some proxies send chunks: the end of the last one is read with the next response.
    while !reply.windows(BODY.len()).any(|part| part == BODY) {
        match tcp.read(&mut part)? {
            0 => return Ok(None),
            count => reply.extend_from_slice(&part[..count]),
        }
    }
    Ok(Some(tcp))
}

/// The end of each good response.
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
    match (is_first, key % PERIOD) {
        (true, 100) => pending().await,
        (true, 150) => sleep(SLOW).await,
        (true, 200) => return Err("reset on purpose"),
        _ => sleep(LOAD).await,
    }
    let response = Response::builder().header("cache-control", "public, max-age=3600");
    response.body(Bytes::from_static(BODY).into()).map_err(|_| "a bad response")
}
