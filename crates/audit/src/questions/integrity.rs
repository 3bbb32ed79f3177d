//! Broken and failed responses of the origin: is a wrong body ever passed on or stored, and is a request repeated that must not be?

mod broken;
mod failed;
mod fields;

use crate::{questions::Question, setup::Audit, truth::Violation, users::UserRequest};

pub(super) const QUESTIONS: &[Question] = &[
    Question::new("integrity.cut", "The origin closes the first load in the middle of its body", |audit| {
        Box::pin(broken::cut(audit))
    })
    .rule("RFC 9111, 3.3"),
    Question::new("integrity.reset", "The origin resets the first load in the middle of its body", |audit| {
        Box::pin(broken::reset(audit))
    })
    .rule("RFC 9111, 3.3"),
    Question::new(
        "integrity.chunked-cut",
        "The origin closes the first load before its last chunk",
        |audit| Box::pin(broken::chunked_cut(audit)),
    )
    .rule("RFC 9112, 8"),
    Question::new("integrity.bad-chunk", "The first load has a chunk without a size", |audit| {
        Box::pin(broken::bad_chunk(audit))
    })
    .rule("RFC 9112, 7.1"),
    Question::new("integrity.over-long", "Loads with more bytes than their Content-Length", |audit| {
        Box::pin(broken::over_long(audit))
    })
    .rule("RFC 9112, 6.3"),
    Question::new("integrity.two-lengths", "A load with two different values of Content-Length", |audit| {
        Box::pin(broken::two_lengths(audit))
    })
    .rule("RFC 9112, 6.3"),
    Question::new(
        "integrity.mislabelled",
        "A load with `Content-Encoding: gzip` and a body that is not gzip",
        |audit| Box::pin(broken::mislabelled(audit)),
    )
    .rule("RFC 9110, 8.4"),
    Question::new("integrity.interim", "A load with an interim response before the page", |audit| {
        Box::pin(broken::interim(audit))
    })
    .rule("RFC 9110, 15.2"),
    Question::new("integrity.error-stored", "Errors 500 and 503 without Cache-Control", |audit| {
        Box::pin(failed::error_stored(audit))
    })
    .rule("RFC 9111, 3"),
    Question::new("integrity.gone", "Expired pages that are gone from the origin (410, 404)", |audit| {
        Box::pin(failed::gone(audit))
    })
    .rule("RFC 9111, 4.2.4")
    .mostly_waits(),
    Question::new(
        "integrity.post-retry",
        "POST requests without a body, whose connections are reset",
        |audit| Box::pin(failed::post_retry(audit)),
    )
    .rule("RFC 9110, 9.2.2"),
    Question::new(
        "integrity.get-after-reset",
        "GET requests after the origin has reset its persistent connections",
        |audit| Box::pin(failed::get_after_reset(audit)),
    ),
    Question::new("integrity.fields", "The fields of a page, loaded and from the store", |audit| {
        Box::pin(fields::same(audit))
    })
    .rule("RFC 9110, 5.1"),
    Question::new(
        "integrity.connection-fields",
        "Fields that belong to one connection (Connection)",
        |audit| Box::pin(fields::of_connection(audit)),
    )
    .rule("RFC 9110, 7.6.1"),
];

/// True for a response with status 200 whose body is not the page of its path. Counts it.
fn is_false(audit: &Audit<'_>, request: &UserRequest, rule: &'static str) -> bool {
    let is_false = request.is_ok() && !request.page().is_ok_and(|page| page.path == request.path);
    if is_false {
        audit.users.found(Violation::WrongBody, request, rule);
    }
    is_false
}
