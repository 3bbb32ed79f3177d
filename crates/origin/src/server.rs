//! Threads, each with a runtime and a listener of its own on the same port.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use stockade_model::{
    seed::Seed,
    time::{Precise, Runtime},
};
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime,
    sync::watch,
};

use crate::{
    connection,
    service::{Role, Service},
    state::{Refused, State},
    tls::{Identity, Tls, TlsError},
};

/// How many connections may wait to be taken in, a thread; the kernel may allow fewer.
const BACKLOG: u32 = 4_096;
/// How long to wait when there are no file descriptors left.
const BREATH: Duration = Duration::from_millis(10);

/// What an origin is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0: any that is free.
    pub listen: SocketAddr,
    /// Where whoever writes recipes comes in; `None`: where everybody does, below `/_admin`.
    pub admin: Option<SocketAddr>,
    /// How many threads serve.
    pub threads: NonZeroUsize,
    /// Where every random choice comes from.
    pub seed: Seed,
    /// Stages wait for `/_admin/start`.
    pub is_held: bool,
    /// Who it says it is, where connections are encrypted.
    pub identity: Option<Identity>,
    /// What it serves at first.
    pub recipes: Option<Text>,
}

impl Default for Options {
    /// On a free port of the loopback, one thread, without a recipe.
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            admin: None,
            threads: NonZeroUsize::MIN,
            seed: Seed(1),
            is_held: false,
            identity: None,
            recipes: None,
        }
    }
}

/// Recipes as they were written.
#[derive(Clone, Debug)]
pub struct Text {
    /// What errors call it.
    pub name: String,
    /// What was written.
    pub text: String,
    /// Where the files are that it names.
    pub folder: PathBuf,
}

/// An origin that serves until it is dropped.
#[derive(Debug)]
pub struct Origin {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where whoever writes recipes comes in, if that is somewhere else.
    pub admin: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// An origin could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its recipes were refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It cannot listen there.
    #[error("cannot listen at {address}: {error}{}", free(.error))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// There are no threads or file descriptors left.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn free(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AddrInUse {
        ": write another port, or 0 for any that is free"
    } else {
        ""
    }
}

/// A port that is taken: bound, so that nobody else is given it, but nobody listens.
struct Door {
    address: SocketAddr,
    _held: TcpSocket,
}

impl Origin {
    /// Reads its recipes, fetches what they name, and listens.
    pub fn start(options: &Options) -> Result<Self, StartError> {
        let tls = options.identity.as_ref().map(Tls::new).transpose()?;
        let pem = tls.as_ref().map(|tls| tls.pem.clone());
        let state = Arc::new(State::new(options.seed, options.is_held, options.admin.is_some(), pem));
        let (stop, stopped) = watch::channel(false);
        // A thread of its own: whoever starts an origin may be inside a runtime, which waits for no other.
        let prepare = || {
            let prepared = async {
                let time = Precise::new().map_err(StartError::Thread)?;
                if let Some(Text { name, text, folder }) = &options.recipes {
                    state.add(text, name, folder, &time).await?;
                    state.keep().await;
                }
                Ok::<_, StartError>(time)
            };
            runtime().map_err(StartError::Thread)?.block_on(prepared)
        };
        let prepared = thread::scope(|scope| scope.spawn(prepare).join());
        let time = prepared.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut doors = vec![Door::at(options.listen)?];
        doors.extend(options.admin.map(Door::at).transpose()?);
        let (address, admin) = (doors[0].address, doors.get(1).map(|door| door.address));
        let doors = Arc::new(doors);
        let mut origin = Self { address, admin, stop, threads: Vec::new() };
        for n in 0..options.threads.get() {
            let role = if admin.is_some() { Role::Public } else { Role::Both };
            let work = Work {
                state: Arc::clone(&state),
                tls: tls.clone(),
                role,
                address,
                doors: Arc::clone(&doors),
            };
            origin.spawn(format!("origin-{n}"), work, &time, stopped.clone())?;
        }
        if let Some(address) = admin {
            let work = Work { state, tls: None, role: Role::Admin, address, doors };
            origin.spawn("origin-admin".to_owned(), work, &time, stopped)?;
        }
        Ok(origin)
    }

    /// Starts a thread, and waits until it listens.
    fn spawn(
        &mut self,
        name: String,
        work: Work,
        time: &Precise,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), StartError> {
        let (ready, is_ready) = mpsc::channel();
        let (time, address) = (time.clone(), work.address);
        let run = move || {
            let prepared = runtime().and_then(|runtime| {
                let time = runtime.block_on(async { time.beside() })?;
                Ok((runtime, time))
            });
            let (runtime, time) = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return drop(ready.send(Err(StartError::Thread(error)))),
            };
            runtime.block_on(async {
                let service = Service { state: work.state, time, role: work.role };
                let mut listener = match listen(address) {
                    Ok(listener) => Some(listener),
                    Err(error) => return drop(ready.send(Err(StartError::Listen { address, error }))),
                };
                drop(ready.send(Ok(())));
                let _doors = work.doors;
                tokio::select! {
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = serve(&mut listener, address, work.tls, service) => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)?;
        self.threads.push(thread);
        // A thread that died without a word has said what it died of on standard error.
        is_ready.recv().unwrap_or_else(|_| Err(StartError::Thread(io::ErrorKind::Other.into())))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

/// What one thread does.
struct Work {
    state: Arc<State>,
    tls: Option<Tls>,
    role: Role,
    address: SocketAddr,
    doors: Arc<Vec<Door>>,
}

fn runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_io().enable_time().build()
}

impl Door {
    fn at(address: SocketAddr) -> Result<Self, StartError> {
        let wrong = |error| StartError::Listen { address, error };
        // Whoever shares a port has to want it: nobody else's is shared by accident.
        let probe = StdListener::bind(address).map_err(wrong)?;
        drop(probe);
        let socket = socket(address).map_err(wrong)?;
        // While nobody listens a port is anybody's who reuses addresses: not this one.
        socket.set_reuseaddr(false).map_err(wrong)?;
        let address = socket.local_addr().map_err(wrong)?;
        Ok(Self { address, _held: socket })
    }
}

/// Bound to an address that others of this program share.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    socket(address)?.listen(BACKLOG)
}

/// Takes connections in while somebody listens; while nobody does, the kernel refuses them.
async fn serve(listener: &mut Option<TcpListener>, address: SocketAddr, tls: Option<Tls>, service: Service) {
    let Service { state, time, role } = service.clone();
    let mut changed = state.changed.subscribe();
    loop {
        changed.mark_unchanged();
        let now = time.now();
        let book = state.book.load();
        let (refuses, next) = (role != Role::Admin && book.refuses(now), book.next_change(now));
        drop(book);
        if refuses {
            *listener = None;
        } else if listener.is_none() {
            *listener = listen(address).ok();
        }
        // No file descriptors, perhaps: there will be some when connections are closed.
        let is_deaf = !refuses && listener.is_none();
        let until = if is_deaf { next.min(now + BREATH) } else { next };
        let turns = async {
            tokio::select! {
                _ = changed.changed() => {}
                () = time.sleep_until(until) => {}
            }
        };
        match &*listener {
            Some(listener) => tokio::select! {
                () = turns => {}
                () = take_all_in(listener, tls.as_ref(), &service) => {}
            },
            None => turns.await,
        }
    }
}

/// For ever.
async fn take_all_in(listener: &TcpListener, tls: Option<&Tls>, service: &Service) {
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => service.time.spawn(connection::serve(tcp, tls.cloned(), service.clone())),
            // No file descriptors: those that wait are taken in when some are closed.
            Err(_) => service.time.sleep_until(service.time.now() + BREATH).await,
        }
    }
}
