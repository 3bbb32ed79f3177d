//! Processor time of proxied hits.

use std::{path::Path, process::Command};

use super::{Bench, Better, Figure, Metric, Result, Sitting, start_origin};
use crate::{
    generators::{h2load_requests, wrk_requests},
    origin::{ORIGIN, get, pinned},
    proxies::{Certificate, Nginx, Proxy},
};

const KIB: [u64; 5] = [1, 20, 100, 300, 4_096];
/// Over TLS and HTTP/2.
const KIB_ENCRYPTED: [u64; 2] = [1, 100];
const ROUNDS: usize = 3;
const SECONDS: u32 = 2;
const STRATEGY: &str =
    "[cache]\nstrategy = \"simple\"\nlimit = { bytes = \"256MiB\", max_object = \"8MiB\" }\n";

pub(super) const BENCH: Bench = Bench {
    name: "proxy",
    shows: "hits a CPU second of the proxy, nginx and Varnish: 1 KiB to 4 MiB, TLS 1.3, HTTP/2, with a log",
    method: "All serve the same stored bodies, which are compared byte for byte first, on the first core and in turn; the load runs on the \
             second, over 64 open connections: wrk, for HTTP/2 h2load with 16 connections of 8 streams. A figure is the answered requests by \
             the processor time, user and system, of all processes of the cache. nginx stores in memory (`/dev/shm`), with an open-file cache and \
             buffers for a body, with and without sendfile: the faster setting counts, for each size. Varnish has no log; it has no TLS either.",
    seconds: 210,
    needs: &["taskset", "wrk"],
    peers: &["nginx", "varnishd", "wrk", "h2load"],
    metrics: &[Metric { name: "hits", unit: "/CPU s", digits: 0, better: Better::Higher, aim: Some(1.0) }],
    limits: &[],
    measure,
    child: None,
};

/// The protocol of the load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Plain,
    Tls,
    Http2,
}

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let recipe = |kib: &u64| {
        format!(
            r#"{{"route": "/{kib}", "random_content": "{kib}kb", "stages": [{{"at": 0}}],
                "headers": {{"cache-control": "public, max-age=3600"}}}}"#
        )
    };
    let recipes = format!("[{}]", KIB.iter().map(recipe).collect::<Vec<_>>().join(","));
    let _origin = start_origin(sitting, "0", &recipes)?;
    let mut figures = plain(sitting)?;
    if sitting.has("openssl") && sitting.has("curl") {
        figures.extend(encrypted(sitting)?);
    }
    figures.extend(logged(sitting)?);
    Ok(figures)
}

fn plain(sitting: &Sitting) -> Result<Vec<Figure>> {
    let folder = &sitting.folder;
    let mut proxies = vec![Proxy::stockade(folder, "0", STRATEGY)?];
    if sitting.has("nginx") {
        let on = Nginx { is_sendfile: true, ..Nginx::new("nginx, sendfile on", "127.0.0.1:18083") };
        proxies.push(Proxy::nginx(folder, &on)?);
        proxies.push(Proxy::nginx(folder, &Nginx::new("nginx, sendfile off", "127.0.0.1:18084"))?);
    }
    if sitting.has("varnishd") {
        proxies.push(Proxy::varnish(folder, "0", "256m")?);
    }
    let case = |kib: &u64| cases(sitting, &size(*kib), &proxies, Load::Plain, *kib);
    let figures = sitting.scaled(&KIB[..], &KIB[..1]).iter().map(case).collect::<Result<Vec<_>>>()?;
    Ok(figures.into_iter().flatten().collect())
}

fn encrypted(sitting: &Sitting) -> Result<Vec<Figure>> {
    let folder = &sitting.folder;
    let certificate = Certificate::create(folder)?;
    let tls = format!(
        "[tls]\ncert = \"{}\"\nkey = \"{}\"\n",
        certificate.cert.display(),
        certificate.key.display()
    );
    let mut proxies = vec![Proxy::stockade(folder, "0", &format!("{STRATEGY}{tls}"))?];
    if sitting.has("nginx") {
        let nginx = Nginx { certificate: Some(certificate), ..Nginx::new("nginx", "127.0.0.1:18084") };
        proxies.push(Proxy::nginx(folder, &nginx)?);
    }
    let sizes = sitting.scaled(&KIB_ENCRYPTED[..], &KIB_ENCRYPTED[..1]);
    let mut figures = Vec::new();
    for &kib in sizes {
        figures.extend(cases(sitting, &format!("{}, TLS 1.3", size(kib)), &proxies, Load::Tls, kib)?);
    }
    if sitting.has("h2load") {
        for &kib in sizes {
            let case = format!("{}, HTTP/2 and TLS 1.3", size(kib));
            figures.extend(cases(sitting, &case, &proxies, Load::Http2, kib)?);
        }
    }
    Ok(figures)
}

/// With an access log; the cases before have none.
fn logged(sitting: &Sitting) -> Result<Vec<Figure>> {
    let folder = &sitting.folder;
    let log = |name: &str| sitting.memory_folder.join(name);
    std::fs::create_dir_all(&sitting.memory_folder)?;
    let own = format!("[log]\nformat = \"combined\"\npath = \"{}\"\n", log("stockade.log").display());
    let mut proxies = vec![Proxy::stockade(folder, "0", &format!("{STRATEGY}{own}"))?];
    if sitting.has("nginx") {
        let on = Nginx::new("nginx, sendfile on", "127.0.0.1:18083");
        let on = Nginx { is_sendfile: true, log: Some(log("nginx-on.log")), ..on };
        let off = Nginx::new("nginx, sendfile off", "127.0.0.1:18084");
        let off = Nginx { log: Some(log("nginx-off.log")), ..off };
        proxies.extend([Proxy::nginx(folder, &on)?, Proxy::nginx(folder, &off)?]);
    }
    cases(sitting, &format!("{}, access log", size(1)), &proxies, Load::Plain, 1)
}

fn size(kib: u64) -> String {
    if kib < 1_024 { format!("{kib} KiB") } else { format!("{} MiB", kib / 1_024) }
}

fn cases(sitting: &Sitting, case: &str, proxies: &[Proxy], load: Load, kib: u64) -> Result<Vec<Figure>> {
    let names: Vec<_> = proxies.iter().map(|proxy| proxy.name).collect();
    for proxy in proxies {
        check_body(proxy, load, kib, &sitting.folder)?;
    }
    let seconds = sitting.scaled(SECONDS, 1);
    sitting.interleave(case, ["hits"], &names, ROUNDS, |at| Ok([hits(&proxies[at], load, kib, seconds)?]))
}

/// Hits for each second of the cache's processor time.
fn hits(proxy: &Proxy, load: Load, kib: u64, seconds: u32) -> Result<f64> {
    let scheme = if load == Load::Plain { "http" } else { "https" };
    let url = format!("{scheme}://{}/{kib}", proxy.address);
    let duration = seconds.to_string();
    let program = if load == Load::Http2 {
        vec!["h2load", "-t1", "-c16", "-m8", "-D", &duration, &url]
    } else {
        vec!["wrk", "-t1", "-c64", "--timeout", "20", "-d", &duration, &url]
    };
    let before = proxy.cpu_seconds()?;
    let output = pinned(1).args(&program).output()?;
    let text = String::from_utf8(output.stdout)?;
    let took = proxy.cpu_seconds()? - before;
    let (requests, has_failed) = if load == Load::Http2 {
        (h2load_requests(&text), !text.contains(" 0 failed, 0 errored"))
    } else {
        (wrk_requests(&text), text.contains("Non-2xx") || text.contains("Socket errors"))
    };
    let requests = requests
        .filter(|_| !has_failed)
        .ok_or_else(|| format!("{}: {text}{}", program[0], String::from_utf8_lossy(&output.stderr)))?;
    Ok(requests / took)
}

/// Stores the body in a cache and checks that it is the origin's.
fn check_body(proxy: &Proxy, load: Load, kib: u64, folder: &Path) -> Result<()> {
    let body = get(ORIGIN, &format!("/{kib}"))?;
    for _ in 0..2 {
        let served = if load == Load::Plain {
            get(proxy.address, &format!("/{kib}"))?
        } else {
            let protocol = if load == Load::Http2 { "--http2" } else { "--http1.1" };
            let url = format!("https://{}/{kib}", proxy.address);
            let ca = folder.join("cert.pem");
            Command::new("curl")
                .args(["-sS", "--tlsv1.3", protocol, &url, "--cacert"])
                .arg(ca)
                .output()?
                .stdout
        };
        if served != body {
            return Err(format!("{} does not serve the {kib} KiB of the origin", proxy.name).into());
        }
    }
    Ok(())
}
