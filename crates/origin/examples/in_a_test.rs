//! An origin inside a test: it answers while its clock is held, and fails as soon as that is started.
//!
//! ```text
//! cargo run --package stockade-origin --example in_a_test
//! ```
//!
//! Nothing sleeps: the second stage begins in the first nanosecond, so the test itself says when it begins. In a test
//! of yours the requests go through what you test, a cache or a client with retries, and `current_count` tells how
//! many came out at the other end.

use std::{
    error::Error,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use stockade_origin::{Options, Origin, Text};

const RECIPE: &str = r#"{
    "route": "/news*",
    "body": "{\"headline\": \"all is well\"}",
    "headers": { "cache-control": "public, max-age=30" },
    "stages": [
        { "at": 0,     "status": 200 },
        { "at": "1ns", "status": 503 }
    ]
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    // An error in the recipe names it, with line and column. The folder is that of files of latencies.
    let recipe = Text { name: "recipe".to_owned(), text: RECIPE.to_owned(), folder: PathBuf::new() };
    // On a free port of the loopback, on a thread of its own. It is gone when it is dropped.
    let origin = Origin::start(&Options { is_held: true, recipes: Some(recipe), ..Options::default() })?;
    let ask = |path| ask(origin.address, path);

    println!("held:      {}", ask("/news/today")?);
    ask("/_admin/start")?;
    println!("started:   {}", ask("/news/today")?);
    // As it was at first: held, and with the recipe that it was started with.
    ask("/_admin/restart")?;
    println!("restarted: {}", ask("/news/today")?);
    println!("counted:   {}", ask("/_admin/current_count")?);
    Ok(())
}

/// Status and body of the answer, on a connection of its own.
fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut tcp = TcpStream::connect(address)?;
    // A recipe may have it silent: then this fails, and the test does not hang.
    tcp.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    tcp.write_all(request.as_bytes())?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = head.lines().next().unwrap_or_default();
    Ok(format!("{status}: {body}"))
}
