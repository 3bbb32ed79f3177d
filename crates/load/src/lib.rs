//! When requests are due.
//!
//! A [`Schedule`](schedule::Schedule) is what a load wants, written down before it starts: an *open*
//! load, whose requests come when they are due whether or not earlier ones have been answered. It is
//! pure, so its tests need no clock; whoever drives a load sleeps until the next due time and sends.

pub mod schedule;
