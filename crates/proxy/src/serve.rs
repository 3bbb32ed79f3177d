//! Where requests, the cache and the origin meet.
