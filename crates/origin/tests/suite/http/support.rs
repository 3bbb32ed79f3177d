//! Starts origins, and sends requests as bytes.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;
use stockade_origin::{Origin, OriginOptions, RecipeText};

/// Guard against hanging. No test depends on its value.
pub const HANG_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// The value of a header, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Options with one text of recipes.
pub fn options(recipes: &str) -> OriginOptions {
    let text = RecipeText { name: "recipe.json".to_owned(), text: recipes.to_owned(), folder: "".into() };
    OriginOptions { recipes: Some(text), ..OriginOptions::default() }
}

pub fn start(recipes: &str) -> Origin {
    Origin::start(&options(recipes)).expect("the origin starts")
}

/// Starts an origin with a listener for the admin pages alone, and returns that listener's address.
pub fn start_with_admin(recipes: &str) -> (Origin, SocketAddr) {
    let admin = Some((std::net::Ipv4Addr::LOCALHOST, 0).into());
    let origin = Origin::start(&OriginOptions { admin, ..options(recipes) }).expect("the origin starts");
    let admin = origin.admin_address.expect("the options name an admin address");
    (origin, admin)
}

pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(HANG_TIMEOUT))?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Sends a request on an open connection. Each of `headers` ends with a line break.
pub fn send(tcp: &mut TcpStream, method: &str, path: &str, headers: &str, body: &str) {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{length}{headers}\r\n{body}");
    tcp.write_all(request.as_bytes()).expect("the connection takes the request");
}

/// Reads one reply. An incomplete one is an error.
pub fn receive(tcp: &TcpStream, method: &str) -> io::Result<Reply> {
    let mut lines = BufReader::new(tcp);
    let mut line = String::new();
    let mut next_line = |lines: &mut BufReader<_>| {
        line.clear();
        lines.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    let status_line = next_line(&mut lines)?;
    let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, status_line.clone()))?;
    let mut headers = BTreeMap::new();
    loop {
        let line = next_line(&mut lines)?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let has_body = method != "HEAD" && ![204, 304].contains(&status);
    let mut body = vec![0; if has_body { length } else { 0 }];
    lines.read_exact(&mut body)?;
    Ok(Reply { status, headers, body })
}

/// Sends a request on a new connection, and reads the reply.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<Reply> {
    let mut tcp = connect(address)?;
    send(&mut tcp, method, path, headers, body);
    receive(&tcp, method)
}

pub fn get(address: SocketAddr, path: &str) -> Reply {
    request(address, "GET", path, "", "").expect("a complete reply")
}

pub fn add_recipes(address: SocketAddr, recipes: &str) -> Reply {
    request(address, "POST", "/_admin/add_recipe", "", recipes).expect("a complete reply")
}

/// The text of an admin page.
pub fn page(address: SocketAddr, name: &str) -> String {
    get(address, &format!("/_admin/{name}")).text().to_owned()
}

pub fn current_count(address: SocketAddr) -> Value {
    get(address, "/_admin/current_count").json()
}

/// Polls until the condition holds.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < HANG_TIMEOUT, "the condition never held");
        std::thread::yield_now();
    }
}

/// Waits until this many requests are open.
pub fn wait_for_open_requests(address: SocketAddr, count: usize) {
    wait_until(|| current_count(address)["concurrent_requests"]["now"] == count);
}
