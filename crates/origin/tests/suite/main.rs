//! Tests of recipes, and of an origin on a port of the loopback.

mod http;
mod recipes;
