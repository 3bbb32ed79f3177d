//! The accuracy of `stockade load`.
//!
//! The responder has the first core, the generator the second.
//!
//! 1. *Pacing*: the send lag at a constant rate, the largest error of the count of requests, and the number of seconds
//!    with an error over 0.1 %.
//! 2. *Latency*: a responder spins for 1, 5 or 50 ms; its own times and those of the generator.
//! 3. *A freeze*: 5 s into 10 s at 1,000/s the responder pauses for 1 s, with at most ten requests in flight.
//! 4. *Memory*: a million responses of 100 KiB in one run: the growth of resident memory in the second half.
//!
//! `taskset` has to be installed.

use std::{env, error::Error, io::Read, process::Stdio, thread, time::Duration};

use serde_json::Value;
use stockade_bench::{
    generators::{generate, responder, stockade},
    origin::{Server, pinned},
    process::resident_bytes_of,
    responder::{RESPONDER, get, respond},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Generator {
    responder: Server,
    program: String,
}

fn main() -> Result<()> {
    if env::args().nth(1).as_deref() == Some("respond") {
        return respond();
    }
    let generator = Generator { responder: responder()?, program: stockade()?.display().to_string() };
    generator.all()
}

impl Generator {
    fn all(&self) -> Result<()> {
        println!(
            "| rate | requests | send lag p50 | p99 | count off at most | seconds off by more than 0.1 % |"
        );
        println!("|---|---|---|---|---|---|");
        self.pacing(425, 60)?;
        self.pacing(10_000, 60)?;
        println!(
            "\n| spins | own p50 | told p50 | apart | own p99 | told p99 | apart |\n|---|---|---|---|---|---|---|"
        );
        for (ms, rate) in [(1, 200), (5, 50), (50, 10)] {
            self.latency(ms, rate)?;
        }
        println!(
            "\n| freeze: requests | response p99 | service p99.9 | longest service |\n|---|---|---|---|"
        );
        self.freeze()?;
        println!("\n| answers | most in the first half | in the second | more |\n|---|---|---|---|");
        self.memory()
    }

    /// The report of a run, as JSON.
    fn run(&self, path: &str, arguments: &[&str]) -> Result<Value> {
        let url = format!("http://{RESPONDER}{path}");
        let program = [&[&self.program, "load", &url, "-t", "1", "--format", "json"], arguments].concat();
        let (_, output) = generate(&self.responder, &program, |_| Some(0.0))?;
        Ok(serde_json::from_str(output.lines().next().ok_or("the load printed nothing")?)?)
    }

    fn pacing(&self, rate: u32, seconds: u32) -> Result<()> {
        let (rate_text, lasts) = (format!("{rate}/s"), format!("{seconds}s"));
        let report = self.run("/1", &["--rate", &rate_text, "-d", &lasts])?;
        let lag = &report["stockade"]["send_lag"];
        let of_each: Vec<f64> = report["stockade"]["achieved_rate_per_s_each"]
            .as_array()
            .ok_or("no rates")?
            .iter()
            .filter_map(Value::as_f64)
            .collect();
        let rate = f64::from(rate);
        let off = of_each.iter().filter(|sent| (*sent - rate).abs() > rate / 1e3).count();
        let mut count = 0.0;
        let ever = of_each.iter().zip(1..).map(|(sent, second)| {
            count += sent;
            (count - rate * f64::from(second)).abs() / (rate * f64::from(second))
        });
        let ever = ever.fold(0.0, f64::max);
        println!(
            "| {rate_text} | {} | {} | {} | {:.3} % | {off} of {} |",
            report["requests"],
            ms(&lag["p50_ms"]),
            ms(&lag["p99_ms"]),
            ever * 100.0,
            of_each.len(),
        );
        Ok(())
    }

    fn latency(&self, spins: u32, rate: u32) -> Result<()> {
        let report = self.run(&format!("/spin/{spins}"), &["--rate", &format!("{rate}/s"), "-d", "30s"])?;
        let own = get("/latency")?;
        let (p50, p99) = own.split_once(' ').ok_or("two figures")?;
        let own = [p50.parse::<f64>()? / 1e6, p99.parse::<f64>()? / 1e6];
        let reported =
            ["p50_ms", "p99_ms"].map(|name| report["stockade"]["service"][name].as_f64().unwrap_or(f64::NAN));
        println!(
            "| {spins} ms | {:.3} ms | {:.3} ms | {:.3} ms | {:.3} ms | {:.3} ms | {:.3} ms |",
            own[0],
            reported[0],
            reported[0] - own[0],
            own[1],
            reported[1],
            reported[1] - own[1],
        );
        Ok(())
    }

    fn freeze(&self) -> Result<()> {
        let report = self.run("/freeze", &["--rate", "1000/s", "-d", "10s", "--max-in-flight", "10"])?;
        let figures = |times: &str, name: &str| ms(&report["stockade"][times][name]);
        println!(
            "| {} | {} | {} | {} |",
            report["requests"],
            figures("response", "p99_ms"),
            figures("service", "p999_ms"),
            figures("service", "max_ms"),
        );
        Ok(())
    }

    /// One run of a million responses; resident memory is read ten times per second.
    fn memory(&self) -> Result<()> {
        let url = format!("http://{RESPONDER}/100");
        let mut load = pinned(1)
            .args([&self.program, "load", &url, "-t", "1", "-c", "64", "-n", "1000000", "--format", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut resident = Vec::new();
        while load.try_wait()?.is_none() {
            if let Ok(bytes) = resident_bytes_of(load.id()) {
                resident.push(bytes);
            }
            thread::park_timeout(Duration::from_millis(100));
        }
        let mut output = String::new();
        load.stdout.take().ok_or("no output")?.read_to_string(&mut output)?;
        let report: Value = serde_json::from_str(&output)?;
        let (first, second) = resident.split_at(resident.len() / 2);
        let most = |half: &[u64]| half.iter().copied().max().unwrap_or_default() as f64 / f64::from(1 << 20);
        let (first, second) = (most(first), most(second));
        println!(
            "| {} of {} bytes | {first:.1} MiB | {second:.1} MiB | {:.1} MiB |",
            report["status_codes"]["200"],
            report["bytes_in"]["mean"],
            second - first
        );
        Ok(())
    }
}

fn ms(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3} ms"))
}
