//! Real servers for a run or a test.
//!
//! Each server listens on a free port of the loopback interface and stores its files in a temporary folder. The server
//! stops, and its folder is removed, when its handle is dropped or when the process that has the handle dies. Each
//! server has a file of its own.
//!
//! ```no_run
//! use stockade_services::RedisServer;
//!
//! let redis = RedisServer::start()?;
//! println!("{}", redis.url());
//! # Ok::<(), stockade_services::ServiceError>(())
//! ```

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

mod certificate;
mod command;
mod couchdb;
mod hello;
mod mongodb;
mod nats;
mod nginx;
mod own_process;
mod postgres;
mod process;
mod program;
mod prometheus;
mod redis;
mod redis_cluster;
mod server;
mod stacks;

pub use command::{CommandEnvironment, CommandServer, ServerPlace, ShellError, quoted_log};
pub use couchdb::CouchDbServer;
pub use hello::serve_hello;
pub use mongodb::MongoDbServer;
pub use nats::NatsServer;
pub use nginx::NginxServer;
pub use own_process::in_own_process;
pub use postgres::PostgresServer;
pub use process::{ServerProcess, ServiceError, free_port, path_or_name};
pub use program::ProgramServer;
pub use prometheus::PrometheusServer;
pub use redis::RedisServer;
pub use redis_cluster::RedisCluster;
pub use rustix::process::Signal;
pub use server::RunningServer;
pub use stacks::{STACKS, Stack, StackServer, photo};
