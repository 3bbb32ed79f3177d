//! `plan --format html` in Chromium.

use std::fs;

use serde_json::{Value, json};

use super::{line, plan};
use crate::{browser::Browser, support::Sandbox};

/// Two thousand requests for 400 keys; the name of the log would end an element.
fn open(name: &str) -> (Browser, Sandbox) {
    let sandbox = Sandbox::new();
    let mut log = String::new();
    for n in 0..2_000_usize {
        let key = n * n % 401;
        let time = format!("13:{:02}:{:02}", n / 60 % 60, n % 60);
        line(&mut log, &time, &format!("GET /page/{key} HTTP/1.1"), 200, 500 + 40 * key);
    }
    let log = sandbox.file(name, &log);
    let arguments = [&log, "--format", "html", "--ttl", "5m,never", "--policy", "all"];
    let page = sandbox.file("plan.html", &plan(&sandbox, &arguments).stdout);
    let browser = Browser::start();
    browser.open(page.as_ref());
    (browser, sandbox)
}

const CHARTS: &str = "[...document.querySelectorAll('.plot')]";

/// Contrast of the text on the page, in the quiet colour and on the block, by WCAG 2.
const CONTRAST: &str = "
    const luminance = (element, property) => {
        const canvas = new OffscreenCanvas(1, 1).getContext('2d');
        canvas.fillStyle = getComputedStyle(element)[property];
        canvas.fillRect(0, 0, 1, 1);
        const channels = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => value / 255);
        const [red, green, blue] = channels.map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const contrast = (text, page) => {
        const [low, high] = [luminance(text, 'color'), luminance(page, 'backgroundColor')].sort((one, other) => one - other);
        return (high + 0.05) / (low + 0.05);
    };
    const of = (selector) => document.querySelector(selector);
    return [contrast(of('.answer'), document.body), contrast(of('dl:not(.facts) dd'), document.body), contrast(of('code'), of('.block'))];";

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("numbers").iter().map(|number| number.as_f64().expect("a number")).collect()
}

#[test]
fn plan_is_drawn_offline_in_chromium() {
    let (browser, _sandbox) = open("a<b>.log");
    let drawn = browser.coloured_pixels(".plot");
    browser.picture("plan");
    assert!(drawn.len() == 2 && drawn.iter().all(|pixels| *pixels > 200), "{drawn:?}");
    assert_eq!(browser.run("return performance.getEntriesByType('resource').length"), 0, "no other file");
    let heading = browser.run("return document.querySelector('h1').textContent");
    assert!(heading.as_str().is_some_and(|heading| heading.ends_with("/a<b>.log")), "{heading}");
    let answer = browser.run("return document.querySelector('.answer').textContent");
    assert!(answer.as_str().is_some_and(|answer| answer.starts_with("Hit ratio once warm ")), "{answer}");
    assert!(browser.print().starts_with("JVBERi"), "base64 of %PDF-");
    for (width, height) in [(375, 800), (2_560, 1_400), (1_300, 900)] {
        browser.resize(width, height);
        let widest = browser.run("return document.documentElement.scrollWidth").as_f64().expect("a number");
        assert!(widest <= f64::from(width), "{widest} px of {width}");
        // The plot follows the width, once the browser has told it.
        let is_drawn = browser.run(&format!(
            "return (async () => {{
                const fits = () => {CHARTS}.every(({{ chart }}) => chart.root.getBoundingClientRect().right <= innerWidth
                    && chart.width > 0.5 * Math.min(innerWidth, 1000));
                for (let frame = 0; frame < 600 && !fits(); frame += 1) await new Promise(requestAnimationFrame);
                return fits();
            }})()"
        ));
        assert_eq!(is_drawn, true, "at {width} px");
        if width == 375 {
            browser.picture("plan-narrow");
        }
    }
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn plot_follows_its_choices_in_chromium() {
    let (browser, _sandbox) = open("access.log");
    let picture = || browser.run("return document.querySelector('.plot canvas').toDataURL()");
    let choose = |choice: &str| {
        browser.run(&format!("document.querySelector('.plot').querySelector('{choice}').click()"));
    };
    let hits = picture();
    for radio in 2..=4 {
        choose(&format!("label:nth-of-type({radio}) [type=radio]"));
        let other = picture();
        assert_ne!(other, hits, "view {radio}");
    }
    choose("label:nth-of-type(1) [type=radio]");
    assert_eq!(picture(), hits);
    choose("[type=checkbox]");
    let fewer = picture();
    assert_ne!(fewer, hits);
    choose("[type=checkbox]");
    assert_eq!(picture(), hits);
    // At first those that ship and the bounds, and each policy has a box.
    let boxes = browser.run("return [...document.querySelector('.plot').querySelectorAll('[type=checkbox]')].map((box) => box.checked)");
    let boxes = boxes.as_array().expect("boxes");
    let shown = boxes.iter().filter(|shown| **shown == true).count();
    let expected =
        stockade_plan::POLICIES.iter().filter(|policy| policy.shipped.is_some() || policy.is_bound).count();
    assert_eq!((boxes.len(), shown), (stockade_plan::POLICIES.len(), expected));

    browser.run("document.querySelector('.plot').scrollIntoView()");
    let middle = numbers(&browser.run(
        "const { left, top, width, height } = document.querySelector('.u-over').getBoundingClientRect();
         return [Math.round(left + width / 2), Math.round(top + height / 2)]",
    ));
    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    browser.mouse(&[(middle[0] as i64, middle[1] as i64)], false);
    let readout = browser.run("return document.querySelector('.readout').textContent");
    assert!(readout.as_str().is_some_and(|text| text.contains("sieve ") && text.contains(" %")), "{readout}");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn block_is_copied_in_chromium() {
    let (browser, _sandbox) = open("access.log");
    // Without a permission for the clipboard the text is selected.
    let copied = browser.run(
        "return (async () => {
            const button = document.querySelector('.copy');
            button.click();
            const isDone = () => button.textContent === 'Copied' || getSelection().toString();
            while (!isDone()) await new Promise(requestAnimationFrame);
            return isDone();
        })()",
    );
    assert!(copied == true || copied.as_str().is_some_and(|text| text.starts_with("[cache]\n")), "{copied}");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn both_themes_are_readable_in_chromium() {
    let (browser, sandbox) = open("access.log");
    let background = "return getComputedStyle(document.body).backgroundColor";
    let mut backgrounds = Vec::new();
    for theme in ["light", "dark"] {
        let preference = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        browser.devtools("Emulation.setEmulatedMedia", &preference);
        backgrounds.push(browser.run(background));
        let contrast = numbers(&browser.run(CONTRAST));
        assert!(contrast[0] >= 7.0 && contrast[1] >= 4.5 && contrast[2] >= 7.0, "{theme}: {contrast:?}");
        // The axes are redrawn in the colour of the text, in a frame after the change.
        let axis = browser.run(&format!(
            "return (async () => {{
                const isRedrawn = () => {CHARTS}[0].chart.axes[0].stroke() === getComputedStyle(document.body).color;
                for (let frame = 0; frame < 300 && !isRedrawn(); frame++) await new Promise(requestAnimationFrame);
                return isRedrawn();
            }})()"
        ));
        assert_eq!(axis, true, "{theme}");
        assert!(browser.coloured_pixels(".plot").iter().all(|pixels| *pixels > 200), "{theme}");
    }
    browser.picture("plan-dark");
    assert_ne!(backgrounds[0], backgrounds[1]);
    assert!(fs::metadata(sandbox.path().join("plan.html")).is_ok_and(|page| page.len() < 200_000));
    assert_eq!(browser.console(), [""; 0]);
}
