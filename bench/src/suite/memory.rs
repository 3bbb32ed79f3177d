//! Memory of caches that hold many objects.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Stdio};

use super::{Bench, Better, Figure, Metric, Result, Sitting, start_origin};
use crate::{
    command::report::grouped,
    generators::stockade,
    origin::{origin_requests, pinned},
    proxies::{Nginx, Proxy},
};

/// The size of an object in KiB, the number of objects, and that of a smoke run.
const CASES: [(u64, u64, u64); 2] = [(1, 100_000, 500), (100, 10_000, 50)];
const STRATEGY: &str = "[cache]\nstrategy = \"simple\"\nlimit = { bytes = \"2GiB\" }\n";
const CONTENDERS: [(&str, &str); 3] = [("stockade", "taskset"), ("nginx", "nginx"), ("Varnish", "varnishd")];
/// The blocks of a file's size.
const BLOCK_BYTES: u64 = 512;

pub(super) const BENCH: Bench = Bench {
    name: "memory",
    shows: "memory of the proxy, nginx and Varnish that hold 100,000 objects of 1 KiB, or 10,000 of 100 KiB",
    method: "Each cache, one after the other, gets every object once, and once more: the origin must not be asked again, or there is no \
             row. All have room for 2 GiB. The figure is the proportional memory of all processes, and for nginx the blocks of its files, which \
             are in memory.",
    seconds: 60,
    needs: &["taskset"],
    peers: &["nginx", "varnishd"],
    metrics: &[Metric { name: "memory", unit: "MiB", digits: 1, better: Better::Lower, aim: Some(1.0) }],
    limits: &[],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let contenders: Vec<&str> =
        CONTENDERS.iter().filter(|(_, program)| sitting.has(program)).map(|(name, _)| *name).collect();
    let mut figures = Vec::new();
    for (kib, objects, tiny) in CASES {
        let objects = sitting.scaled(objects, tiny);
        let case = format!("{} objects of {kib} KiB", grouped(objects as f64, 0));
        figures.extend(sitting.interleave(&case, ["memory"], &contenders, 1, |at| {
            Ok([mib(sitting, contenders[at], kib, objects)?])
        })?);
    }
    Ok(figures)
}

fn mib(sitting: &Sitting, contender: &str, kib: u64, objects: u64) -> Result<f64> {
    let recipe = format!(
        r#"[{{"route": "/*", "random_content": "{kib}kb", "stages": [{{"at": 0}}],
            "headers": {{"cache-control": "public, max-age=3600"}}}}]"#
    );
    let _origin = start_origin(sitting, "0", &recipe)?;
    let folder = &sitting.folder;
    let nginx = Nginx { zone: "64m", limit: "2g", ..Nginx::new("nginx", "127.0.0.1:18084") };
    let proxy = match contender {
        "nginx" => Proxy::nginx(folder, &nginx)?,
        "Varnish" => Proxy::varnish(folder, "0", "2g")?,
        _ => Proxy::stockade(folder, "0", STRATEGY)?,
    };
    for _ in 0..2 {
        request_all(&proxy, objects)?;
    }
    let at_origin = origin_requests()?;
    if at_origin != objects {
        return Err(format!("{at_origin} requests reached the origin, for {objects} objects").into());
    }
    let store = nginx.store(folder);
    let files = if contender == "nginx" { blocks(&store)? * BLOCK_BYTES } else { 0 };
    let bytes = proxy.resident_bytes()? + files;
    drop(proxy);
    if contender == "nginx" {
        fs::remove_dir_all(store)?;
    }
    Ok(bytes as f64 / 1_048_576.0)
}

/// Requests each object, over eight connections.
fn request_all(proxy: &Proxy, objects: u64) -> Result<()> {
    let program = stockade()?;
    let (url, count) = (format!("http://{}/{{key}}", proxy.address), objects.to_string());
    let (keys, program) = (format!("scan:{objects}"), program.to_str().ok_or("a path that is not text")?);
    let load =
        [program, "load", &url, "--keys", &keys, "-n", &count, "-c", "8", "-t", "1", "--format", "json"];
    let output = pinned(1).args(load).stdin(Stdio::null()).output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let answered = report["status_codes"]["200"].as_u64().unwrap_or_default();
    if answered == objects {
        Ok(())
    } else {
        Err(format!("{answered} of {objects} requests were answered").into())
    }
}

/// The blocks that the files below a folder take.
fn blocks(folder: &Path) -> Result<u64> {
    let mut blocks = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        blocks += metadata.blocks();
        if metadata.is_dir() {
            blocks += self::blocks(&entry.path())?;
        }
    }
    Ok(blocks)
}
