//! An origin in its own process, on its own core.

use std::{
    env,
    error::Error,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use stockade_origin::{Origin, OriginOptions, RecipeText};

pub const ORIGIN: &str = "127.0.0.1:18080";

/// A process that ends with its parent.
pub struct Server(pub Child);

impl Server {
    /// Starts a program on its own core and waits until it listens on `address`.
    pub fn start(core: usize, program: &[&str], address: &str) -> Result<Self, Box<dyn Error>> {
        Self::start_on(&core.to_string(), program, address)
    }

    /// The same on several cores, as `taskset` has them: `0,1`.
    pub fn start_on(cores: &str, program: &[&str], address: &str) -> Result<Self, Box<dyn Error>> {
        Self::start_with(pinned_on(cores).args(program), address)
    }

    /// The same on the cores of this process.
    pub fn start_anywhere(program: &[&str], address: &str) -> Result<Self, Box<dyn Error>> {
        let (name, arguments) = program.split_first().ok_or("no program")?;
        Self::start_with(Command::new(name).args(arguments), address)
    }

    fn start_with(command: &mut Command, address: &str) -> Result<Self, Box<dyn Error>> {
        let (address, began): (SocketAddr, _) = (address.parse()?, Instant::now());
        // A server that listens there already would be measured in its place.
        drop(TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?);
        let server = Self(command.stdin(Stdio::null()).spawn()?);
        while TcpStream::connect(address).is_err() {
            if began.elapsed() > Duration::from_secs(10) {
                return Err(format!("no server listens at {address}").into());
            }
            thread::yield_now();
        }
        Ok(server)
    }

    /// Starts this program again, which calls [`serve`].
    pub fn origin() -> Result<Self, Box<dyn Error>> {
        Self::origin_on("0")
    }

    /// The same on several cores.
    pub fn origin_on(cores: &str) -> Result<Self, Box<dyn Error>> {
        let program = env::current_exe()?;
        Self::start_on(cores, &[program.to_str().ok_or("a path that is not text")?, "serve"], ORIGIN)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body at a path of a server, over a connection of its own.
pub fn get(address: &str, path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut tcp = TcpStream::connect(address)?;
    write!(tcp, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut reply = Vec::new();
    tcp.read_to_end(&mut reply)?;
    let at = reply.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no reply")?;
    Ok(reply.split_off(at + 4))
}

/// The number of requests that the origin has answered.
pub fn origin_requests() -> Result<u64, Box<dyn Error>> {
    let counts = get(ORIGIN, "/_admin/current_count")?;
    let counts: serde_json::Value = serde_json::from_slice(&counts)?;
    counts["total_requests"].as_u64().ok_or_else(|| format!("no total in {counts}").into())
}

/// Serves a recipe with one thread until it is killed.
pub fn serve(recipe: String) -> Result<(), Box<dyn Error>> {
    let recipes = Some(RecipeText { name: "recipe".to_owned(), text: recipe, folder: "".into() });
    let _origin =
        Origin::start(&OriginOptions { listen: ORIGIN.parse()?, recipes, ..OriginOptions::default() })?;
    loop {
        thread::park();
    }
}

/// A command on one core.
#[must_use]
pub fn pinned(core: usize) -> Command {
    pinned_on(&core.to_string())
}

fn pinned_on(cores: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cores]);
    command
}
