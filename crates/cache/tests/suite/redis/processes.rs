//! Nodes in their own processes, one Redis, and a source that counts the loads of all nodes.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use super::nodes::{self, BUSY, MS, Node, coalescing, command, until};
use futures_util::future::join_all;
use stockade_cache::{Live, Runtime};
use stockade_model::time::Time;
use stockade_services::RedisServer;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The variable with a node's configuration. Without it, the process is the test.
const NODE: &str = "STOCKADE_TEST_NODE";

/// The main loop of a node's process: reports its start; requests all keys of each line at once
/// and prints the responses.
#[test]
fn node() {
    let Ok(places) = std::env::var(NODE) else { return };
    let (url, source) = places.split_once(' ').expect("a Redis and a source");
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let node = tokio.block_on(async { Node::at(url, &coalescing(nodes::MINUTE), true).up().await });
    println!("\nup");
    for line in std::io::stdin().lines() {
        let keys: Vec<_> = line.unwrap().split(' ').map(ToOwned::to_owned).collect();
        let answers = tokio.block_on(join_all(keys.iter().map(|key| {
            let (key, source) = (key.clone(), source.to_owned());
            node.cache.get_with(key.clone(), move || load(source, key))
        })));
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(answer) => println!("{key} {} {:?}", answer.value, answer.outcome),
                Err(error) => println!("{key} ! {error}"),
            }
        }
    }
    // The parent process has ended.
}

async fn load(source: String, key: String) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect(source).await?;
    stream.write_all(format!("{key}\n").as_bytes()).await?;
    let mut value = String::new();
    stream.read_to_string(&mut value).await?;
    if value.is_empty() { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(value) }
}

/// A source for processes: it responds to a line with a key with a value, after a delay.
struct Origin {
    address: String,
    /// The key and the start of each load.
    loads: Arc<Mutex<Vec<(String, Time)>>>,
}

impl Origin {
    async fn start(live: &Live, takes: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (live, loads) = (live.clone(), Arc::<Mutex<Vec<_>>>::default());
        let shared_loads = Arc::clone(&loads);
        live.clone().spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (loads, clock) = (Arc::clone(&loads), live.clone());
                live.spawn(async move {
                    let mut key = String::new();
                    tokio::io::BufReader::new(&mut stream).read_line(&mut key).await.unwrap();
                    let key = key.trim().to_owned();
                    loads.lock().unwrap().push((key.clone(), clock.now()));
                    clock.sleep_until(clock.now() + takes).await;
                    // The client's process may be dead.
                    let _ = stream.write_all(format!("value-of-{key}").as_bytes()).await;
                });
            }
        });
        Self { address, loads: shared_loads }
    }

    fn loads(&self) -> usize {
        self.loads.lock().unwrap().len()
    }
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node's responses: key, value, outcome.
type Answers = Vec<[String; 3]>;

impl Process {
    async fn start(redis: &str, origin: &Origin) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "redis::processes::node", "--nocapture"])
            .env(NODE, format!("{redis} {}", origin.address))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        let mut process = Self { child, stdin, stdout };
        process.read_lines(|line| (line == "up").then_some(()), 1).await;
        process
    }

    /// Requests all of these keys at once.
    fn request(&mut self, keys: &str) {
        writeln!(self.stdin, "{keys}").unwrap();
    }

    async fn read_lines<T: Send + 'static>(
        &mut self,
        read: impl Fn(&str) -> Option<T> + Send + 'static,
        lines: usize,
    ) -> Vec<T> {
        let mut stdout = self.stdout.take().expect("no other read is in progress");
        let reading = tokio::task::spawn_blocking(move || {
            let mut values = Vec::new();
            while values.len() < lines {
                let mut line = String::new();
                assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the process has ended");
                values.extend(read(line.trim_end()));
            }
            (stdout, values)
        });
        let (stdout, values) = reading.await.unwrap();
        self.stdout = Some(stdout);
        values
    }

    async fn answers(&mut self, lines: usize) -> Answers {
        let read = |line: &str| {
            let mut words = line.splitn(3, ' ').map(ToOwned::to_owned);
            Some([words.next()?, words.next()?, words.next()?])
        };
        self.read_lines(read, lines).await
    }
}

async fn processes(redis: &str, origin: &Origin) -> Vec<Process> {
    join_all((0..8).map(|_| Process::start(redis, origin))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_processes_load_each_key_once() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let origin = Origin::start(&live, 50 * MS).await;
    let mut processes = processes(&nodes::patient(&redis), &origin).await;
    for process in &mut processes {
        process.request("cold");
    }
    let answers = join_all(processes.iter_mut().map(|process| process.answers(1))).await.concat();
    assert!(answers.iter().all(|[_, value, _]| value == "value-of-cold"), "{answers:?}");
    assert_eq!(answers.iter().filter(|[_, _, outcome]| outcome == "Miss").count(), 1, "{answers:?}");
    assert_eq!(origin.loads(), 1);

    let keys: Vec<_> = (0..1_000).map(|key| key.to_string()).collect();
    let began = live.now();
    for (number, process) in processes.iter_mut().enumerate() {
        // Each process starts at another key, so that each one leads for some.
        let keys = [&keys[number * 125..], &keys[..number * 125]].concat();
        process.request(&keys.join(" "));
    }
    let answers = join_all(processes.iter_mut().map(|process| process.answers(1_000))).await;
    let took = live.now() - began;
    let led =
        answers.iter().map(|answers| answers.iter().filter(|[_, _, outcome]| outcome == "Miss").count());
    let led: Vec<_> = led.collect();
    for [key, value, outcome] in answers.iter().flatten() {
        assert_eq!(*value, format!("value-of-{key}"), "{outcome}");
    }
    assert_eq!((led.iter().sum::<usize>(), origin.loads()), (1_000, 1_001), "{led:?}");
    println!("8,000 answers of 1,000 loads in {took:?}; misses by process: {led:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_is_replaced_within_the_lease() {
    const LEASE: Duration = Duration::from_secs(1);
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let origin = Origin::start(&live, 2 * LEASE).await;
    let url = format!("{}?lease=1s&timeout=5s", redis.url());
    let mut processes = processes(&url, &origin).await;
    let mut first = processes.remove(0);
    first.request("key");
    until("the first loads", async || origin.loads() == 1).await;
    for process in &mut processes {
        process.request("key");
    }
    let all_wait = async || command::<usize>(&redis, "SCARD stockade:w:{:key}").await == 7;
    until("the others wait", all_wait).await;
    // Longer than the lease, so it has been renewed.
    nodes::sleep(LEASE + LEASE / 2).await;
    assert_eq!(origin.loads(), 1);
    let killed = live.now();
    first.child.kill().unwrap();
    let answers = join_all(processes.iter_mut().map(|process| process.answers(1))).await.concat();
    assert!(answers.iter().all(|[_, value, _]| value == "value-of-key"), "{answers:?}");
    assert_eq!(answers.iter().filter(|[_, _, outcome]| outcome == "Miss").count(), 1, "{answers:?}");
    let loads = origin.loads.lock().unwrap().clone();
    assert_eq!(loads.len(), 2, "{loads:?}");
    let followed = loads[1].1 - killed;
    assert!(followed <= LEASE + BUSY, "{followed:?}");
    println!("the next load began {followed:?} after the kill, with a lease of {LEASE:?}");
}
