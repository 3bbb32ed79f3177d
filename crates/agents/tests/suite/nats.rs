mod clocks;
mod faults;
mod fixture;
mod requests;
mod security;
