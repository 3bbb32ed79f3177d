//! Lines on standard error about servers and breakers.

use super::{RECIPE, config_without_log, start_proxy, until};
use crate::{
    running::{Running, get},
    support::Sandbox,
};

/// Reads standard error until each text has begun a line.
fn expect_lines(proxy: &Running, texts: &[String]) {
    let mut missing = texts.to_vec();
    while !missing.is_empty() {
        let line = proxy.stderr_line();
        missing.retain(|text| !line.starts_with(text.as_str()));
    }
}

#[test]
fn outage_of_an_origin_is_reported_and_its_end_too() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
    let port = origin.listens("http").port();
    let breaker = "{ min_calls = 5, open_for = \"100ms\", probes = 1, ramp = \"100ms\" }";
    let cache = format!("cache = {{ strategy = \"breaker\", breaker = {breaker} }}");
    let config = config_without_log(&sandbox, &format!("http://127.0.0.1:{port}"), &cache);
    let (proxy, address, _) = start_proxy(&sandbox, &config, &[]);
    assert!(get(address, "/news").contains("all is well"));

    drop(origin);
    for number in 0..6 {
        get(address, &format!("/news?{number}"));
    }
    let server = format!("origin app: http://127.0.0.1:{port} is ");
    let breaker = "route /*: the breaker of origin app ".to_owned();
    expect_lines(&proxy, &[format!("{server}down after "), breaker.clone()]);

    let _origin = Running::origin(&sandbox, &["-", "--listen", &port.to_string()], RECIPE);
    let mut number = 6;
    until(|| {
        number += 1;
        get(address, &format!("/news?{number}")).contains("all is well")
    });
    expect_lines(&proxy, &[format!("{server}up"), format!("{breaker}has closed")]);
}
