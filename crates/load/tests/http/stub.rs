//! Servers that do what a test wants, and loads that ask them.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use stockade_load::{
    Options,
    drive::{Begins, Load, Observer, Progress, Stop},
    plan::{Closed, Plan, Until},
    sample::Sample,
    summary::Summary,
    target::Target,
    traffic::Traffic,
};
use stockade_model::seed::Seed;

/// A server whose every connection is handed to `serve`, on a thread of its own, until the test ends.
pub fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(connection));
        }
    });
    address
}

/// A server that answers every request on a connection with what `answer` makes of its head.
pub fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    server(move |connection| {
        let mut requests = BufReader::new(connection.try_clone().expect("a second handle"));
        let mut connection = connection;
        while let Ok(Some(head)) = head(&mut requests) {
            if connection.write_all(&answer(&head)).is_err() {
                return;
            }
        }
    })
}

/// The next request's head, its body read over; none: no more come.
pub fn head(requests: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if requests.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: u64 = length.map_or(0, |length| length.parse().expect("a length"));
    io::copy(&mut requests.take(length), &mut io::sink())?;
    Ok(Some(head))
}

/// 200 and a body.
pub fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// So many users, until so many requests have been made.
pub fn closed(connections: usize, requests: u64) -> Plan {
    Plan::closed(Closed::new(connections, Until::Requests(requests))).expect("somebody comes")
}

/// A load of one URL, with short waits.
pub fn load(url: &str, plan: Plan) -> Load {
    Load {
        id: "test".to_owned(),
        plan,
        traffic: Arc::new(Traffic::one(Target::get(url.parse().expect("a URL")))),
        options: Options { timeout: Duration::from_secs(20), ..Options::default() },
        max_in_flight: 100,
        drain: Duration::from_secs(20),
        threads: 1.try_into().expect("one"),
        seed: Seed(1),
        first: 0,
        tells_samples: false,
    }
}

/// Keeps every sample.
#[derive(Default)]
pub struct Kept {
    pub samples: Vec<Sample>,
    pub seconds: u64,
}

impl Observer for Kept {
    fn begins(&mut self, _: Begins) {}

    fn second(&mut self, _: &Progress<'_>) {
        self.seconds += 1;
    }

    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.samples.push(sample.clone());
        Ok(())
    }
}

/// What a load comes to.
pub fn run(load: &Load) -> Summary {
    load.run(&mut Kept::default(), &Stop::default()).expect("it runs").summary
}
