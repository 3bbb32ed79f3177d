//! The dashboard: one page without other files. `page.js` asks `/stats` each second and keeps the figures of 15 minutes.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::{HeaderValue, StatusCode, header::CONTENT_SECURITY_POLICY};
use sha2::{Digest, Sha256};
use stockade_record::page::{PAGE_SCRIPT, THEME_STYLE, UPLOT_NOTICE, UPLOT_SCRIPT, UPLOT_STYLE};

use super::response::{AdminResponse, of_type};

struct Page {
    html: String,
    policy: HeaderValue,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let style = [UPLOT_STYLE, THEME_STYLE, include_str!("page/page.css")].concat();
    let script = [UPLOT_NOTICE, UPLOT_SCRIPT, PAGE_SCRIPT, include_str!("page/page.js")].concat();
    let body = include_str!("page/body.html");
    let html = format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stockade</title>
<style>{style}</style>
</head>
<body>
{body}<script>{script}</script>
</body>
</html>
"#
    );
    // This style and this script, and requests to this server only: a text of a client cannot become either of them.
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
         form-action 'none'",
        hash(&style),
        hash(&script)
    );
    let policy = HeaderValue::from_str(&policy).expect("letters, digits and quotation marks");
    Page { html, policy }
});

/// The source expression of CSP Level 3, 2.3.1.
fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64.encode(Sha256::digest(text)))
}

pub(super) fn response() -> AdminResponse {
    let mut response = of_type(StatusCode::OK, "text/html; charset=utf-8", PAGE.html.as_str());
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, PAGE.policy.clone());
    response
}
