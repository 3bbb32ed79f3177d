//! Processor time of `stockade proxy` for each hit, without and with ghosts (`--shadow`), in one run.
//!
//! Both serve on the first core, in turn; wrk runs on the second, with 64 open connections, and requests 20,000 URLs of 1 KiB, the
//! lower ones more often. Ratios are within a round, the median of all (least to most).
//!
//! wrk and `taskset` have to be installed. `shadow_cost ROUNDS` measures that number of rounds of 3 s. `STOCKADE` names the program; without
//! it the program is built.

use std::{env, error::Error, fs};

use stockade_bench::{
    generators::wrk_requests,
    origin::{Server, pinned, serve},
    proxies::Proxy,
    statistics::{median, range},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 15;
const SECONDS: u32 = 3;
const STRATEGY: &str = "[cache]\nstrategy = \"simple\"\nlimit = { bytes = \"256MiB\" }\n";
const RECIPE: &str = r#"[{"route": "/*", "random_content": "1kb", "stages": [{"at": 0}],
    "headers": {"cache-control": "public, max-age=3600"}}]"#;
const REQUESTS: &str = r#"
request = function() return wrk.format("GET", "/" .. math.floor(20000 * math.random() ^ 3)) end
"#;

fn main() -> Result<()> {
    let argument = env::args().nth(1);
    if argument.as_deref() == Some("serve") {
        return serve(RECIPE.to_owned());
    }
    let rounds = argument.map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let folder = env::temp_dir().join(format!("stockade-shadow-cost-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let script = folder.join("requests.lua");
    fs::write(&script, REQUESTS)?;
    let _origin = Server::origin()?;
    let without = Proxy::stockade_at("without", "127.0.0.1:18082", &folder, "0", STRATEGY)?;
    let with = Proxy::stockade_at("with", "127.0.0.1:18086", &folder, "0", &format!("{STRATEGY}[shadow]\n"))?;
    let measure = |proxy: &Proxy| -> Result<f64> {
        let before = proxy.cpu_seconds()?;
        let url = format!("http://{}", proxy.address);
        let script = script.to_str().ok_or("a path that is not text")?;
        let duration = format!("-d{SECONDS}s");
        let wrk = pinned(1).args(["wrk", "-t1", "-c64", &duration, "-s", script, &url]).output()?;
        let text = String::from_utf8(wrk.stdout)?;
        if text.contains("Non-2xx") || text.contains("Socket errors") {
            return Err(format!("{}: {text}", proxy.name).into());
        }
        let requests = wrk_requests(&text).ok_or("wrk printed no figure")?;
        Ok(requests / (proxy.cpu_seconds()? - before))
    };
    // The first requests fill both caches.
    measure(&without)?;
    measure(&with)?;
    let mut ratios = Vec::new();
    println!("| hits a CPU second without ghosts | with | ratio |\n|---|---|---|");
    for round in 0..rounds {
        let (a, b) = if round % 2 == 0 {
            let a = measure(&without)?;
            (a, measure(&with)?)
        } else {
            let b = measure(&with)?;
            (measure(&without)?, b)
        };
        println!("| {a:.0} | {b:.0} | {:.3} |", b / a);
        ratios.push(b / a);
    }
    let (least, most) = range(&ratios);
    println!("with ghosts: {:.3} of the hits a CPU second without ({least:.3} to {most:.3})", median(ratios));
    fs::remove_dir_all(&folder)?;
    Ok(())
}
