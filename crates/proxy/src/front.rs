//! Connections of clients: listeners, TLS, bounds, timeouts, and a graceful end.
