//! Runs the faulty cache of the tests, for an audit or a load by hand, until its standard input closes.
//!
//! ```sh
//! cargo run -p stockade-audit --example faulty_cache -- 127.0.0.1:9080 IgnoresVary
//! stockade audit http://127.0.0.1:PORT --origin-listen 127.0.0.1:9080
//! ```
#![expect(clippy::disallowed_methods, reason = "a real cache needs real time")]

#[path = "../tests/suite/faulty_cache/mod.rs"]
#[expect(dead_code, reason = "tests use all of it")]
mod faulty_cache;

use std::{env, io, net::SocketAddr, process::ExitCode};

use faulty_cache::{Fault, FaultyCache};

fn main() -> ExitCode {
    let known = || Fault::ALL.into_iter().chain(Fault::FRESH);
    let mut words = env::args().skip(1);
    let origin: Option<SocketAddr> = words.next().and_then(|origin| origin.parse().ok());
    let faults: Option<Vec<Fault>> =
        words.map(|word| known().find(|fault| format!("{fault:?}") == word)).collect();
    let (Some(origin), Some(faults)) = (origin, faults) else {
        let names: Vec<_> = known().map(|fault| format!("{fault:?}")).collect();
        eprintln!("write the address of the origin, and any faults: {}", names.join(", "));
        return ExitCode::from(2);
    };
    let cache = FaultyCache::start(origin, &faults);
    println!("http://{}", cache.address);
    _ = io::copy(&mut io::stdin(), &mut io::sink());
    ExitCode::SUCCESS
}
