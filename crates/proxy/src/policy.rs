//! What HTTP says about caching (RFC 9110, 9111, 5861, 9211, 9213). Pure: heads and times in, decisions out.
