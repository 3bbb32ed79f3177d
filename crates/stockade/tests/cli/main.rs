//! The command line as a user meets it: real processes, real files, the contract that scripts depend
//! on.

mod experiments;
mod http;
mod load;
mod mongodb;
mod open;
mod origin;
mod over_http;
mod postgres;
mod proxy;
mod run;
mod running;
mod secrets;
mod shared;
mod stampede;
mod support;
