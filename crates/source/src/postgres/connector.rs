//! Connections: made, asked, closed.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use stockade_model::time::{Live, Runtime, before};
use tokio::{runtime::Handle, sync::OnceCell, task::AbortHandle};
use tokio_postgres::{
    CancelToken, Client, Config, Connection, Error, Row, Socket, Statement, tls::MakeTlsConnect, types::Type,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    CANCEL_TIMEOUT,
    explain::explain,
    server::{Server, timed_out},
};
use crate::OpenError;

/// What the server's end of a connection is, with or without TLS.
type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Opens connections for the pool, on the runtime that the source was opened on.
pub(super) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    runtime: Handle,
    find: Arc<str>,
}

/// A connection, and the query that it is for.
pub(super) struct Link {
    end: Arc<End>,
    tls: MakeRustlsConnect,
    wire: AbortHandle,
}

/// Our end of it.
struct End {
    client: Client,
    find: Arc<str>,
    /// Made with the first fetch: the server may take as long for it as for an answer.
    prepared: OnceCell<Statement>,
}

impl Connector {
    pub(super) fn new(server: &Server, tls: MakeRustlsConnect, find: &str) -> Self {
        Self { config: server.config.clone(), tls, runtime: Handle::current(), find: find.into() }
    }
}

impl managed::Manager for Connector {
    type Type = Link;
    type Error = Error;

    async fn create(&self) -> Result<Link, Error> {
        // Boxed: it is large, and seldom needed.
        let (client, wire) = Box::pin(self.config.connect(self.tls.clone())).await?;
        let wire = self.runtime.spawn(async {
            // Whoever asks is told.
            let _ = wire.await;
        });
        let end = End { client, find: Arc::clone(&self.find), prepared: OnceCell::new() };
        Ok(Link { end: Arc::new(end), tls: self.tls.clone(), wire: wire.abort_handle() })
    }

    async fn recycle(&self, link: &mut Link, _: &Metrics) -> RecycleResult<Error> {
        if link.end.client.is_closed() {
            return Err(RecycleError::message("the server has closed it"));
        }
        Ok(())
    }
}

impl Link {
    /// The body of the document with this key.
    pub(super) fn find(&self, id: String) -> impl Future<Output = Result<Vec<Row>, Error>> + use<> {
        let end = Arc::clone(&self.end);
        async move {
            let prepare = || end.client.prepare_typed(&end.find, &[Type::TEXT]);
            let find = end.prepared.get_or_try_init(prepare).await?;
            end.client.query(find, &[&id]).await
        }
    }

    /// The keys of all documents.
    pub(super) fn list(&self, list: String) -> impl Future<Output = Result<Vec<Row>, Error>> + use<> {
        let end = Arc::clone(&self.end);
        async move { end.client.query(&list, &[]).await }
    }

    /// Has the server stop what it is doing, and waits until it has. A server that is told so late may stop what
    /// comes next: the connection is not to be used again.
    pub(super) async fn cancel(&self) -> Result<(), Error> {
        self.end.client.cancel_token().cancel_query(self.tls.clone()).await?;
        // Answered after whatever came before.
        self.end.client.batch_execute("").await
    }

    /// Closes it without a word to the server, who does not listen.
    pub(super) fn abort(&self) {
        self.wire.abort();
    }
}

/// One connection beside the pool.
pub(super) struct Line<'a> {
    server: &'a Server,
    time: &'a Live,
    tls: MakeRustlsConnect,
    cancel: CancelToken,
    wire: Wire,
}

impl Server {
    /// Opens a connection beside the pool.
    pub(super) async fn connect<'a>(
        &'a self,
        time: &'a Live,
        tls: MakeRustlsConnect,
    ) -> Result<(Client, Line<'a>), OpenError> {
        let connected = before(time, time.now() + self.timeout, self.config.connect(tls.clone())).await;
        let connected = connected.ok_or_else(|| timed_out(self))?;
        let (client, wire) = connected.map_err(|error| self.remote.unusable(explain(&error)))?;
        let cancel = client.cancel_token();
        Ok((client, Line { server: self, time, tls, cancel, wire }))
    }
}

impl Line<'_> {
    /// Carries what is asked of the client, and the answer, as long as an answer may take.
    pub(super) async fn carry<T>(
        &mut self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, OpenError> {
        let until = self.time.now() + self.server.timeout;
        let Some(answer) = before(self.time, until, carry(&mut self.wire, asked)).await else {
            // A server notices that a client has gone when it answers, and that may never be.
            let until = self.time.now() + CANCEL_TIMEOUT;
            let _ = before(self.time, until, self.cancel.cancel_query(self.tls.clone())).await;
            return Err(timed_out(self.server));
        };
        answer.map_err(|error| self.server.remote.unusable(explain(&error)))
    }

    /// Takes leave of the server.
    pub(super) async fn close(self, client: Client) {
        drop(client);
        let _ = before(self.time, self.time.now() + self.server.timeout, self.wire).await;
    }
}

/// Carries what is asked over a connection that nobody else looks after.
async fn carry<T>(wire: &mut Wire, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut asked = pin!(asked);
    let mut has_ended = false;
    poll_fn(|cx| {
        if !has_ended {
            match Pin::new(&mut *wire).poll(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => has_ended = true,
                Poll::Pending => {}
            }
        }
        asked.as_mut().poll(cx)
    })
    .await
}
