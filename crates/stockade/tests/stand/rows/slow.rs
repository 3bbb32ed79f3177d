//! A healthy origin that takes its time.

use std::time::Duration;

use stockade_services::StackServer;

use super::pages::check_page;
use crate::client::{Clients, at_once, now, sleep};

pub fn slow_6s(clients: &Clients, _: &StackServer) {
    three(clients, "/slow?seconds=6", "<h1>page</h1>");
}

pub fn slow_12s(clients: &Clients, _: &StackServer) {
    three(clients, "/slow?seconds=12", "<h1>page</h1>");
}

pub fn report_12s(clients: &Clients, _: &StackServer) {
    three(clients, "/report?seconds=12", "user=nobody");
}

fn three(clients: &Clients, target: &str, text: &str) {
    let get = || {
        if let Some(answer) = clients.get(target).gzip().send() {
            clients.check_text(200, text, &answer);
        }
    };
    at_once((0..3).map(|_| -> Box<dyn FnOnce() + Send + '_> { Box::new(get) }).collect());
}

pub fn busy(clients: &Clients, _: &StackServer) {
    let report = |number: u32| {
        if let Some(answer) = clients.get(&format!("/report?seconds=12&n={number}")).send() {
            clients.check_text(200, "user=nobody", &answer);
        }
    };
    let pages = || {
        let began = now();
        sleep(Duration::from_millis(300));
        for number in 0..36 {
            check_page(clients, clients.get(&format!("/page?n={number}")).send());
            // Over the time of the slow ones, and after it.
            sleep((Duration::from_millis(350) * (number + 2)).saturating_sub(began.elapsed()));
        }
    };
    let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = vec![Box::new(pages)];
    tasks.extend((0..40).map(|number| -> Box<dyn FnOnce() + Send + '_> { Box::new(move || report(number)) }));
    at_once(tasks);
}
