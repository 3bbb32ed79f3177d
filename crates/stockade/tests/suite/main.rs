//! The command line as a user meets it: real processes, real files, the contract that scripts depend
//! on.

mod compare;
mod completions;
mod docs;
mod experiments;
mod http;
mod load;
mod man;
mod mongodb;
mod open;
mod origin;
mod over_http;
mod postgres;
mod proxy;
mod reference;
mod report;
mod run;
mod running;
mod secrets;
mod setups;
mod shared;
mod stampede;
mod starting;
mod support;
mod tidy;
mod windows;
