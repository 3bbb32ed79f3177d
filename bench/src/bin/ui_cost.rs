//! The processor time of `stockade run` with `--ui` and a browser's stream of events, relative to a run without it.
//!
//! `ui_cost STOCKADE [PAIRS] [SECONDS]` runs pairs of the same load on a proxy, 2,000 requests a second, in turns: with the page first in
//! every other pair. The processor time is that of the process that runs the load and serves the page, without the proxy and the origin.
//! Use a release build on an idle machine: the spread of the pairs without the page among each other is the noise of a ratio.

use std::{
    env,
    error::Error,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use stockade_bench::{
    process::{cpu_seconds, has_ended},
    statistics::{median, range},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let program = arguments.next().ok_or("usage: ui_cost STOCKADE [PAIRS] [SECONDS]")?;
    let pairs: usize = arguments.next().map_or(Ok(8), |pairs| pairs.parse())?;
    let seconds: u32 = arguments.next().map_or(Ok(30), |seconds| seconds.parse())?;
    let folder = env::temp_dir().join(format!("ui-cost-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::write(
        folder.join("recipe.json"),
        r#"[{"route": "/*", "random_content": "1kb", "stages": [{"at": 0}], "headers": {"cache-control": "public, max-age=2"}}]"#,
    )?;
    fs::write(folder.join("experiment.toml"), experiment(seconds))?;

    println!("| pair | without, s | with the page, s | ratio | bytes of events |\n|---|---|---|---|---|");
    let (mut ratios, mut without) = (Vec::new(), Vec::new());
    for pair in 1..=pairs {
        let mut with_page = (0.0, 0);
        let mut plain = 0.0;
        for is_with_page in [pair % 2 == 0, pair % 2 == 1] {
            if is_with_page {
                with_page = run(&program, &folder, true)?;
            } else {
                plain = run(&program, &folder, false)?.0;
            }
        }
        let ratio = with_page.0 / plain;
        println!("| {pair} | {plain:.2} | {:.2} | {ratio:.3} | {} |", with_page.0, with_page.1);
        ratios.push(ratio);
        without.push(plain);
    }
    fs::remove_dir_all(&folder)?;
    let (least, greatest) = range(&ratios);
    println!("\nmedian of the ratios {:.3} ({least:.3} to {greatest:.3})", median(ratios));
    let middle = median(without.clone());
    let (least, greatest) = range(&without);
    println!("without the page: {:.3} to {:.3} of their median", least / middle, greatest / middle);
    Ok(())
}

fn experiment(seconds: u32) -> String {
    format!(
        "title = \"The cost of the page\"\n\
         [[hypothesis]]\ntext = \"all requests are answered\"\nexpect = [\"success == 1.0\"]\n\
         [target]\nkind = \"proxy\"\n\
         [origin]\nrecipe = \"recipe.json\"\n\
         [cache]\nstrategy = \"stampede\"\nttl = \"2s\"\n\
         [load]\nrate = \"2000/s\"\nduration = \"{seconds}s\"\npath = \"/{{key}}\"\nkeys = \"zipf:1000\"\n"
    )
}

/// Runs the experiment once. Returns the processor time in seconds, and the bytes that the browser received.
fn run(program: &str, folder: &Path, with_page: bool) -> Result<(f64, usize)> {
    let mut command = Command::new(program);
    command.arg("run").arg(folder.join("experiment.toml")).arg("--out").arg(folder.join("record"));
    if with_page {
        command.args(["--ui", "127.0.0.1:0"]);
    }
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(process.stderr.take().ok_or("no standard error")?);
    let browser = if with_page {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .ok_or(line.clone())?
            .to_owned();
        Some(thread::spawn(move || follow(&address)))
    } else {
        None
    };
    let rest = thread::spawn(move || {
        let mut rest = String::new();
        // An error ends the text early; the exit status says what happened.
        let _ = lines.read_to_string(&mut rest);
        rest
    });
    let seconds = processor_seconds(&process)?;
    let status = process.wait()?;
    let rest = rest.join().map_err(|_| "the reader panicked")?;
    if !matches!(status.code(), Some(0 | 98)) {
        return Err(format!("stockade run: {status}: {rest}").into());
    }
    fs::remove_dir_all(folder.join("record"))?;
    let received =
        browser.map_or(Ok(Ok(0)), |browser| browser.join().map_err(|_| "the browser panicked"))??;
    Ok((seconds, received))
}

/// Follows the events as the page does: a stream of seconds, and the page again where it has changed. Returns the bytes received.
fn follow(address: &str) -> std::io::Result<usize> {
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        Ok::<_, std::io::Error>(BufReader::new(stream))
    };
    let page = |path: &str| get(path)?.read_to_end(&mut Vec::new());
    let mut received = page("/")?;
    let mut after = "0".to_owned();
    loop {
        // The server closes a stream after a minute.
        for line in get(&format!("/events?after={after}"))?.lines() {
            let line = line?;
            received += line.len() + 1;
            match line.split_once(": ") {
                Some(("id", number)) => number.clone_into(&mut after),
                Some(("event", "page")) => received += page("/")?,
                Some(("event", "end")) => return Ok(received + page("/?end=1")?),
                _ => {}
            }
        }
    }
}

/// The processor time of a process until it ends, user and system, without its children.
fn processor_seconds(process: &Child) -> Result<f64> {
    while !has_ended(process.id())? {
        thread::sleep(POLL_INTERVAL);
    }
    cpu_seconds(process.id())
}
