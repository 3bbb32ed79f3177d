//! Pages for all users.

use stockade_services::{StackServer, photo};

use super::private::logged_in;
use crate::{
    client::{Answer, Clients, User},
    http::field,
};

pub fn hits(clients: &Clients, _: &StackServer) {
    for _ in 0..10 {
        check_page(clients, clients.get("/page").gzip().send());
    }
}

pub fn hits_of_users(clients: &Clients, _: &StackServer) {
    let users = logged_in(clients);
    for _ in 0..5 {
        for user in &users {
            check_page(clients, clients.get("/page").of(user).gzip().send());
        }
    }
}

pub fn check_page(clients: &Clients, answer: Option<Answer>) {
    if let Some(answer) = answer {
        clients.check_text(200, "<h1>page</h1>", &answer);
    }
}

pub fn gzip(clients: &Clients, _: &StackServer) {
    for _ in 0..4 {
        check_page(clients, clients.get("/page").gzip().send());
        check_page(clients, clients.get("/page").send());
    }
}

pub fn language(clients: &Clients, _: &StackServer) {
    for _ in 0..4 {
        for language in ["de", "en"] {
            let request = clients.get("/language").field("Accept-Language", language).gzip();
            if let Some(answer) = request.send() {
                clients.check_text(200, &format!("language={language}"), &answer);
            }
        }
    }
}

pub fn head(clients: &Clients, _: &StackServer) {
    let head = || {
        let answer = clients.request("HEAD", "/page").gzip().send();
        if let Some(answer) = &answer {
            clients.check(answer.status == 200 && answer.body.is_empty(), "200 without a body", answer);
        }
        answer
    };
    head();
    let page = clients.get("/page").gzip().send();
    check_page(clients, page.clone());
    for _ in 0..3 {
        let (Some(head), Some(page)) = (head(), &page) else { continue };
        let [own, of_get] =
            [&head, page].map(|answer| field(&answer.head, "content-length").map(str::to_owned));
        clients.check(own.is_none() || of_get.is_none() || own == of_get, "the Content-Length of GET", &head);
    }
}

/// Checks a range of the photo: 206 with these bytes, or 200 with all.
fn range(clients: &Clients, value: &str, bytes: std::ops::Range<usize>, condition: Option<&str>) {
    let request = clients.get("/static/photo.bin").field("Range", value);
    let request = if let Some(tag) = condition { request.field("If-Range", tag) } else { request };
    if let Some(answer) = request.send() {
        let is_part = answer.status == 206 && answer.body == photo()[bytes];
        clients.check(
            is_part || answer.status == 200 && answer.body == photo(),
            "206 with the range, or 200",
            &answer,
        );
    }
}

pub fn ranges(clients: &Clients, _: &StackServer) {
    let Some(whole) = clients.get("/static/photo.bin").send() else { return };
    clients.check(whole.status == 200 && whole.body == photo(), "200 with the photo", &whole);
    let end = photo().len();
    range(clients, "bytes=0-99", 0..100, None);
    range(clients, "bytes=100000-199999", 100_000..200_000, None);
    range(clients, "bytes=-100", end - 100..end, None);
    range(clients, &format!("bytes={}-", end - 10), end - 10..end, None);
    range(clients, "bytes=5-14", 5..15, field(&whole.head, "etag"));
    range(clients, "bytes=5-14", 5..15, field(&whole.head, "last-modified"));
}

pub fn ranges_cold(clients: &Clients, _: &StackServer) {
    range(clients, "bytes=0-99", 0..100, None);
    range(clients, "bytes=100000-199999", 100_000..200_000, None);
    range(clients, "bytes=-100", photo().len() - 100..photo().len(), None);
}

pub fn errors(clients: &Clients, _: &StackServer) {
    let users = [User::new("ann"), User::new("bob")];
    for (target, status) in
        [("/missing", 404), ("/gone", 410), ("/forbidden", 403), ("/error", 500), ("/old", 302)]
    {
        for user in users.iter().chain(&users) {
            if let Some(answer) = clients.get(target).of(user).gzip().send() {
                clients.check(answer.status == status, &status.to_string(), &answer);
            }
        }
    }
}

pub fn broken_page(clients: &Clients, _: &StackServer) {
    for _ in 0..30 {
        if let Some(answer) = clients.get("/error").send() {
            // A breaker may refuse the page, and nothing else.
            clients.check(matches!(answer.status, 500 | 503), "500 or 503", &answer);
        }
    }
    for number in 0..10 {
        check_page(clients, clients.get(&format!("/page?n={number}")).send());
    }
}
