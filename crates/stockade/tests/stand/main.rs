//! The proxy between users and stock servers: nginx, Apache, Django, Express and more, with two users and in real time; compared with nginx and
//! Varnish as the cache.
//!
//! A [`rows::Row`] is what users do. It runs on each cache ([`caches`]) in front of each stack (`stockade_services::STACKS`); a
//! [`tap`] between both, and the access log of the stack, count what the cache asks for. [`verdict`] compares. `make stand` keeps what was
//! measured, and writes docs/results/stand from it ([`record`]).

#![expect(clippy::format_push_string, reason = "short texts, made once")]

mod caches;
mod client;
mod http;
mod record;
mod rows;
mod run;
mod tap;
mod verdict;

use stockade_services::Stack;

use crate::{run::measure, verdict::complaints};

/// Fails with a list of all rows in which Stockade does worse than the best of nginx and Varnish.
#[track_caller]
fn check(name: &str) {
    let stack = Stack::named(name).expect("a stack has this name");
    assert_eq!(stack.missing(), None, "`make deps` installs what {name} needs");
    let outcomes = measure(stack);
    record::keep(stack, &outcomes);
    let mut complaints = complaints(&outcomes);
    // On a crowded machine a time or a race is chance: a finding is what two further runs have, too.
    for _ in 0..2 {
        if complaints.is_empty() {
            break;
        }
        let again = verdict::complaints(&measure(stack));
        complaints.retain(|one| again.iter().any(|other| verdict::title(one) == verdict::title(other)));
    }
    assert!(complaints.is_empty(), "{name}: {} findings\n\n{}", complaints.len(), complaints.join("\n"));
}

/// Those that start in seconds.
mod stand_ordinary {
    use super::check;

    #[test]
    fn nginx() {
        check("nginx");
    }

    #[test]
    fn apache() {
        check("Apache");
    }

    #[test]
    fn django() {
        check("Django");
    }

    #[test]
    fn express() {
        check("Express");
    }
}

/// Those whose installation and start take minutes.
mod stand_further {
    use super::check;

    #[test]
    fn go() {
        check("Go");
    }

    #[test]
    fn tomcat() {
        check("Tomcat");
    }

    #[test]
    fn wordpress() {
        check("WordPress");
    }

    #[test]
    fn rails() {
        check("Rails");
    }

    #[test]
    fn next() {
        check("Next.js");
    }
}
