//! One thread: it takes connections in, makes room for them, and sees them off.

use std::{
    future::pending,
    io, iter,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Relaxed},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::select_all};
use stockade_model::time::{Runtime, before, yield_now};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    Handler, Peer, Settings,
    connection::{self, forget},
    counts::{Counts, Cut, bump},
    door::{BACKLOG, Door},
    session::{Asked, Progress, Session, Thread},
};

/// How long to wait when there are no file descriptors left.
const BREATH: Duration = Duration::from_millis(10);
/// How many idle connections are then asked to leave at a time.
const EVICTED_AT_ONCE: usize = 8;
/// How many that were turned away may be heard out at a time, a thread, and for how long.
const LINGERING_MAX: usize = 64;
const LINGER: Duration = Duration::from_secs(1);
/// What those are told for whom there is no room.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\ntoo many connections\n";
/// How long tasks that were cut have to notice.
const NOTICE: Duration = Duration::from_millis(600);

/// How far a front is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    Draining,
    Ended,
}

/// What one thread does.
pub(super) struct Work<H> {
    pub(super) handler: H,
    pub(super) thread: Arc<Thread>,
    pub(super) doors: Arc<Vec<Door>>,
}

/// A port of this thread.
struct Entrance {
    listener: TcpListener,
    local: SocketAddr,
    is_tls: bool,
}

impl<H: Handler> Work<H> {
    /// Listens, says so, and serves until the front is to end: how many requests were cut then.
    pub(super) async fn run(
        self,
        ready: impl FnOnce(io::Result<()>),
        mut phase: watch::Receiver<Phase>,
    ) -> u64 {
        let entrances: io::Result<Vec<_>> =
            self.doors.iter().map(|door| Entrance::at(door, &self.thread.settings)).collect();
        let entrances = match entrances {
            Ok(entrances) => entrances,
            Err(error) => {
                ready(Err(error));
                return 0;
            }
        };
        ready(Ok(()));
        tokio::select! {
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
            () = self.take_all_in(&entrances) => {}
        }
        let is_draining = *phase.borrow() == Phase::Draining;
        if is_draining {
            self.empty_queues(entrances).await;
        } else {
            drop(entrances);
        }
        let Self { thread, doors, .. } = self;
        drop(doors);
        if is_draining {
            drain(&thread, &mut phase).await;
        }
        cut(&thread).await
    }

    async fn take_all_in(&self, entrances: &[Entrance]) {
        if entrances.is_empty() {
            return pending().await;
        }
        select_all(entrances.iter().map(|entrance| Box::pin(self.take_in_at(entrance)))).map(drop).await;
    }

    /// For ever.
    async fn take_in_at(&self, entrance: &Entrance) {
        let Thread { time, tallies, house, number, .. } = &*self.thread;
        loop {
            match entrance.listener.accept().await {
                Ok((tcp, address)) => {
                    if self.take_in(tcp, address, entrance.local, entrance.is_tls) {
                        // Whoever was asked to leave does so now.
                        yield_now().await;
                    }
                }
                Err(error) if is_of_client(&error) => {}
                // No file descriptors, or no memory: those that wait are taken in when some are closed.
                Err(_) => {
                    bump(&tallies.exhausted);
                    let evicted = (0..EVICTED_AT_ONCE).take_while(|_| house.make_room(*number)).count();
                    tallies.evicted.fetch_add(evicted as u64, Relaxed);
                    time.sleep_until(time.now() + BREATH).await;
                }
            }
        }
    }

    /// Takes a connection in, or turns it away. Whether another was asked to leave for it.
    fn take_in(&self, tcp: TcpStream, address: SocketAddr, local: SocketAddr, is_tls: bool) -> bool {
        let Thread { settings, time, tallies, house, tls, number, .. } = &*self.thread;
        bump(&tallies.connections);
        let is_full = house.is_full(settings.connections_max);
        if is_full && !house.make_room(*number) {
            bump(&tallies.refused);
            self.turn_away(tcp, is_tls);
            return false;
        }
        if is_full {
            bump(&tallies.evicted);
        }
        let progress = Progress::new(Arc::clone(&self.thread));
        let seat = house.take_seat(&progress);
        let peer = Peer { address, local, is_tls };
        let session = Session { handler: self.handler.clone(), peer, progress };
        let tls = tls.clone().filter(|_| is_tls);
        time.spawn(async move {
            connection::serve(tcp, tls, session).await;
            drop(seat);
        });
        is_full
    }

    /// Says why, if the client would understand.
    fn turn_away(&self, mut tcp: TcpStream, is_tls: bool) {
        let thread = Arc::clone(&self.thread);
        if is_tls || thread.lingering.load(Relaxed) >= LINGERING_MAX {
            bump(&thread.tallies.closed);
            return;
        }
        thread.lingering.fetch_add(1, AcqRel);
        self.thread.time.spawn(async move {
            let heard_out = async {
                tcp.write_all(NO_ROOM).await?;
                tcp.shutdown().await?;
                forget(&mut tcp).await
            };
            let _ = before(&thread.time, thread.time.now() + LINGER, heard_out).await;
            thread.lingering.fetch_sub(1, AcqRel);
            bump(&thread.tallies.closed);
        });
    }

    /// Stops listening, and takes in those that wait, who would be told that nobody ever listened.
    async fn empty_queues(&self, entrances: Vec<Entrance>) {
        for Entrance { listener, local, is_tls } in entrances {
            // The kernel is asked: tokio knows of those only that came before it looked last.
            let Ok(listener) = listener.into_std() else { continue };
            let waiting = iter::from_fn(|| listener.accept().ok()).take(BACKLOG as usize);
            for (tcp, address) in waiting {
                let tcp = tcp.set_nonblocking(true).and_then(|()| TcpStream::from_std(tcp));
                if let Ok(tcp) = tcp {
                    self.take_in(tcp, address, local, is_tls);
                }
            }
        }
        // They are looked at once before they are asked to finish.
        yield_now().await;
    }
}

impl Entrance {
    fn at(door: &Door, settings: &Settings) -> io::Result<Self> {
        let listener = door.listen(settings.write_stall_timeout)?;
        Ok(Self { listener, local: door.address, is_tls: door.is_tls })
    }
}

/// A connection was over before it was taken in: the next one may be better.
fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Lets requests that are being answered be answered, for as long as they are given.
async fn drain(thread: &Thread, phase: &mut watch::Receiver<Phase>) {
    let room = thread.house.room(thread.number);
    room.ask(Asked::Finish);
    tokio::select! {
        () = room.emptied() => {}
        () = thread.time.sleep_until(thread.time.now() + thread.settings.drain) => {}
        _ = phase.wait_for(|phase| *phase == Phase::Ended) => {}
    }
}

/// Ends what is left: how many requests there were.
async fn cut(thread: &Thread) -> u64 {
    let mut counts = Counts::default();
    thread.tallies.add_to(&mut counts);
    for _ in 0..counts.in_flight {
        thread.tallies.cut(Cut::Drain);
    }
    let room = thread.house.room(thread.number);
    room.ask(Asked::Leave);
    let _ = before(&thread.time, thread.time.now() + NOTICE, room.emptied()).await;
    counts.in_flight
}
