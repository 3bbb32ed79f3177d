//! Responses that do not end: a rule, known once the head has arrived.

use http::{HeaderMap, header::CONTENT_TYPE};

/// The media types of responses that last as long as their client stays: server-sent events (HTML, 9.2), and parts that replace
/// each other, such as the images of a camera. Other responses of unknown length are pages and downloads as a rule, and count as
/// any request.
const ENDLESS: [&str; 2] = ["text/event-stream", "multipart/x-mixed-replace"];

/// True if a response with this head is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let media_type = value.split(';').next().unwrap_or_default().trim();
    ENDLESS.iter().any(|endless| media_type.eq_ignore_ascii_case(endless))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn media_type_decides() {
        for (value, expected) in [
            ("text/event-stream", true),
            ("Text/Event-Stream ; charset=utf-8", true),
            ("multipart/x-mixed-replace; boundary=frame", true),
            ("text/event-streams", false),
            ("text/html; a=text/event-stream", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
            assert_eq!(is_event_stream(&headers), expected, "{value}");
        }
        assert!(!is_event_stream(&HeaderMap::new()));
    }
}
