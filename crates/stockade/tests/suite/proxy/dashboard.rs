//! The dashboard of the admin listener: `/` in Chromium, and `/keys`.

use serde_json::Value;

use super::{Setup, send_request, until};
use crate::browser::Browser;

/// The part of a script that a client may send: the frontend refuses a raw `<`.
const SCRIPTS: [&str; 2] =
    ["/news%3Cscript%3Ealert(1)%3C/script%3E", "/news?&lt;script&gt;alert(1)&lt;/script&gt;"];

/// A proxy with requests of every kind, and the dashboard in a browser, once it has drawn two seconds.
fn open() -> (Setup, Browser) {
    let setup = Setup::start(&["--max-entries", "1000", "--strategy", "breaker", "--shadow"]);
    for path in ["/news", "/news", "/weather", "/own", "/news/a?token=sesame", SCRIPTS[0], SCRIPTS[1]] {
        setup.get(path);
    }
    let browser = Browser::start();
    browser.visit(&format!("http://{}/", setup.admin));
    until(|| {
        setup.get("/news");
        browser.run("return document.querySelector('figure')?.chart.data[0].length ?? 0").as_u64() > Some(3)
    });
    (setup, browser)
}

fn text(browser: &Browser, of: &str) -> String {
    let text = browser.run(&format!("return document.querySelector({of:?}).innerText"));
    text.as_str().expect("text").to_owned()
}

#[test]
fn dashboard_shows_the_figures_of_the_proxy_in_chromium() {
    let (setup, browser) = open();
    let stats = setup.stats();
    let figures = text(&browser, "#figures");
    assert!(figures.contains("hit ratio now") && figures.contains("entries of 1,000"), "{figures}");
    let routes = text(&browser, "#routes");
    assert!(routes.contains("closed") && routes.contains("loads failed"), "{routes}");
    let origin = stats["origins"][0]["servers"][0]["address"].as_str().expect("an address");
    assert!(text(&browser, "#origins").contains(origin));
    let ghosts = text(&browser, "#shadow");
    assert!(ghosts.contains("2x size") && ghosts.contains("% of the keys"), "{ghosts}");
    browser.picture("dashboard");
    // Every plot has its lines and their last values.
    let legends =
        browser.run("return [...document.querySelectorAll('figure')].map((figure) => figure.innerText)");
    let legends: Vec<&str> = legends.as_array().expect("plots").iter().filter_map(Value::as_str).collect();
    assert_eq!(legends.len(), 8, "{legends:?}");
    for (legend, line) in
        legends.iter().zip(["hit", "hit ratio", "loads", "99 %", "cache", "entries", "connections", "open"])
    {
        assert!(legend.contains(line), "{legend}");
    }
    let drawn = browser.coloured_pixels("figure");
    assert!(drawn[..7].iter().all(|pixels| *pixels > 10), "{drawn:?}");
    for (width, height) in [(375, 800), (2_560, 1_400), (1_300, 900)] {
        browser.resize(width, height);
        let widest = browser.run("return document.documentElement.scrollWidth").as_f64().expect("a number");
        assert!(widest <= f64::from(width), "{widest} px of {width}");
    }
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn texts_of_clients_are_texts_of_the_dashboard_in_chromium() {
    let (setup, browser) = open();
    // Keys are sampled: each is asked for until it is seen.
    until(|| {
        for path in [SCRIPTS[0], SCRIPTS[1], "/news/a?token=sesame"] {
            setup.get(path);
        }
        let hottest = text(&browser, "#hottest");
        let has = |row: &str| hottest.lines().any(|line| line == format!("http://origin{row}"));
        assert!(!hottest.contains("sesame"), "{hottest}");
        SCRIPTS.iter().all(|script| has(script)) && has("/news/a?token=***")
    });
    assert_eq!(browser.run("return document.title"), "Stockade");
    assert_eq!(setup.get("/news<script>alert(1)</script>").status, 400);
    // No frontend before the page: every text of every list.
    browser.run(
        "const real = fetch, hostile = '<img src=x onerror=alert(1)><script>alert(1)</script>';
         const replace = (key, value) => typeof value === 'string' ? hostile : value;
         window.fetch = async (...request) => new Response(JSON.stringify(await (await real(...request)).json(), replace))",
    );
    for table in ["#routes", "#origins", "#hottest", "#missed", "#slowest"] {
        until(|| text(&browser, table).contains("<img src=x onerror=alert(1)><script>alert(1)</script>"));
    }
    assert_eq!(browser.run("return document.querySelectorAll('main img, main script').length"), 0);
    // The policy forbids scripts that others write.
    browser.run("document.body.append(Object.assign(document.createElement('script'), { textContent: 'document.title = 1' }))");
    assert_eq!(browser.run("return document.title"), "Stockade");
    let refusals = browser.console();
    assert!(refusals.iter().all(|line| line.contains("Content Security Policy")), "{refusals:?}");
    drop(setup);
    until(|| text(&browser, "#state").starts_with("no answer"));
}

#[test]
fn plots_of_the_dashboard_are_used_by_mouse_and_keys_in_chromium() {
    let (_setup, browser) = open();
    let press = |key: &str| {
        let script = format!(
            "document.querySelector('figure [tabindex]').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', cancelable: true }}))"
        );
        browser.run(&script);
    };
    press("Home");
    let cursors = "return [...document.querySelectorAll('figure')].map((figure) => figure.chart.cursor.idx)";
    until(|| {
        browser.run(cursors).as_array().is_some_and(|cursors| cursors.iter().all(|cursor| *cursor == 0))
    });
    let span = "const { min, max } = document.querySelector('figure').chart.scales.x; return max - min";
    let whole = browser.run(span).as_f64().expect("a number");
    assert!(whole >= 60.0, "{whole}");
    let pressed = || browser.run("return document.querySelector('#pause').getAttribute('aria-pressed')");
    let middle = browser.run(
        "const { left, top, width, height } = document.querySelector('.u-over').getBoundingClientRect();
         return [left + width / 4, left + width * 3 / 4, top + height / 2].map(Math.round)",
    );
    let pixel = |at: usize| middle[at].as_i64().expect("pixels");
    browser.mouse(&[(pixel(0), pixel(2)), (pixel(1), pixel(2))], true);
    until(|| (browser.run(span).as_f64().expect("a number") - whole / 2.0).abs() < whole / 10.0);
    assert_eq!(pressed(), "true");
    press("0");
    until(|| pressed() == "false" && browser.run(span).as_f64() >= Some(60.0));
    browser.run("document.querySelector('#pause').click()");
    assert_eq!(pressed(), "true");
    let background = "return getComputedStyle(document.body).backgroundColor";
    let choose = |theme: &str| {
        browser.run(&format!("const theme = document.getElementById('theme'); theme.value = '{theme}'; theme.dispatchEvent(new Event('change'))"));
        browser.run(background)
    };
    assert_ne!(choose("dark"), choose("light"));
    // Figures of more than 15 minutes ago are dropped.
    browser.run("const now = Date.now; Date.now = () => now() + 16 * 60 * 1000");
    until(|| browser.run("return document.querySelector('figure').chart.data[0].length").as_u64() < Some(4));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn keys_are_bounded_and_without_secrets() {
    let setup = Setup::start(&[]);
    for number in 0..300 {
        let path = format!("/news/{number}/{}?token=sesame", "x".repeat(7_900));
        assert_eq!(setup.get(&path).status, 200);
    }
    (0..40).for_each(|_| drop(setup.get("/weather?key=sesame&b=1")));
    let answer = super::admin_request(setup.admin, "GET", "/keys", "");
    assert!(answer.body.len() < 60 * 700 && !answer.body.contains("sesame"), "{answer:?}");
    let keys = answer.json();
    let hottest = &keys["hottest"][0];
    assert_eq!(hottest["key"], "http://origin/weather?key=***&b=1");
    let (share, error) =
        (hottest["share"].as_f64().expect("a share"), hottest["error"].as_f64().expect("an error"));
    // 40 of 340 requests, and the first of them were a while ago.
    assert!((0.05..0.6).contains(&share) && (0.0..=1.0 / 256.0).contains(&error), "{hottest}");
    for list in ["hottest", "most_missed", "slowest_loads"] {
        assert_eq!(keys[list].as_array().map(Vec::len), Some(20), "{list}");
    }
    let refused =
        send_request(setup.admin, "GET /keys HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_eq!(refused.status, 421);
}
