//! Real servers, started for a run or a test and gone with it.
//!
//! Each listens on a free port of the loopback, keeps its files in a temporary folder, and is stopped, and its
//! folder removed, when its handle is dropped or when whoever holds that dies, however that may be. One file a
//! server.
//!
//! ```no_run
//! use stockade_services::Redis;
//!
//! let redis = Redis::start()?;
//! println!("{}", redis.url());
//! # Ok::<(), stockade_services::ServiceError>(())
//! ```

mod certificate;
mod couchdb;
mod mongodb;
mod nginx;
mod postgres;
mod process;
mod redis;
mod redis_cluster;
mod server;

pub use couchdb::CouchDb;
pub use mongodb::MongoDb;
pub use nginx::Nginx;
pub use postgres::Postgres;
pub use process::{Process, ServiceError, free_port};
pub use redis::Redis;
pub use redis_cluster::RedisCluster;
pub use server::Server;
