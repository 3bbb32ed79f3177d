//! The resident memory of the process while the sizes of responses change: heap first, then the file of large bodies, and back.

use std::{
    net::SocketAddr,
    process::{Child, Stdio},
};

use super::{MIB, admin_request, config_without_log, memory_bound_mib, resident, stats};
use crate::{
    running::{Running, get},
    support::Sandbox,
};

const RECIPE: &str = r#"[
    {"route": "/2k*", "random_content": "2kb", "stages": [{"at": 0}], "headers": {"cache-control": "max-age=36000"}},
    {"route": "/10k*", "random_content": "10kb", "stages": [{"at": 0}], "headers": {"cache-control": "max-age=36000"}},
    {"route": "/100k*", "random_content": "100kb", "stages": [{"at": 0}], "headers": {"cache-control": "max-age=36000"}},
    {"route": "/600k*", "random_content": "600kb", "stages": [{"at": 0}], "headers": {"cache-control": "max-age=36000"}}
]"#;

const LIMIT_MIB: usize = 64;
const CLIENTS: usize = 8;
const BOUND_MIB: usize = memory_bound_mib(LIMIT_MIB, CLIENTS, CLIENTS);

/// The sizes that come at the same time, and how often the limit arrives in each phase.
const DAY: [(&[u64], f64); 6] =
    [(&[2], 1.2), (&[100], 1.5), (&[10], 1.2), (&[600], 2.0), (&[2, 100, 10], 1.2), (&[600], 3.0)];

#[test]
fn resident_memory_is_below_its_bound_on_a_day_of_changing_sizes() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
    let cache = format!("[cache]\nlimit = {{ bytes = \"{LIMIT_MIB}MiB\" }}");
    let config = config_without_log(&sandbox, &format!("http://{}", origin.listens("http")), &cache);
    let (proxy, address, admin) = super::start_proxy(&sandbox, &config, &["--threads", "2"]);
    let resident_mib = || resident(&proxy) / MIB;
    let mut peaks = Vec::new();
    for (phase, (sizes, limits)) in DAY.into_iter().enumerate() {
        let load = |kib: &u64| start_load(&sandbox, address, phase, *kib, limits / sizes.len() as f64);
        let mut loads: Vec<_> = sizes.iter().map(load).collect();
        let mut peak = 0;
        while loads.iter_mut().any(|load| load.try_wait().expect("a child").is_none()) {
            stats(admin);
            peak = peak.max(resident_mib());
        }
        peaks.push(peak);
        assert!(loads.iter_mut().all(|load| load.wait().expect("a child").success()), "phase {phase}");
        assert!(peak <= BOUND_MIB, "phase {phase}: {peaks:?} MiB of {BOUND_MIB}");
    }
    // Large bodies have taken the place of most of the 20,000 small ones.
    let left = stats(admin);
    assert!(left["entries"].as_u64().is_some_and(|entries| entries < 4_000), "{left}");
    assert!(left["bytes"].as_u64().is_some_and(|bytes| bytes > (LIMIT_MIB * MIB * 6 / 10) as u64), "{left}");

    assert_eq!(admin_request(admin, "POST", "/purge_all", "").status, 200);
    // A later store finds purged entries released.
    get(address, "/2k-last");
    while resident_mib() > 80 {
        stats(admin);
    }
}

/// Requests new URLs of one size, as many as fill the limit `limits` times.
fn start_load(sandbox: &Sandbox, address: SocketAddr, phase: usize, kib: u64, limits: f64) -> Child {
    let count = format!("{:.0}", LIMIT_MIB as f64 * 1_024.0 * limits / (kib as f64 + 1.5));
    let (url, keys) = (format!("http://{address}/{kib}k-{phase}-{{key}}"), format!("scan:{count}"));
    let clients = CLIENTS.to_string();
    let mut load = sandbox.command();
    load.args(["load", &url, "--keys", &keys, "-n", &count, "-c", &clients, "-t", "1"]);
    load.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program")
}
