//! Connections to an origin: so many and no more, each answer in its time.
