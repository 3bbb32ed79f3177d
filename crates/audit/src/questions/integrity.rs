//! Broken and failed responses of the origin: is a wrong body ever passed on or stored, and is a request repeated that must not be?

mod broken;
mod failed;
mod fields;

use http::header::CONTENT_ENCODING;

use crate::{
    questions::{Needs, Question},
    setup::Audit,
    stamp::BodyFault,
    truth::Violation,
    users::UserRequest,
};

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        id: "integrity.cut",
        text: "The first load is closed in the middle of its body",
        rule: "RFC 9111, 3.3",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::cut(audit)),
    },
    Question {
        id: "integrity.reset",
        text: "The first load is reset in the middle of its body",
        rule: "RFC 9111, 3.3",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::reset(audit)),
    },
    Question {
        id: "integrity.chunked-cut",
        text: "The first load is closed before its last chunk",
        rule: "RFC 9112, 8",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::chunked_cut(audit)),
    },
    Question {
        id: "integrity.bad-chunk",
        text: "The first load has a chunk without a size",
        rule: "RFC 9112, 7.1",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::bad_chunk(audit)),
    },
    Question {
        id: "integrity.over-long",
        text: "Loads with more bytes than their Content-Length",
        rule: "RFC 9112, 6.3",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::over_long(audit)),
    },
    Question {
        id: "integrity.two-lengths",
        text: "A load with two lengths that differ",
        rule: "RFC 9112, 6.3",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::two_lengths(audit)),
    },
    Question {
        id: "integrity.mislabelled",
        text: "A body that is not gzip, although the load says so",
        rule: "RFC 9110, 8.4",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::mislabelled(audit)),
    },
    Question {
        id: "integrity.interim",
        text: "A load with an interim response before the page",
        rule: "RFC 9110, 15.2",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(broken::interim(audit)),
    },
    Question {
        id: "integrity.error-stored",
        text: "Errors 500 and 503 without Cache-Control",
        rule: "RFC 9111, 3",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(failed::error_stored(audit)),
    },
    Question {
        id: "integrity.gone",
        text: "Expired pages that are gone from the origin (410, 404)",
        rule: "RFC 9111, 4.2.4",
        needs: Needs::Requests,
        mostly_waits: true,
        ask: |audit| Box::pin(failed::gone(audit)),
    },
    Question {
        id: "integrity.post-retry",
        text: "POST requests without a body, whose connections are reset",
        rule: "RFC 9110, 9.2.2",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(failed::post_retry(audit)),
    },
    Question {
        id: "integrity.get-after-reset",
        text: "GET requests after the origin has reset its kept connections",
        rule: "",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(failed::get_after_reset(audit)),
    },
    Question {
        id: "integrity.fields",
        text: "The fields of a page, loaded and from the store",
        rule: "RFC 9110, 5.1",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(fields::same(audit)),
    },
    Question {
        id: "integrity.connection-fields",
        text: "Fields that belong to one connection",
        rule: "RFC 9110, 7.6.1",
        needs: Needs::Requests,
        mostly_waits: false,
        ask: |audit| Box::pin(fields::of_connection(audit)),
    },
];

/// True for a response with status 200 whose body is not the page of its path. Counts what the users have not counted.
fn is_false(audit: &Audit<'_>, request: &UserRequest, rule: &'static str) -> bool {
    let page = request.page();
    let is_false = request.is_ok() && !page.as_ref().is_ok_and(|page| page.path == request.path);
    let is_counted = matches!(page, Err(BodyFault::Truncated { .. } | BodyFault::Corrupt))
        && request.field(CONTENT_ENCODING).is_none();
    if is_false && !is_counted {
        audit.users.found(Violation::WrongBody, request, rule);
    }
    is_false
}
