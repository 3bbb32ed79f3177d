//! Test servers, and loads that are sent to them.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    num::NonZeroUsize,
    sync::Arc,
    thread,
    time::Duration,
};

use stockade_load::{
    ClientOptions,
    generator::{CancellationToken, LoadProgress, LoadStart, LoadTest, Observer, Share},
    plan::{ClosedLoop, EndCondition, Plan},
    sample::Sample,
    summary::Summary,
    template::RequestTemplate,
    traffic::Traffic,
};
use stockade_model::seed::Seed;

/// A server that passes each connection to `serve` on a thread of its own, until the test ends.
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

/// A server that responds to each request head with `respond`.
pub fn responding(respond: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    server(move |connection| {
        let mut requests = BufReader::new(connection.try_clone().expect("a second handle"));
        let mut connection = connection;
        while let Ok(Some(head)) = read_head(&mut requests) {
            if connection.write_all(&respond(&head)).is_err() {
                return;
            }
        }
    })
}

/// The head of the next request, after which its body is skipped; none at the end of the connection.
pub fn read_head(requests: &mut impl BufRead) -> io::Result<Option<String>> {
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

/// A response with status 200.
pub fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A closed loop.
pub fn closed(connections: usize, requests: u64) -> Plan {
    Plan::closed_loop(ClosedLoop::new(connections, EndCondition::Requests(requests)))
        .expect("a plan with requests")
}

/// A time that is long enough on any machine; only a hang exceeds it.
pub const HANG: Duration = Duration::from_mins(1);

/// A load of one URL.
pub fn load(url: &str, plan: Plan) -> LoadTest {
    LoadTest {
        id: "test".to_owned(),
        plan,
        traffic: Arc::new(Traffic::single_unchecked(RequestTemplate::get(url.parse().expect("a URL")))),
        options: ClientOptions { timeout: HANG, ..ClientOptions::default() },
        max_in_flight: Some(100),
        drain: HANG,
        threads: NonZeroUsize::new(1),
        seed: Seed(1),
        first_request: 0,
        share: Share::WHOLE,
        observes_samples: false,
    }
}

/// Stores every sample.
#[derive(Default)]
pub struct SampleLog {
    pub samples: Vec<Sample>,
    pub seconds: u64,
}

impl Observer for SampleLog {
    fn on_start(&mut self, _: LoadStart) {}

    fn on_second(&mut self, _: &LoadProgress<'_>) {
        self.seconds += 1;
    }

    fn on_sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.samples.push(sample.clone());
        Ok(())
    }
}

pub fn run(load: &LoadTest) -> Summary {
    load.run(&mut SampleLog::default(), &CancellationToken::new()).expect("it runs").summary
}
