//! The proxy as a whole, with real bytes on both sides.

mod access_log;
mod bypass;
mod client_shares;
mod coalescing;
mod faults;
mod invalidation;
mod large_bodies;
mod model;
mod owners;
mod poisoning;
mod private;
mod purge_method;
mod rejected;
mod secrets;
mod slow_client_matrix;
mod slow_clients;
mod stored;
mod support;
mod trusted_proxies;
