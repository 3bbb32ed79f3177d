//! Requests that reach the origin: bodies, ends of connections, reloads.

use std::time::Duration;

use stockade_services::StackServer;

use crate::client::{Clients, at_once, now, sleep};

const METHODS: [&str; 2] = ["POST", "PUT"];

/// Bytes that are not text.
fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251).to_le_bytes()[0]).collect()
}

/// Sends a body, and checks that the origin has received it.
fn echo(clients: &Clients, method: &'static str, body: &[u8], is_chunked: bool) {
    let request =
        clients.request(method, "/echo").field("Content-Type", "application/octet-stream").body(body);
    let request = if is_chunked { request.chunked() } else { request };
    if let Some(answer) = request.send() {
        let sum = body.iter().fold(0_u32, |sum, &byte| sum.wrapping_add(byte.into()));
        clients.check_text(200, &format!("method={method} length={} sum={sum}", body.len()), &answer);
    }
}

pub fn bodies(clients: &Clients, _: &StackServer) {
    for method in METHODS {
        for length in [0, 1, 65_536, 65_537, 1 << 20] {
            for is_chunked in [false, true] {
                echo(clients, method, &body(length), is_chunked);
            }
        }
    }
}

/// Four clients, so that several connections are kept; pauses around the idle timeout of a second.
pub fn keep_alive(clients: &Clients, _: &StackServer) {
    let body = body(300);
    let lane = |lane: u64| {
        for number in 0..28 {
            echo(
                clients,
                ["POST", "PUT", "GET"][number % 3],
                if number % 3 == 2 { &[] } else { &body },
                false,
            );
        }
        for (number, milliseconds) in
            (0..).zip([990, 995, 1000, 1005, 1010, 1015, 1020, 1030, 1040, 1050, 1100, 1500])
        {
            sleep(Duration::from_millis(milliseconds + lane));
            echo(clients, METHODS[number % 2], &body, false);
        }
    };
    at_once((0..4).map(|number| -> Box<dyn FnOnce() + Send> { Box::new(move || lane(number)) }).collect());
}

pub fn reload(clients: &Clients, stack: &StackServer) {
    let (began, body) = (now(), body(300));
    let lane = || {
        let mut number = 0;
        while began.elapsed() < Duration::from_millis(2500) {
            echo(
                clients,
                ["GET", "POST", "PUT"][number % 3],
                if number % 3 == 0 { &[] } else { &body },
                false,
            );
            sleep(Duration::from_millis(10));
            number += 1;
        }
    };
    let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    tasks.extend((0..3).map(|_| -> Box<dyn FnOnce() + Send + '_> { Box::new(lane) }));
    tasks.push(Box::new(|| {
        for _ in 0..2 {
            sleep(Duration::from_millis(700));
            stack.reload();
        }
    }));
    at_once(tasks);
}
