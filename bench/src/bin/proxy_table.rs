//! Processor time per hit of `stockade proxy`, nginx (`proxy_cache`) and Varnish, with the same origin.
//!
//! All serve on the first core, in turn; wrk runs on the second, with 64 open connections. nginx runs twice, with
//! sendfile and without: the faster counts, for each size. Figures are of the processor time of the cache itself (user
//! and system, all its processes); "a second" is wrk's figure, and wrk is the bottleneck of large
//! bodies. Ratios are within a round, the median of all (least to most).
//!
//! nginx, varnishd, wrk and `taskset` have to be installed. `proxy_table N...` measures these sizes alone, in KiB;
//! `STOCKADE` is the program, built if it is not set.

use std::{
    env,
    error::Error,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use stockade_bench::{
    generators::wrk_requests,
    origin::{ORIGIN, Server, pinned, serve},
    proxies::{Proxy, in_memory},
    statistics::{median, range},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const KIB: [u64; 3] = [1, 100, 300];
const ROUNDS: usize = 7;
const SECONDS: u32 = 3;
const STRATEGY: &str = "[cache]\nstrategy = \"simple\"\nlimit = { bytes = \"256MiB\" }\n";

fn main() -> Result<()> {
    let sizes: Vec<String> = env::args().skip(1).collect();
    if sizes.first().is_some_and(|first| first == "serve") {
        return serve(recipe());
    }
    let sizes: Vec<u64> = sizes.iter().map(|size| size.parse()).collect::<std::result::Result<_, _>>()?;
    let folder = env::temp_dir().join(format!("stockade-proxy-table-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let compared = compare(&folder, if sizes.is_empty() { &KIB } else { &sizes });
    let _ = fs::remove_dir_all(in_memory(&folder));
    fs::remove_dir_all(&folder)?;
    compared
}

fn recipe() -> String {
    let recipe = |kib: &u64| {
        format!(
            r#"{{"route": "/{kib}", "random_content": "{kib}kb", "stages": [{{"at": 0}}],
                "headers": {{"cache-control": "public, max-age=3600"}}}}"#
        )
    };
    format!("[{}]", KIB.iter().map(recipe).collect::<Vec<_>>().join(","))
}

fn compare(folder: &Path, sizes: &[u64]) -> Result<()> {
    let _origin = Server::origin()?;
    let proxies = [
        Proxy::stockade(folder, "0", STRATEGY)?,
        Proxy::nginx(folder, true)?,
        Proxy::nginx(folder, false)?,
        Proxy::varnish(folder)?,
    ];
    println!("| KiB | cache | hits a second | hits a CPU second | stockade's of it |\n|---|---|---|---|---|");
    for &kib in sizes {
        let body = get(ORIGIN, kib)?.1;
        for proxy in &proxies {
            get(proxy.address, kib)?;
            let (head, served) = get(proxy.address, kib)?;
            if served != body {
                return Err(format!("{} does not serve what the origin does", proxy.name).into());
            }
            eprintln!("{}, a head of {} bytes:\n{}", proxy.name, head.len(), head.trim_end());
        }
        let rounds =
            (0..ROUNDS).map(|round| measure_all(&proxies, kib, round)).collect::<Result<Vec<_>>>()?;
        print_rows(kib, &proxies, &rounds);
    }
    Ok(())
}

/// One round; the order alternates, since the first cache may find the machine in another state.
fn measure_all(proxies: &[Proxy], kib: u64, round: usize) -> Result<Vec<Measured>> {
    let mut measured = vec![None; proxies.len()];
    for at in (0..proxies.len()).map(|at| (at + round) % proxies.len()) {
        measured[at] = Some(measure(&proxies[at], kib)?);
    }
    Ok(measured.into_iter().flatten().collect())
}

/// wrk's figures, and the cache's processor time.
#[derive(Clone, Copy)]
struct Measured {
    a_second: f64,
    a_cpu_second: f64,
}

fn measure(proxy: &Proxy, kib: u64) -> Result<Measured> {
    let before = proxy.cpu_seconds()?;
    let url = format!("http://{}/{kib}", proxy.address);
    let wrk = pinned(1).args(["wrk", "-t1", "-c64", &format!("-d{SECONDS}s"), &url]).output()?;
    let text = String::from_utf8(wrk.stdout)?;
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("{}: {text}", proxy.name).into());
    }
    let requests = wrk_requests(&text).ok_or("wrk printed no figure")?;
    let a_cpu_second = requests / (proxy.cpu_seconds()? - before);
    Ok(Measured { a_second: requests / f64::from(SECONDS), a_cpu_second })
}

fn print_rows(kib: u64, proxies: &[Proxy], rounds: &[Vec<Measured>]) {
    for (at, proxy) in proxies.iter().enumerate() {
        let of =
            |figure: fn(&Measured) -> f64| rounds.iter().map(|round| figure(&round[at])).collect::<Vec<_>>();
        let ratios =
            rounds.iter().map(|round| round[0].a_cpu_second / round[at].a_cpu_second).collect::<Vec<_>>();
        println!(
            "| {kib} | {} | {} | {} | {} |",
            proxy.name,
            spread(of(|one| one.a_second), 0),
            spread(of(|one| one.a_cpu_second), 0),
            spread(ratios, 2)
        );
    }
}

fn spread(values: Vec<f64>, digits: usize) -> String {
    let (least, most) = range(&values);
    format!("{:.digits$} ({least:.digits$} to {most:.digits$})", median(values))
}

/// A head and its body.
fn get(address: &str, kib: u64) -> Result<(String, Vec<u8>)> {
    let mut tcp = TcpStream::connect(address)?;
    write!(tcp, "GET /{kib} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut reply = Vec::new();
    tcp.read_to_end(&mut reply)?;
    let at = reply.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no reply")?;
    let body = reply.split_off(at + 4);
    Ok((String::from_utf8(reply)?, body))
}
