//! An HTTP origin that misbehaves on schedule.
//!
//! It takes the recipes of BBC's `OriginSimulator` unchanged and extends them by faults, random shares, finite capacity
//! and versions. Any cache can stand in front of it. Its modules; each uses only those above it:
//!
//! - `stages` and `recipe`: what a route does over time, parsed from JSON. Pure.
//! - `statement`: what the origin states about its responses, so that a client can check them. Pure.
//! - `fetch`, `memfd` and `content`: the bodies that routes serve.
//! - `response` and `fault`: what a response carries of a body (conditions, ranges, HEAD, faults). Pure.
//! - `counters`, `routes` and `state`: the recipes in force, shared by all listeners.
//! - `script`: responses that a program chooses in place of recipes.
//! - `connection_state`, `body` and `stream`: one connection. `admin` and `service`: its requests.
//! - `certificate`, `connection` and `server`: sockets and threads.
//!
//! ```no_run
//! use stockade_origin::{Origin, OriginOptions};
//!
//! let origin = Origin::start(&OriginOptions::default())?;
//! println!("http://{}/_admin/add_recipe", origin.address);
//! # Ok::<(), stockade_origin::OriginStartError>(())
//! ```

mod admin;
mod blocking;
mod body;
mod certificate;
mod connection;
mod connection_state;
mod content;
mod counters;
mod fault;
mod fetch;
mod memfd;
pub mod recipe;
mod response;
mod routes;
mod script;
mod server;
mod service;
pub mod stages;
mod state;
mod statement;
mod stream;

pub use certificate::{CertificateError, CertificateSource};
pub use fetch::FetchError;
pub use script::{ResponseEnding, Script, ScriptedResponse};
pub use server::{Origin, OriginOptions, OriginStartError, RecipeText};
pub use state::AddRecipesError;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
