//! A NATS server, agents in threads, a server under load.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use stockade_agents::{
    AgentClock, AgentError, AgentOptions, CancellationToken, ConnectionOptions, Coordinator,
    CoordinatorError, CoordinatorOptions, serve,
};
use stockade_load::{
    AllowedTargets, ClientOptions,
    generator::{LoadProgress, LoadRunner, LoadStart, LoadTest, LoadTestError, LoadTestRun, Observer, Share},
    plan::Plan,
    sample::Sample,
    template::RequestTemplate,
    traffic::{Traffic, TrafficOptions},
    url::parse_url,
};
use stockade_model::seed::Seed;
use stockade_services::{NatsServer, serve_hello};

/// Longer than anything takes; only a hang exceeds it.
pub const HANG: Duration = Duration::from_mins(1);

/// Of a coordinator and of agents without credentials.
pub fn connection(nats: &NatsServer) -> ConnectionOptions {
    ConnectionOptions { url: nats.url().parse().expect("a URL"), credentials: None, authorities: None }
}

/// An agent in a thread. A drop stops it.
pub struct Agent {
    stop: CancellationToken,
    thread: Option<JoinHandle<Result<(), AgentError>>>,
}

/// An agent with this name that may reach this machine.
pub fn agent_options(nats: &NatsServer, name: &str) -> AgentOptions {
    AgentOptions {
        connection: connection(nats),
        subject: "test".parse().expect("a subject"),
        name: name.to_owned(),
        weight: 1.try_into().expect("not zero"),
        labels: Vec::new(),
        allowed: AllowedTargets::default(),
        servers: None,
        samples: None,
        clock: AgentClock::new(),
        patience: HANG,
    }
}

impl Agent {
    /// Returns once it can receive loads.
    pub fn start(options: AgentOptions) -> Self {
        let stop = CancellationToken::new();
        let (ready, is_ready) = mpsc::channel();
        let cancel = stop.clone();
        let thread = thread::spawn(move || {
            serve(options, |info| ready.send(info.name.clone()).expect("the test waits"), &cancel)
        });
        is_ready.recv_timeout(HANG).expect("it is ready");
        Self { stop, thread: Some(thread) }
    }

    /// Waits for its end.
    pub fn stop(mut self) -> Result<(), AgentError> {
        self.stop.cancel();
        self.thread.take().expect("it runs").join().expect("no panic")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// `a0`, `a1`, ...
pub fn agents(nats: &NatsServer, count: usize, samples: Option<&Path>) -> Vec<Agent> {
    let agent = |index| {
        let samples = samples.map(PathBuf::from);
        Agent::start(AgentOptions { samples, ..agent_options(nats, &format!("a{index}")) })
    };
    (0..count).map(agent).collect()
}

/// Waits for this number of agents.
pub fn coordinator(nats: &NatsServer, agents: usize) -> Result<Coordinator, CoordinatorError> {
    let options = CoordinatorOptions {
        connection: connection(nats),
        subject: "test".parse().expect("a subject"),
        agents: Some(agents),
        labels: Vec::new(),
        server_labels: BTreeMap::new(),
        agents_wait: HANG,
        moves_late_shares: false,
    };
    Coordinator::connect(&options, &CancellationToken::new(), |_| {})
}

/// A server that answers `hello`, and the number of its requests.
pub fn hello() -> (SocketAddr, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let address = serve_hello(move || _ = counted.fetch_add(1, Relaxed)).expect("a free port");
    (address, count)
}

/// A load with a key in each request.
pub fn load(server: SocketAddr, plan: Plan) -> LoadTest {
    let template = RequestTemplate::get(parse_url(&format!("http://{server}/{{key}}")).expect("a URL"));
    let options =
        TrafficOptions { keys: Some("zipf:1000".parse().expect("keys")), ..TrafficOptions::default() };
    LoadTest {
        id: "test".to_owned(),
        plan,
        traffic: Arc::new(Traffic::new(vec![template], options, Seed(7)).expect("traffic")),
        options: ClientOptions { timeout: Duration::from_secs(20), ..ClientOptions::default() },
        max_in_flight: None,
        drain: Duration::from_secs(20),
        threads: None,
        seed: Seed(7),
        first_request: 0,
        share: Share::WHOLE,
        observes_samples: false,
    }
}

pub fn constant(rate: &str, lasts: Duration) -> Plan {
    Plan::constant(rate.parse().expect("a rate"), lasts).expect("a plan")
}

/// Stores samples, and counts seconds.
#[derive(Default)]
pub struct Observed {
    pub start: Option<LoadStart>,
    pub samples: Vec<Sample>,
    pub seconds: u64,
}

impl Observer for Observed {
    fn on_start(&mut self, start: LoadStart) {
        self.start = Some(start);
    }

    fn on_second(&mut self, _: &LoadProgress<'_>) {
        self.seconds += 1;
    }

    fn on_sample(&mut self, sample: &Sample) -> std::io::Result<()> {
        self.samples.push(sample.clone());
        Ok(())
    }
}

/// Runs a load to its end.
pub fn run(loads: &dyn LoadRunner, load: &LoadTest) -> Result<LoadTestRun, LoadTestError> {
    loads.prepare(load)?.run(&mut Observed::default(), &CancellationToken::new())
}

/// The lines of all files of a folder.
pub fn lines(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("an entry").path());
    files
        .flat_map(|file| {
            fs::read_to_string(file).expect("a file").lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}
