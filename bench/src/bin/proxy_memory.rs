//! The memory of `stockade proxy` when every URL is new: 425 incompressible bodies of 300 KiB a second, into 256 MiB.
//!
//! The proxy, its origin and `stockade load` share two cores. Resident memory is the operating system's figure of the
//! proxy's process, once a second; times are from the due time of a request to the last byte of its response. "A second's
//! longest" is the time of the slowest request of each second: of all seconds the median and the longest, and how many
//! are longer than twice the median. With `reclaim = 0.3` a full store frees 30 % at a time, here every
//! 0.6 s, or every 2.6 s at 100 requests per second; without it, as much as it needs.
//!
//! `proxy_memory [SECONDS [NAME...]]`; `taskset` has to be installed. `STOCKADE` is the program, which
//! inherits the environment, for example `_RJEM_MALLOC_CONF`.

use std::{env, error::Error, fs, path::Path, process::Stdio, thread, time::Duration};

use stockade_bench::{
    origin::{Server, serve},
    process::resident_bytes_of,
    proxies::Proxy,
    samples::{Sample, load, quantile, read},
    statistics::median,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const RECIPE: &str = r#"[{"route": "/*", "random_content": "300kb", "stages": [{"at": 0}],
    "headers": {"cache-control": "public, max-age=3600"}}]"#;
const LIMIT_BYTES: f64 = 256.0 * 1_048_576.0;
/// The name of a load, its rate, and the further settings of `limit`.
const LOADS: [(&str, &str, &str); 4] = [
    ("425/s", "425/s", ""),
    ("425/s, lrw, reclaim 0.3", "425/s", ", policy = \"lrw\", reclaim = 0.3"),
    ("100/s", "100/s", ""),
    ("100/s, lrw, reclaim 0.3", "100/s", ", policy = \"lrw\", reclaim = 0.3"),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return serve(RECIPE.to_owned());
    }
    let seconds = arguments.first().map_or(Ok(120), |seconds| seconds.parse())?;
    let folder = env::temp_dir().join(format!("stockade-proxy-memory-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    println!(
        "| load | resident at most, MiB | of the limit | p50, ms | p99 | a second's longest | the longest | beyond twice the median | failed |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    let wanted = |name: &str| arguments.len() < 2 || arguments[1..].iter().any(|one| one == name);
    let result =
        LOADS.iter().filter(|(name, ..)| wanted(name)).try_for_each(|one| print_row(&folder, seconds, *one));
    fs::remove_dir_all(&folder)?;
    result
}

fn print_row(folder: &Path, seconds: u64, (name, rate, limit): (&str, &str, &str)) -> Result<()> {
    let _origin = Server::origin_on("0,1")?;
    let cache = format!("[cache]\nstrategy = \"simple\"\nlimit = {{ bytes = \"256MiB\"{limit} }}\n");
    let proxy = Proxy::stockade(folder, "0,1", &cache)?;
    let (url, lasts) = (format!("http://{}/a", proxy.address), format!("{seconds}s"));
    let mut generator = load(folder, &[&url, "--rate", rate, "--cache-bust", "-d", &lasts])?;
    let mut generator = generator.stdout(Stdio::null()).stdin(Stdio::null()).spawn()?;
    let mut resident = Vec::new();
    while generator.try_wait()?.is_none() {
        resident.push(resident_bytes_of(proxy.process())?);
        thread::sleep(Duration::from_secs(1));
    }
    let samples = read(folder)?;
    let most = resident.iter().max().copied().ok_or("it was over before it began")? as f64;
    let mut took: Vec<u64> = samples.iter().map(|sample| sample.took_ns).collect();
    took.sort_unstable();
    let longest = longest(&samples);
    let middle = median(longest.clone());
    println!(
        "| {name} | {:.0} | {:.3} | {:.2} | {:.2} | {middle:.2} | {:.2} | {} of {} | {} of {} |",
        most / 1_048_576.0,
        most / LIMIT_BYTES,
        quantile(&took, 0.5) as f64 / 1e6,
        quantile(&took, 0.99) as f64 / 1e6,
        longest.iter().copied().fold(0.0, f64::max),
        longest.iter().filter(|one| **one > 2.0 * middle).count(),
        longest.len(),
        samples.iter().filter(|sample| sample.code != 200).count(),
        samples.len(),
    );
    Ok(())
}

/// The slowest request of each second, in ms, without the first second, which opens connections.
fn longest(samples: &[Sample]) -> Vec<f64> {
    let second = |sample: &Sample| sample.due_ns / 1_000_000_000;
    let of =
        |samples: &[Sample]| samples.iter().map(|sample| sample.took_ns as f64 / 1e6).fold(0.0, f64::max);
    samples.chunk_by(|one, next| second(one) == second(next)).skip(2).map(of).collect()
}
