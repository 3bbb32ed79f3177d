//! The rows of the table: what users do, and what they must get.

mod bodies;
mod pages;
mod private;
mod revalidation;
mod slow;

use std::{fmt, time::Duration};

use stockade_services::StackServer;

use crate::{caches::Cache, client::Clients};

/// Users who do something with a cache in front of a stack.
#[derive(Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    /// For the report.
    pub does: &'static str,
    /// It disturbs others, so it runs on servers of its own, one after another.
    pub is_alone: bool,
    /// It needs a stack that reloads without a pause.
    pub needs_reload: bool,
    pub run: fn(&Clients, &StackServer),
    /// The longest time in which every answer must have arrived.
    pub within: Duration,
    /// Every request finds an expired page, so that each costs a load.
    pub is_expired_each_time: bool,
    /// The stacks whose loads are not compared, and the reason.
    pub incomparable: Option<(&'static [Cache], &'static str)>,
}

/// The time for answers whose time is not looked at, since the machine may be crowded.
const LONG: Duration = Duration::from_mins(1);

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Row {
    const fn new(name: &'static str, run: fn(&Clients, &StackServer), does: &'static str) -> Self {
        Self {
            name,
            does,
            is_alone: false,
            needs_reload: false,
            run,
            within: LONG,
            is_expired_each_time: false,
            incomparable: None,
        }
    }

    const fn within(mut self, seconds: u64) -> Self {
        self.within = Duration::from_secs(seconds);
        self
    }

    /// True if its time is looked at.
    pub fn is_slow(&self) -> bool {
        self.within < LONG
    }

    const fn reloading(mut self) -> Self {
        self.needs_reload = true;
        self
    }

    const fn without(mut self, caches: &'static [Cache], reason: &'static str) -> Self {
        self.incomparable = Some((caches, reason));
        self
    }

    const fn expired_each_time(mut self) -> Self {
        self.is_expired_each_time = true;
        self
    }

    const fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }
}

const ONE_CODING: &str = "Varnish stores one copy with gzip, and decompresses it for clients without";
const HEAD_AS_GET: &str = "nginx and Varnish load the whole page for a HEAD";
const KEEPS_ERRORS: &str = "Varnish keeps 404, 410 and redirects without a lifetime for two minutes";

pub const ROWS: [Row; 25] = [
    Row::new("hits", pages::hits, "10 requests for a page, one after another"),
    Row::new("hits_of_users", pages::hits_of_users, "the same by two users with cookies"),
    Row::new("gzip", pages::gzip, "clients with and without gzip in turn, 8 requests")
        .without(&[Cache::Varnish], ONE_CODING),
    Row::new("language", pages::language, "`Accept-Language: de` and `en` in turn, 8 requests"),
    Row::new("head", pages::head, "HEAD, GET, and 3 HEAD")
        .without(&[Cache::Nginx, Cache::Varnish], HEAD_AS_GET),
    Row::new("ranges", pages::ranges, "GET of 256 KiB, then 6 ranges of it"),
    Row::new("ranges_cold", pages::ranges_cold, "3 ranges of a file that is not stored"),
    Row::new("file_gzip", revalidation::file_gzip, "a file, gzip, lifetime 1 s: 4 requests, one every 2.2 s")
        .expired_each_time(),
    Row::new("file", revalidation::file, "the same without gzip").expired_each_time(),
    Row::new("file_both", revalidation::file_both, "the same, with and without gzip in turn")
        .expired_each_time()
        .without(&[Cache::Varnish], ONE_CODING),
    Row::new(
        "article_gzip",
        revalidation::article_gzip,
        "a dynamic page, gzip, lifetime 1 s: 4 requests, one every 2.2 s",
    )
    .expired_each_time(),
    Row::new("article", revalidation::article, "the same without gzip").expired_each_time(),
    Row::new("deleted", revalidation::deleted, "a page with lifetime 1 s that is deleted: 404 from then on")
        .without(&[Cache::Varnish], KEEPS_ERRORS),
    Row::new("account", private::account, "two users in turn, then 8 requests at once: the session's page"),
    Row::new("expired", private::expired, "the same with a page of 0.7 s that is expired when it arrives"),
    Row::new(
        "form",
        private::form,
        "6 visitors without cookies: a `public` page with a token and `Set-Cookie`",
    ),
    Row::new("bodies", bodies::bodies, "POST and PUT with 0 B to 1 MiB, with a length and in chunks"),
    Row::new("keep_alive", bodies::keep_alive, "160 GET, POST and PUT around the ends of kept connections"),
    Row::new("slow_6s", slow::slow_6s, "3 clients at once: a page that takes 6 s").within(13),
    Row::new("slow_12s", slow::slow_12s, "3 clients at once: a page that takes 12 s").within(25),
    Row::new("report_12s", slow::report_12s, "3 clients at once: a `no-store` page that takes 12 s")
        // Two loads, one after the other, as Varnish needs.
        .within(35),
    Row::new("reload", bodies::reload, "GET, POST and PUT while the stack reloads twice").alone().reloading(),
    Row::new("busy", slow::busy, "40 `no-store` pages of 12 s at once, and 36 fast pages meanwhile")
        .alone()
        .within(15),
    Row::new("errors", pages::errors, "404, 410, 403, 500 and 302, each four times by two users")
        .alone()
        .without(&[Cache::Varnish], KEEPS_ERRORS),
    Row::new("broken_page", pages::broken_page, "one page that answers 500, 30 times, then 10 other pages")
        .alone(),
];
