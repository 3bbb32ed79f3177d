//! Requests to an origin without latency, and to nginx with the same bytes as files.

use std::{fs, path::Path};

use super::{Bench, Better, Figure, Metric, OURS, Result, Sitting, start_origin};
use crate::{
    generators::wrk_requests,
    origin::{ORIGIN, Server, get, pinned},
    process::cpu_seconds,
};

const KIB: [u64; 4] = [1, 50, 100, 428];
const ROUNDS: usize = 3;
const SECONDS: u32 = 2;
const NGINX: &str = "127.0.0.1:18081";

pub(super) const BENCH: Bench = Bench {
    name: "origin",
    shows: "requests a second and a CPU second of `stockade origin` and of nginx with the same files",
    method: "Both serve on the first core, in turn, with one thread; wrk has the second, with 64 open connections. nginx has sendfile, an \
             open-file cache and no log. Bodies are compared byte for byte first; heads differ by a few bytes. For large bodies wrk is the \
             bottleneck: there the figure by the server's own processor time tells more.",
    seconds: 50,
    needs: &["taskset", "wrk", "nginx"],
    peers: &["nginx", "wrk"],
    metrics: &[
        Metric { name: "requests", unit: "/s", digits: 0, better: Better::Higher, aim: Some(1.0) },
        Metric {
            name: "requests a CPU second",
            unit: "/CPU s",
            digits: 0,
            better: Better::Higher,
            aim: Some(1.0),
        },
    ],
    limits: &[],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let recipe =
        |kib: &u64| format!(r#"{{"route": "/{kib}", "random_content": "{kib}kb", "stages": [{{"at": 0}}]}}"#);
    let recipes = format!("[{}]", KIB.iter().map(recipe).collect::<Vec<_>>().join(","));
    let origin = start_origin(sitting, "0", &recipes)?;
    let files = sitting.folder.join("www");
    fs::create_dir_all(&files)?;
    for kib in KIB {
        fs::write(files.join(kib.to_string()), get(ORIGIN, &format!("/{kib}"))?)?;
    }
    let file = sitting.folder.join("nginx.conf");
    fs::write(&file, configuration(&sitting.folder))?;
    let nginx = Server::start(0, &["nginx", "-c", file.to_str().ok_or("a path that is not text")?], NGINX)?;
    let servers = [(ORIGIN, origin.0.id()), (NGINX, nginx.0.id())];
    let seconds = sitting.scaled(SECONDS, 1);
    let mut figures = Vec::new();
    for &kib in sitting.scaled(&KIB[..], &KIB[..1]) {
        if get(ORIGIN, &format!("/{kib}"))? != get(NGINX, &format!("/{kib}"))? {
            return Err("they do not serve the same".into());
        }
        let metrics = ["requests", "requests a CPU second"];
        figures.extend(sitting.interleave(
            &format!("{kib} KiB"),
            metrics,
            &[OURS, "nginx"],
            ROUNDS,
            |at| {
                let (address, server) = servers[at];
                requests(address, server, kib, seconds)
            },
        )?);
    }
    Ok(figures)
}

/// Requests per second, and per second of the server's processor time.
fn requests(address: &str, server: u32, kib: u64, seconds: u32) -> Result<[f64; 2]> {
    let before = cpu_seconds(server)?;
    let (lasts, url) = (seconds.to_string(), format!("http://{address}/{kib}"));
    let wrk = pinned(1).args(["wrk", "-t1", "-c64", "-d", &lasts, &url]).output()?;
    let text = String::from_utf8(wrk.stdout)?;
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("{address}: {text}").into());
    }
    let requests = wrk_requests(&text).ok_or("wrk printed no figure")?;
    Ok([requests / f64::from(seconds), requests / (cpu_seconds(server)? - before)])
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
