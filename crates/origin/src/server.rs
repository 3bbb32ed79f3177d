//! Listeners: each has a thread and a tokio runtime of its own, and all share one port.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use http::Request;
use stockade_http::{
    port::{ReservedPort, shared_socket},
    server::{self, ServerLimits, ServerThread, WhenFull},
};
use stockade_model::{
    seed::Seed,
    time::{Precise, Runtime},
};

use crate::{
    certificate::{CertificateError, CertificateSource, ServerTls},
    connection,
    connection_state::ListenerContext,
    service::respond_with_admin_page,
    state::{AddRecipesError, OriginState},
};

/// Connections that wait to be accepted, per listener. The kernel may allow fewer.
const BACKLOG: u32 = 4_096;
/// Of a listener for the admin pages alone.
const ADMIN_LIMITS: ServerLimits = ServerLimits {
    connections_max: 256,
    connection_time_max: Duration::from_mins(15),
    head_time_max: Duration::from_secs(75),
    is_keep_alive: true,
    when_full: WhenFull::CloseOldest,
};
/// Delay before the next attempt to listen when no file descriptor is left.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Settings of an [`Origin`].
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// Address of the listeners. Port 0: any free port.
    pub listen: SocketAddr,
    /// Address of a listener for the admin pages alone. `None`: `listen` serves them below `/_admin`.
    pub admin: Option<SocketAddr>,
    /// Names that requests for admin pages may have as their host, without ports, in addition to addresses and `localhost`.
    pub admin_hosts: Vec<String>,
    /// Number of threads that serve `listen`.
    pub threads: NonZeroUsize,
    /// Seed of all random choices.
    pub seed: Seed,
    /// The clocks of routes stand at 0 until `/_admin/start`.
    pub is_clock_held: bool,
    /// Certificate of `listen`. `None`: connections are not encrypted.
    pub certificate: Option<CertificateSource>,
    /// The first recipes.
    pub recipes: Option<RecipeText>,
}

impl Default for OriginOptions {
    /// A free port of the loopback, one thread, no recipe.
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            admin: None,
            admin_hosts: Vec::new(),
            threads: NonZeroUsize::MIN,
            seed: Seed(1),
            is_clock_held: false,
            certificate: None,
            recipes: None,
        }
    }
}

/// Recipes as JSON.
#[derive(Clone, Debug)]
pub struct RecipeText {
    /// Name of the text in errors.
    pub name: String,
    /// One recipe, or a list.
    pub text: String,
    /// Folder of the latency files that the recipes name.
    pub folder: PathBuf,
}

/// A running origin. It stops when it is dropped.
#[derive(Debug)]
pub struct Origin {
    /// Address of the listeners.
    pub address: SocketAddr,
    /// Address of the admin pages, if they have a listener of their own.
    pub admin_address: Option<SocketAddr>,
    /// Routes of the first recipes whose responses no shared cache stores, because they have no `cache-control`.
    pub uncacheable_routes: Vec<String>,
    /// Of the listeners, and of the admin pages.
    threads: Vec<ServerThread>,
}

/// An origin could not be started.
#[derive(Debug, thiserror::Error)]
pub enum OriginStartError {
    /// The recipes were rejected.
    #[error(transparent)]
    Recipes(#[from] AddRecipesError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The address cannot be used.
    #[error("cannot listen at {address}: {error}{}", port_remedy(.error))]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// No thread or file descriptor is left.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

fn port_remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AddrInUse { ": choose another port, or 0 for a free one" } else { "" }
}

/// The arguments of one listener's thread.
struct ListenerThread {
    name: String,
    state: Arc<OriginState>,
    tls: Option<ServerTls>,
    has_admin_pages: bool,
    port: Arc<ReservedPort>,
}

impl Origin {
    /// Parses the recipes, fetches their contents, and starts the listeners.
    ///
    /// # Errors
    /// Invalid recipes, contents that cannot be fetched, an unusable certificate or address, or too few resources.
    pub fn start(options: &OriginOptions) -> Result<Self, OriginStartError> {
        let tls = options.certificate.as_ref().map(ServerTls::new).transpose()?;
        let pem = tls.as_ref().map(|tls| tls.pem.clone());
        let state = Arc::new(OriginState::new(options, pem));
        // The caller may be inside a tokio runtime, where another one cannot block. Hence a thread.
        let prepare = || {
            let prepared = async {
                let time = Precise::new().map_err(OriginStartError::Thread)?;
                if let Some(RecipeText { name, text, folder }) = &options.recipes {
                    state.add_or_replace_recipes(text, name, folder, &time).await?;
                    state.save_initial().await;
                }
                Ok::<_, OriginStartError>(time)
            };
            server::runtime()?.block_on(prepared)
        };
        let prepared = thread::scope(|scope| scope.spawn(prepare).join());
        let time = prepared.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let failed = |address| move |error| OriginStartError::Listen { address, error };
        let port = Arc::new(ReservedPort::bind(options.listen).map_err(failed(options.listen))?);
        let admin =
            options.admin.map(|address| server::bind(address).map_err(failed(address))).transpose()?;
        let admin_address = admin.as_ref().map(TcpListener::local_addr).transpose();
        let admin_address = admin_address.map_err(OriginStartError::Thread)?;
        let has_admin_pages = admin.is_none();
        let admin =
            admin.map(|listener| start_admin(listener, Arc::clone(&state), time.clone())).transpose()?;
        let mut origin = Self {
            address: port.address(),
            admin_address,
            uncacheable_routes: state.routes.load().uncacheable(),
            threads: Vec::from_iter(admin),
        };
        for n in 0..options.threads.get() {
            let listener = ListenerThread {
                name: format!("worker-{n}"),
                state: Arc::clone(&state),
                tls: tls.clone(),
                has_admin_pages,
                port: Arc::clone(&port),
            };
            origin.spawn(listener, &time)?;
        }
        Ok(origin)
    }

    /// Starts a listener's thread, and waits until it listens.
    fn spawn(&mut self, listener: ListenerThread, time: &Precise) -> Result<(), OriginStartError> {
        let ListenerThread { name, state, tls, has_admin_pages, port } = listener;
        let time = time.clone();
        let thread = ServerThread::run(&name, move |mut stopped| {
            let context = ListenerContext { state, time: time.on_current_runtime()?, has_admin_pages };
            let address = port.address();
            let listening = listen(address).map_err(|error| OriginStartError::Listen { address, error })?;
            Ok::<_, OriginStartError>(async move {
                let (mut listener, _port) = (Some(listening), port);
                tokio::select! {
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = run_listener(&mut listener, address, tls, context) => {}
                }
            })
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

/// Serves the admin pages on a listener of their own.
fn start_admin(listener: TcpListener, state: Arc<OriginState>, time: Precise) -> io::Result<ServerThread> {
    let respond = move |_: &_| {
        let time = time.on_current_runtime()?;
        Ok(move |request: Request<_>| {
            let (state, time) = (Arc::clone(&state), time.clone());
            let (head, body) = request.into_parts();
            async move { respond_with_admin_page(&state, &time, head, body).await }
        })
    };
    ServerThread::serve("admin", listener, ADMIN_LIMITS, respond)
}

fn listen(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    shared_socket(address)?.listen(BACKLOG)
}

/// Accepts connections. Closes the listener while every route refuses connections, so that the kernel refuses them.
async fn run_listener(
    listener: &mut Option<tokio::net::TcpListener>,
    address: SocketAddr,
    tls: Option<ServerTls>,
    context: ListenerContext,
) {
    let ListenerContext { state, time, .. } = context.clone();
    let mut changed = state.changed.subscribe();
    loop {
        changed.mark_unchanged();
        let now = time.now();
        let routes = state.routes.load();
        let refuses = routes.refuses_at(now);
        let next_change = routes.next_stage_change(now);
        drop(routes);
        if refuses {
            *listener = None;
        } else if listener.is_none() {
            *listener = listen(address).ok();
        }
        // `listen` fails without a file descriptor. Closed connections will free some.
        let has_failed = !refuses && listener.is_none();
        let wake_at = if has_failed { next_change.min(now + RETRY_DELAY) } else { next_change };
        let change = async {
            tokio::select! {
                _ = changed.changed() => {}
                () = time.sleep_until(wake_at) => {}
            }
        };
        match &*listener {
            Some(listener) => tokio::select! {
                () = change => {}
                () = serve(listener, tls.as_ref(), &context) => {}
            },
            None => change.await,
        }
    }
}

/// Never returns.
async fn serve(listener: &tokio::net::TcpListener, tls: Option<&ServerTls>, context: &ListenerContext) {
    loop {
        let tcp = server::accept(listener, &context.time).await;
        context.time.spawn(connection::serve(tcp, tls.cloned(), context.clone()));
    }
}
