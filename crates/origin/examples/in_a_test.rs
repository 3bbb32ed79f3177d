//! An origin inside a test: it serves while its clocks are held, and fails as soon as they are started.
//!
//! ```text
//! cargo run --package stockade-origin --example in_a_test
//! ```
//!
//! The test does not sleep: the second stage begins after a nanosecond, so the test decides when it begins. In your test
//! the requests go through a cache or a client with retries, and `current_count` shows how many arrive at the origin.

use std::{
    error::Error,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use stockade_origin::{Origin, OriginOptions, RecipeText};

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
    // Errors in the recipe begin with the name. Latency files would be relative to the folder.
    let recipe = RecipeText { name: "recipe".to_owned(), text: RECIPE.to_owned(), folder: PathBuf::new() };
    // The origin listens on a free port of the loopback, in a thread of its own, until it is dropped.
    let options = OriginOptions { is_clock_held: true, recipes: Some(recipe), ..OriginOptions::default() };
    let origin = Origin::start(&options)?;
    let get = |path| get(origin.address, path);

    println!("held:      {}", get("/news/today")?);
    get("/_admin/start")?;
    println!("started:   {}", get("/news/today")?);
    // Returns to the state after the start: held clocks, and the first recipe.
    get("/_admin/restart")?;
    println!("restarted: {}", get("/news/today")?);
    println!("counters:  {}", get("/_admin/current_count")?);
    Ok(())
}

/// Status line and body of the response, over a new connection.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut tcp = TcpStream::connect(address)?;
    // With a recipe that never answers, the test fails instead of hanging.
    tcp.set_read_timeout(Some(Duration::from_mins(1)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    tcp.write_all(request.as_bytes())?;
    let mut response = String::new();
    tcp.read_to_string(&mut response)?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = head.lines().next().unwrap_or_default();
    Ok(format!("{status}: {body}"))
}
