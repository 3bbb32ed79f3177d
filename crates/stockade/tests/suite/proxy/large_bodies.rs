//! The memory of large bodies: resident, below the limit, and given back; and the heap where there is no file in memory.

use std::process::Command;

use super::{Response, admin_request, config_without_log, stats, wait_until_serving};
use crate::{
    running::{Running, get},
    support::Sandbox,
};

const RECIPE: &str = r#"[{"route": "/large*", "random_content": "200kb", "stages": [{"at": 0}],
    "headers": {"cache-control": "max-age=3600"}}]"#;
const BODY_BYTES: usize = 200 << 10;

const MIB: u64 = 1 << 20;
const LIMIT_MIB: u64 = 48;

#[test]
fn resident_memory_has_all_bodies_and_shrinks_after_a_purge() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
    let cache = format!("[cache]\nlimit = {{ bytes = \"{LIMIT_MIB}MiB\" }}");
    let config = config_without_log(&sandbox, &format!("http://{}", origin.listens("http")), &cache);
    let (_proxy, address, admin) = super::start_proxy(&sandbox, &config, &["--threads", "1"]);
    let resident_bytes = || stats(admin)["resident_bytes"].as_u64().expect("this system tells it");
    assert_eq!(Response::of(&get(address, "/large")).body.len(), BODY_BYTES);
    let before = resident_bytes();
    let mut most = 0;
    for number in 0..600 {
        assert_eq!(Response::of(&get(address, &format!("/large?{number}"))).body.len(), BODY_BYTES);
        if number % 20 == 0 {
            most = most.max(resident_bytes());
        }
    }
    let added = most - before;
    assert!(added < (LIMIT_MIB + 16) * MIB, "{} MiB", added / MIB);
    // It would be less if pages were not mapped, and the memory of the proxy would be invisible.
    assert!(added > LIMIT_MIB * MIB * 8 / 10, "{} MiB", added / MIB);

    assert_eq!(admin_request(admin, "POST", "/purge_all", "").status, 200);
    // A later store finds purged entries released.
    get(address, "/large?last");
    let left = resident_bytes().saturating_sub(before);
    assert!(left < 16 * MIB, "{} MiB", left / MIB);
}

#[test]
fn without_a_file_in_memory_large_bodies_are_on_the_heap() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
    let config = config_without_log(&sandbox, &format!("http://{}", origin.listens("http")), "");
    let command = sandbox.command();
    let mut limited = Command::new("sh");
    // A file of this process may have a mebibyte at most.
    limited.args(["-c", "ulimit -f 2048; exec \"$@\"", "sh"]).arg(command.get_program());
    limited.args(["proxy", "--config", &config, "--admin", "0"]).current_dir(sandbox.path());
    let proxy = Running::spawn(limited, "");
    let (address, admin) = wait_until_serving(&proxy);
    let mut bodies = vec![Response::of(&get(address, "/large"))];
    // The client has the last byte before the body is stored.
    while stats(admin)["entries"] != 1 {}
    bodies.extend((0..2).map(|_| Response::of(&get(address, "/large"))));
    assert_eq!(bodies.iter().map(Response::outcome).collect::<Vec<_>>(), ["miss", "hit", "hit"]);
    assert!(
        bodies.iter().all(|response| response.body.len() == BODY_BYTES && response.body == bodies[0].body)
    );
    assert_eq!(stats(admin)["entries"], 1);
}
