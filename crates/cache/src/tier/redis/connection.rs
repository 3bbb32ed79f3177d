//! A connection to one server or to a cluster.

use std::sync::Arc;

use ::redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, ProtocolVersion, PushInfo, RedisError, RedisFuture,
    ScriptInvocation, Value, aio::ConnectionLike, cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection, pipe,
};

use super::{
    bounded_connection::{BoundedConnection, ServerSettings, set_cluster_bounds},
    url::{RedisUrl, Servers},
};

/// A connection to one server, or connections to the nodes of a cluster. Clones share it.
#[derive(Clone)]
pub(super) struct RedisConnection {
    /// Distinguishes it from earlier connections.
    pub(super) generation: u64,
    wire: Driver,
}

#[derive(Clone)]
enum Driver {
    One(BoundedConnection),
    Cluster(ClusterConnection<BoundedConnection>),
    /// With certificates of its own, which only the driver can read: its replies are not bounded.
    TrustedCluster(ClusterConnection),
}

impl RedisConnection {
    /// Connects, and passes messages that the server pushes to the callback.
    pub(super) async fn connect(
        url: &RedisUrl,
        generation: u64,
        receive: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<Self, RedisError> {
        let receive = Arc::new(receive);
        match &url.servers {
            Servers::One(server) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None)
                    .set_push_sender(move |info| receive(info));
                let wire = BoundedConnection::open(server, &ServerSettings::of(url)?, config).await?;
                Ok(Self { generation, wire: Driver::One(wire) })
            }
            Servers::Cluster(servers) => {
                let builder = ClusterClientBuilder::new(servers.clone())
                    .use_protocol(ProtocolVersion::RESP3)
                    .connection_timeout(url.timeout)
                    .response_timeout(url.timeout)
                    .retries(1)
                    .push_sender(move |info| receive(info));
                let wire = if let Some(certificates) = url.certificates() {
                    let client = builder.certs(certificates).build()?;
                    Driver::TrustedCluster(client.get_async_connection().await?)
                } else {
                    set_cluster_bounds(url);
                    Driver::Cluster(builder.build()?.get_async_generic_connection().await?)
                };
                Ok(Self { generation, wire })
            }
        }
    }

    pub(super) async fn invoke<T: FromRedisValue>(
        &self,
        invocation: &ScriptInvocation<'_>,
    ) -> Result<T, RedisError> {
        invocation.invoke_async(&mut self.wire.clone()).await
    }

    /// The value of a name. A value of another type counts as absent.
    pub(super) async fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>, RedisError> {
        let stored = Cmd::get(name).query_async(&mut self.wire.clone()).await;
        stored.or_else(
            |error: RedisError| if error.code() == Some("WRONGTYPE") { Ok(None) } else { Err(error) },
        )
    }

    /// Runs commands in one pipeline. All names have to be on one server.
    pub(super) async fn run<T: FromRedisValue>(&self, commands: Vec<Cmd>) -> Result<Vec<T>, RedisError> {
        let mut all = pipe();
        for command in commands {
            all.add_command(command);
        }
        all.query_async(&mut self.wire.clone()).await
    }

    /// Runs commands that may fail one by one: in one pipeline, or in turn on a cluster, where names are on any
    /// server. Returns an error if the connection fails.
    pub(super) async fn run_each(&self, commands: Vec<Cmd>) -> Result<(), RedisError> {
        let mut wire = self.wire.clone();
        match wire {
            Driver::One(_) if !commands.is_empty() => {
                let mut all = pipe();
                for command in commands {
                    all.add_command(command);
                }
                let _: Vec<Result<Value, RedisError>> = all.ignore_errors().query_async(&mut wire).await?;
            }
            Driver::One(_) => {}
            Driver::Cluster(_) | Driver::TrustedCluster(_) => {
                for command in commands {
                    let _ = command.query_async::<Value>(&mut wire).await;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn subscribe(&self, channels: &[String]) -> Result<(), RedisError> {
        match self.wire.clone() {
            Driver::One(mut wire) => wire.driver.subscribe(channels).await,
            Driver::Cluster(mut wire) => wire.subscribe(channels).await,
            Driver::TrustedCluster(mut wire) => wire.subscribe(channels).await,
        }
    }
}

impl ConnectionLike for Driver {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(wire) => wire.req_packed_command(command),
            Self::Cluster(wire) => wire.req_packed_command(command),
            Self::TrustedCluster(wire) => wire.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(wire) => wire.req_packed_commands(pipeline, offset, count),
            Self::Cluster(wire) => wire.req_packed_commands(pipeline, offset, count),
            Self::TrustedCluster(wire) => wire.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(wire) => wire.get_db(),
            Self::Cluster(wire) => wire.get_db(),
            Self::TrustedCluster(wire) => wire.get_db(),
        }
    }
}
