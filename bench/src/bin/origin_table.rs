//! Requests per second of an origin without latency, beside nginx with the same bytes as static files.
//!
//! Both serve on the first core, one after the other, with one thread; wrk runs on the second, with 64 open
//! connections. nginx has sendfile, an open-file cache and no log. Heads are of the same length to a few bytes.
//! "of nginx" is the ratio within a round, the median of all (least to most); "a CPU second" is of the server's own
//! time, for wrk is the bottleneck of large bodies.
//!
//! nginx and wrk have to be installed (Debian has both), and `taskset`.

use std::{
    env,
    error::Error,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use stockade_bench::{
    origin::{ORIGIN, Server, pinned, serve},
    process::cpu_seconds,
    statistics::{median, range},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const KIB: [u64; 4] = [1, 50, 100, 428];
const ROUNDS: usize = 7;
const SECONDS: f64 = 3.0;
const NGINX: &str = "127.0.0.1:18081";

fn main() -> Result<()> {
    if env::args().nth(1).as_deref() == Some("serve") {
        return serve(recipe());
    }
    let folder = env::temp_dir().join(format!("stockade-origin-table-{}", std::process::id()));
    fs::create_dir_all(folder.join("www"))?;
    let compared = compare(&folder);
    fs::remove_dir_all(&folder)?;
    compared
}

fn recipe() -> String {
    let recipe =
        |kib: &u64| format!(r#"{{"route": "/{kib}", "random_content": "{kib}kb", "stages": [{{"at": 0}}]}}"#);
    format!("[{}]", KIB.iter().map(recipe).collect::<Vec<_>>().join(","))
}

fn compare(folder: &Path) -> Result<()> {
    let origin = Server::origin()?;
    for kib in KIB {
        fs::write(folder.join("www").join(kib.to_string()), get(ORIGIN, kib)?)?;
    }
    let file = folder.join("nginx.conf");
    fs::write(&file, configuration(folder))?;
    let nginx = Server::start(0, &["nginx", "-c", file.to_str().ok_or("a path that is no text")?], NGINX)?;
    println!(
        "| KiB | requests a second | of nginx | requests a CPU second | of nginx |\n|---|---|---|---|---|"
    );
    for kib in KIB {
        if get(ORIGIN, kib)? != get(NGINX, kib)? {
            return Err("they do not serve the same".into());
        }
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let ours = || measure(ORIGIN, origin.0.id(), kib);
            let theirs = || measure(NGINX, nginx.0.id(), kib);
            // The order alternates, since the first server may find the machine in another state.
            let (ours, theirs) = if round % 2 == 0 {
                let ours = ours()?;
                (ours, theirs()?)
            } else {
                let theirs = theirs()?;
                (ours()?, theirs)
            };
            rounds.push((ours, theirs));
        }
        let of = |figure: fn(&(Measured, Measured)) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
        println!(
            "| {kib} | {:.0} | {} | {:.0} | {} |",
            median(of(|(ours, _)| ours.a_second)),
            spread(of(|(ours, theirs)| ours.a_second / theirs.a_second)),
            median(of(|(ours, _)| ours.a_cpu_second)),
            spread(of(|(ours, theirs)| ours.a_cpu_second / theirs.a_cpu_second)),
        );
    }
    Ok(())
}

fn spread(ratios: Vec<f64>) -> String {
    let (least, most) = range(&ratios);
    format!("{:.2} ({least:.2} to {most:.2})", median(ratios))
}

fn configuration(folder: &Path) -> String {
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
         access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; etag off; server_tokens off;\n\
         keepalive_requests 1000000000; open_file_cache max=100; open_file_cache_valid 1h;\n\
         default_type 'text/html; charset=utf-8';\n\
         add_header cache-control 'max-age=0, private, must-revalidate';\n\
         server {{ listen {NGINX}; root {folder}/www; }}\n\
         }}\n",
        folder = folder.display()
    )
}

/// wrk's figures, and the server's processor time.
struct Measured {
    a_second: f64,
    a_cpu_second: f64,
}

fn measure(address: &str, server: u32, kib: u64) -> Result<Measured> {
    let before = cpu_seconds(server)?;
    let wrk = pinned(1)
        .args(["wrk", "-t1", "-c64", &format!("-d{SECONDS}s"), &format!("http://{address}/{kib}")])
        .output()?;
    let text = String::from_utf8(wrk.stdout)?;
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("{address}: {text}").into());
    }
    let rate =
        text.lines().find_map(|line| line.strip_prefix("Requests/sec:")).ok_or("wrk printed no figure")?;
    let a_second: f64 = rate.trim().parse()?;
    Ok(Measured { a_second, a_cpu_second: a_second * SECONDS / (cpu_seconds(server)? - before) })
}

fn get(address: &str, kib: u64) -> Result<Vec<u8>> {
    let mut tcp = TcpStream::connect(address)?;
    write!(tcp, "GET /{kib} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut reply = Vec::new();
    tcp.read_to_end(&mut reply)?;
    let at = reply.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no reply")?;
    Ok(reply.split_off(at + 4))
}
