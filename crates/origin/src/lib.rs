//! An HTTP origin that misbehaves on schedule.
//!
//! It stands alone, and replaces BBC's OriginSimulator, whose recipes it takes unchanged. A request goes
//! through it so:
//!
//! - [`recipe`]: what was written becomes what it means, or an error with its place and the remedy.
//! - [`book`]: the recipes in force; which one a path meets. [`stages`] says what it does when, as a pure function
//!   of the time since its clock started.
//! - [`content`] and [`answer`]: what is served, and how much of it a request asks for: conditions, ranges, HEAD.
//! - [`server`], and behind it one service a listener and one task a connection, which breaks when a fault wants it.
//! - [`counts`]: what became of it.
//!
//! ```no_run
//! use stockade_origin::{Options, Origin};
//!
//! let origin = Origin::start(&Options::default())?;
//! println!("http://{}/_admin/add_recipe", origin.address);
//! # Ok::<(), stockade_origin::StartError>(())
//! ```

mod admin;
pub mod answer;
mod beside;
mod body;
pub mod book;
mod connection;
pub mod content;
pub mod counts;
mod fault;
mod fetch;
pub mod recipe;
pub mod server;
mod service;
mod session;
pub mod stages;
mod state;
mod tls;
mod wire;

pub use server::{Options, Origin, StartError, Text};
pub use state::Refused;
pub use tls::{Identity, TlsError};
