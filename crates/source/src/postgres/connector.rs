//! Connections: open, query, cancel, close.

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
    location::{PostgresLocation, timed_out},
};
use crate::OpenError;

/// The task of a connection, with or without TLS.
type ConnectionDriver = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Opens connections for the pool, on the runtime that opened the source.
pub(super) struct PostgresConnector {
    config: Config,
    tls: MakeRustlsConnect,
    runtime: Handle,
    find: Arc<str>,
}

/// A pooled connection and its query.
pub(super) struct PooledPostgresConnection {
    end: Arc<PreparedClient>,
    tls: MakeRustlsConnect,
    driver: AbortHandle,
}

/// A client and its prepared statement.
struct PreparedClient {
    client: Client,
    find: Arc<str>,
    /// Prepared by the first fetch, because the server may take as long for it as for a response.
    prepared: OnceCell<Statement>,
}

impl PostgresConnector {
    pub(super) fn new(server: &PostgresLocation, tls: MakeRustlsConnect, find: &str) -> Self {
        Self { config: server.config.clone(), tls, runtime: Handle::current(), find: find.into() }
    }
}

impl managed::Manager for PostgresConnector {
    type Type = PooledPostgresConnection;
    type Error = Error;

    async fn create(&self) -> Result<PooledPostgresConnection, Error> {
        // Boxed, because it is large and rarely needed.
        let (client, driver) = Box::pin(self.config.connect(self.tls.clone())).await?;
        let driver = self.runtime.spawn(async {
            // Requests on this connection receive the error.
            let _ = driver.await;
        });
        let end = PreparedClient { client, find: Arc::clone(&self.find), prepared: OnceCell::new() };
        Ok(PooledPostgresConnection {
            end: Arc::new(end),
            tls: self.tls.clone(),
            driver: driver.abort_handle(),
        })
    }

    async fn recycle(&self, connection: &mut PooledPostgresConnection, _: &Metrics) -> RecycleResult<Error> {
        if connection.end.client.is_closed() {
            return Err(RecycleError::message("the server has closed it"));
        }
        Ok(())
    }
}

impl PooledPostgresConnection {
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

    /// Cancels the running query and waits for its end. A late cancel may stop the next query instead, so the connection
    /// must not be used again.
    pub(super) async fn cancel(&self) -> Result<(), Error> {
        self.end.client.cancel_token().cancel_query(self.tls.clone()).await?;
        // The server handles it after the cancelled query.
        self.end.client.batch_execute("").await
    }

    /// Closes the connection without a message, because the server does not respond.
    pub(super) fn abort(&self) {
        self.driver.abort();
    }
}

/// A connection outside the pool.
pub(super) struct SetupConnection<'a> {
    server: &'a PostgresLocation,
    time: &'a Live,
    tls: MakeRustlsConnect,
    cancel: CancelToken,
    driver: ConnectionDriver,
}

impl PostgresLocation {
    /// Opens a connection outside the pool.
    pub(super) async fn connect<'a>(
        &'a self,
        time: &'a Live,
        tls: MakeRustlsConnect,
    ) -> Result<(Client, SetupConnection<'a>), OpenError> {
        let connected = before(time, time.now() + self.timeout, self.config.connect(tls.clone())).await;
        let connected = connected.ok_or_else(|| timed_out(self))?;
        let (client, driver) = connected.map_err(|error| self.remote.unusable(explain(&error)))?;
        let cancel = client.cancel_token();
        Ok((client, SetupConnection { server: self, time, tls, cancel, driver }))
    }
}

impl SetupConnection<'_> {
    /// Drives the connection until the client's request completes, at most the timeout.
    pub(super) async fn run<T>(
        &mut self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, OpenError> {
        let until = self.time.now() + self.server.timeout;
        let Some(answer) = before(self.time, until, run(&mut self.driver, request)).await else {
            // A server notices a closed connection only when it responds, so a query without an end needs a cancel.
            let until = self.time.now() + CANCEL_TIMEOUT;
            let _ = before(self.time, until, self.cancel.cancel_query(self.tls.clone())).await;
            return Err(timed_out(self.server));
        };
        answer.map_err(|error| self.server.remote.unusable(explain(&error)))
    }

    /// Closes the session.
    pub(super) async fn close(self, client: Client) {
        drop(client);
        let _ = before(self.time, self.time.now() + self.server.timeout, self.driver).await;
    }
}

/// Drives a connection that has no task of its own until the request completes.
async fn run<T>(
    driver: &mut ConnectionDriver,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut request = pin!(request);
    let mut has_ended = false;
    poll_fn(|cx| {
        if !has_ended {
            match Pin::new(&mut *driver).poll(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => has_ended = true,
                Poll::Pending => {}
            }
        }
        request.as_mut().poll(cx)
    })
    .await
}
