//! The status page.

use super::response::{AdminResponse, html};

const HTML: &str = include_str!("page.html");

/// Content security policy: inline style and script, requests to this server only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(super) fn response() -> AdminResponse {
    html(HTML, POLICY)
}
