//! Mixes of attacks from many networks: the resident memory of the process stays below its bound, and is given back.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use super::{MIB, memory_bound_mib, resident, stats};
use crate::{running::Running, support::Sandbox};

const RECIPE: &str = r#"[
    {"route": "/slow*", "body": "late", "headers": {"cache-control": "private"}, "stages": [{"at": 0, "latency": "5s"}]},
    {"route": "/large*", "random_content": "900kb", "headers": {"cache-control": "max-age=3600"}, "stages": [{"at": 0}]},
    {"route": "/private*", "random_content": "4mb", "headers": {"cache-control": "private"}, "stages": [{"at": 0}]},
    {"route": "/small*", "random_content": "2kb", "headers": {"cache-control": "max-age=3600"}, "stages": [{"at": 0}]}
]"#;

const LIMIT_MIB: usize = 16;
const CONNECTIONS: usize = 400;
const ORIGIN_CONNECTIONS: usize = 64;
const BOUND_MIB: usize = memory_bound_mib(LIMIT_MIB, CONNECTIONS, ORIGIN_CONNECTIONS);

/// Networks of the attackers, which are clients of their own.
const NETWORKS: usize = 16;
/// A write ends by this time if the proxy reads nothing.
const WRITE_TIMEOUT: Duration = Duration::from_millis(20);
const RECEIVE_BUFFER_BYTES: usize = 2_048;
const STREAMS: u32 = 250;
/// Readings of the memory after the last byte was sent.
const READINGS: usize = 50;

#[derive(Clone, Copy, Debug)]
enum Attack {
    /// A field without an end.
    EndlessField,
    ManyFields,
    /// 1 MiB is announced and a part of it sent.
    UnfinishedBody,
    /// Chunks of a byte.
    TinyChunks,
    Pipeline,
    /// A large body of the cache that its client does not read.
    UnreadStored,
    UnreadPassed,
    /// Stores a small body under a long URL.
    LongUrls,
    /// Streams that wait, and whose heads name a field of the table ten times.
    WaitingStreams,
    /// Unfinished bodies on all streams.
    UnfinishedStreams,
    UnreadStreams,
    /// `CONTINUATION` without an end.
    EndlessHead,
    /// Acknowledgements are not read.
    Pings,
}

const ATTACKS: [Attack; 13] = [
    Attack::EndlessField,
    Attack::ManyFields,
    Attack::UnfinishedBody,
    Attack::TinyChunks,
    Attack::Pipeline,
    Attack::UnreadStored,
    Attack::UnreadPassed,
    Attack::LongUrls,
    Attack::WaitingStreams,
    Attack::UnfinishedStreams,
    Attack::UnreadStreams,
    Attack::EndlessHead,
    Attack::Pings,
];

/// First the mixes that took the most memory, then each attack alone, then two to four together. `STOCKADE_MIXES=30` sets their number.
#[test]
fn mixes_of_attacks_stay_below_the_bound_of_memory() {
    let mixes = std::env::var("STOCKADE_MIXES").map_or(5, |mixes| mixes.parse().expect("a number"));
    let mix = |number: usize| match number {
        0 => vec![Attack::WaitingStreams],
        1 => vec![Attack::UnfinishedStreams],
        2 => vec![
            Attack::UnfinishedStreams,
            Attack::WaitingStreams,
            Attack::UnreadPassed,
            Attack::UnfinishedBody,
        ],
        3..16 => vec![ATTACKS[number - 3]],
        _ => (0..2 + number % 3).map(|at| ATTACKS[(number * 7 + at * 5) % ATTACKS.len()]).collect(),
    };
    let mut figures = Vec::new();
    for number in 0..mixes {
        let attacks = mix(number);
        let (before, peak, after) = attacked(&attacks);
        figures.push(format!("{attacks:?}: {before}, {peak}, {after} MiB"));
        println!("{}", figures[number]);
        assert!(peak <= BOUND_MIB, "of {BOUND_MIB} MiB: {figures:#?}");
        assert!(after <= before + LIMIT_MIB + 40, "it is not given back: {figures:#?}");
    }
}

/// Resident MiB before, at most, and after the attackers have left.
fn attacked(attacks: &[Attack]) -> (usize, usize, usize) {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[cache]\nlimit = {{ bytes = \"{LIMIT_MIB}MiB\" }}\n[bounds]\nconnections = {CONNECTIONS}\n\
         [log]\nformat = \"none\"\n[[origin]]\nname = \"app\"\nurl = \"http://{}\"\nconnections = {ORIGIN_CONNECTIONS}\n",
        origin.listens("http")
    );
    let config = sandbox.file("stockade.toml", &config);
    let (proxy, address, admin) = super::start_proxy(&sandbox, &config, &["--threads", "2"]);
    let resident_mib = || resident(&proxy) / MIB;
    let before = resident_mib();
    let mut peak = before;
    let mut held = Vec::new();
    for (number, attack) in (0..CONNECTIONS).zip(attacks.iter().cycle()) {
        let Some(mut tcp) = connected(address, number) else { continue };
        // The proxy may have refused it, or read no more.
        let _ = attack.send(&mut tcp, number);
        held.push(tcp);
        peak = peak.max(resident_mib());
    }
    for _ in 0..READINGS {
        stats(admin);
        peak = peak.max(resident_mib());
    }
    drop(held);
    let mut after = resident_mib();
    for _ in 0..READINGS * 100 {
        stats(admin);
        after = resident_mib();
        if after <= before + LIMIT_MIB {
            break;
        }
    }
    (before, peak, after)
}

/// From one of the networks.
fn connected(proxy: SocketAddr, number: usize) -> Option<TcpStream> {
    let host = u8::try_from(1 + number % NETWORKS).expect("a few networks");
    let own = SocketAddr::from((Ipv4Addr::new(127, 9, host, 1), 0));
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor");
    sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER_BYTES).expect("a size");
    bind(&fd, &own).expect("an address of the loopback");
    connect(&fd, &proxy).ok()?;
    let tcp = TcpStream::from(fd);
    tcp.set_write_timeout(Some(WRITE_TIMEOUT)).expect("not zero");
    tcp.set_read_timeout(Some(WRITE_TIMEOUT)).expect("not zero");
    Some(tcp)
}

impl Attack {
    fn send(self, tcp: &mut TcpStream, number: usize) -> std::io::Result<()> {
        let fill = |bytes: usize| "a".repeat(bytes);
        match self {
            Self::EndlessField => write!(tcp, "GET / HTTP/1.1\r\nHost: a\r\nX: {}", fill(60_000)),
            Self::ManyFields => {
                write!(tcp, "GET / HTTP/1.1\r\nHost: a\r\n")?;
                (0..95).try_for_each(|field| write!(tcp, "X{field}: {}\r\n", fill(600)))
            }
            Self::UnfinishedBody => {
                write!(
                    tcp,
                    "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n{}",
                    fill(300_000)
                )
            }
            Self::TinyChunks => {
                write!(
                    tcp,
                    "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                    "1\r\na\r\n".repeat(30_000)
                )
            }
            Self::Pipeline => {
                let request =
                    format!("GET /slow?{} HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", number, fill(1_000));
                tcp.write_all(request.repeat(200).as_bytes())
            }
            Self::UnreadStored => write!(tcp, "GET /large?{} HTTP/1.1\r\nHost: a\r\n\r\n", number % 40),
            Self::UnreadPassed => write!(tcp, "GET /private?{number} HTTP/1.1\r\nHost: a\r\n\r\n"),
            Self::LongUrls => {
                for page in 0..20 {
                    write!(tcp, "GET /small?{number}-{page}-{} HTTP/1.1\r\nHost: a\r\n\r\n", fill(7_000))?;
                    let _ = tcp.read(&mut [0; 4_096]);
                }
                Ok(())
            }
            Self::WaitingStreams => {
                preface(tcp, 65_535)?;
                // One field in the table, which later heads name by one byte.
                for stream in 0..STREAMS {
                    let mut block = head("GET", &format!("/slow?{number}-{stream}"));
                    if stream == 0 {
                        literal(&mut block, "x-large", &fill(3_900));
                    } else {
                        block.extend([0xbe; 10]);
                    }
                    frame(tcp, 1, 5, 2 * stream + 1, &block)?;
                }
                Ok(())
            }
            Self::UnfinishedStreams => {
                preface(tcp, 65_535)?;
                for stream in 0..STREAMS {
                    frame(tcp, 1, 4, 2 * stream + 1, &head("POST", "/slow"))?;
                }
                (0..STREAMS)
                    .cycle()
                    .take(1_000)
                    .try_for_each(|stream| frame(tcp, 0, 0, 2 * stream + 1, &[0; 16_000]))
            }
            Self::UnreadStreams => {
                preface(tcp, 1)?;
                (0..STREAMS).try_for_each(|stream| {
                    let path = ["/large", "/private"][stream as usize % 2];
                    frame(tcp, 1, 5, 2 * stream + 1, &head("GET", &format!("{path}?{stream}")))
                })
            }
            Self::EndlessHead => {
                preface(tcp, 65_535)?;
                frame(tcp, 1, 0, 1, &head("GET", "/"))?;
                let mut block = Vec::new();
                literal(&mut block, "x", &fill(16_000));
                (0..100).try_for_each(|_| frame(tcp, 9, 0, 1, &block))
            }
            Self::Pings => {
                preface(tcp, 65_535)?;
                (0..20_000).try_for_each(|_| frame(tcp, 6, 0, 0, &[0; 8]))
            }
        }
    }
}

/// The preface of HTTP/2, with the window of a stream in bytes.
fn preface(tcp: &mut TcpStream, window: u32) -> std::io::Result<()> {
    tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    let mut settings = vec![0, 4];
    settings.extend(window.to_be_bytes());
    frame(tcp, 4, 0, 0, &settings)
}

/// A frame of HTTP/2 (RFC 9113, 4.1).
fn frame(tcp: &mut TcpStream, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
    let mut bytes = u32::try_from(payload.len()).expect("a short frame").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    tcp.write_all(&bytes)
}

/// The pseudo-header fields of a request (RFC 7541, 6).
fn head(method: &str, path: &str) -> Vec<u8> {
    let mut block = vec![if method == "GET" { 0x82 } else { 0x83 }, 0x86, 0x04];
    text(&mut block, path);
    block.push(0x01);
    text(&mut block, "a");
    block
}

/// A field that goes into the dynamic table.
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0x40);
    text(block, name);
    text(block, value);
}

fn text(block: &mut Vec<u8>, text: &str) {
    let mut rest = text.len();
    if rest < 127 {
        block.push(u8::try_from(rest).expect("less"));
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128 + 128).expect("a byte"));
            rest /= 128;
        }
        block.push(u8::try_from(rest).expect("a byte"));
    }
    block.extend(text.as_bytes());
}
