//! An origin, and a client that hides nothing.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use stockade_origin::{Options, Origin, Text};

/// No test waits longer for an answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a server said.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("text")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub fn header(&self, name: &str) -> &str {
        self.head.get(name).map_or("", String::as_str)
    }
}

pub fn options(recipe: &str) -> Options {
    let text = Text { name: "recipe.json".to_owned(), text: recipe.to_owned(), folder: "".into() };
    Options { recipes: Some(text), ..Options::default() }
}

/// One that serves a recipe.
pub fn serving(recipe: &str) -> Origin {
    Origin::start(&options(recipe)).expect("an origin")
}

/// One with another listener for the admin pages.
pub fn with_admin(recipe: &str) -> (Origin, SocketAddr) {
    let admin = Some((std::net::Ipv4Addr::LOCALHOST, 0).into());
    let origin = Origin::start(&Options { admin, ..options(recipe) }).expect("an origin");
    let admin = origin.admin.expect("a listener");
    (origin, admin)
}

pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Sends a request on a connection; headers each with their line's end.
pub fn send(tcp: &mut TcpStream, method: &str, path: &str, headers: &str, body: &str) {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: origin\r\n{length}{headers}\r\n{body}");
    tcp.write_all(request.as_bytes()).expect("a request is sent");
}

/// Reads one reply; an error where there is none, or not all of it.
pub fn receive(tcp: &TcpStream, method: &str) -> io::Result<Reply> {
    let mut lines = BufReader::new(tcp);
    let mut line = String::new();
    let mut next = |lines: &mut BufReader<_>| {
        line.clear();
        lines.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    let first = next(&mut lines)?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, first.clone());
    let status =
        first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).ok_or_else(malformed)?;
    let mut head = BTreeMap::new();
    loop {
        let line = next(&mut lines)?;
        let Some((name, value)) = line.split_once(": ") else { break };
        head.insert(name.to_lowercase(), value.to_owned());
    }
    let length = head.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let has_body = method != "HEAD" && ![204, 304].contains(&status);
    let mut body = vec![0; if has_body { length } else { 0 }];
    lines.read_exact(&mut body)?;
    Ok(Reply { status, head, body })
}

/// Asks on a connection of its own.
pub fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> io::Result<Reply> {
    let mut tcp = connect(address)?;
    send(&mut tcp, method, path, headers, body);
    receive(&tcp, method)
}

pub fn get(address: SocketAddr, path: &str) -> Reply {
    ask(address, "GET", path, "", "").expect("a reply")
}

/// POSTs a recipe.
pub fn add(address: SocketAddr, recipe: &str) -> Reply {
    ask(address, "POST", "/_admin/add_recipe", "", recipe).expect("a reply")
}

/// What the admin page of this name says.
pub fn page(address: SocketAddr, name: &str) -> String {
    get(address, &format!("/_admin/{name}")).text().to_owned()
}
