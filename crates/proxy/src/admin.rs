//! Whoever runs the proxy comes in here: purges, counts, health.
