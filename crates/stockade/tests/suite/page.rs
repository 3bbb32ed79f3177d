//! `report.html` in Chromium.

use serde_json::Value;

use crate::{browser::Browser, support::Sandbox};

/// Two arms in virtual time, with an outage.
const EXPERIMENT: &str = r#"
title = "A source `fails` </script>"
[target]
kind = "engine"
[origin]
source = "simulated:50"
latency = "20ms"
stage = [{ at = "20s", state = "refusing" }, { at = "40s", state = "up" }]
[cache]
ttl = "2s"
[load]
rate = "200/s"
duration = "1m"
[[arm]]
name = "simple"
cache.strategy = "simple"
[[arm]]
name = "fallback"
cache.strategy = "fallback"
[[hypothesis]]
text = "stale answers bridge the outage"
expect = ["fallback.failed == 0", "simple.failed > 0"]
"#;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("numbers").iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// Opens the report, which has drawn all of its plots, also those out of view.
fn open() -> (Browser, Sandbox) {
    let sandbox = Sandbox::new();
    let file = sandbox.file("source.toml", EXPERIMENT);
    let run = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let browser = Browser::start();
    browser.open(&sandbox.path().join("record/report.html"));
    let drawn = browser.drawn_plots("figure[data-plot]");
    browser.picture_of_all("report");
    assert!(drawn.len() >= 6 && drawn.iter().all(|(pixels, _)| *pixels > 200), "{drawn:?}");
    // The last second, and not a dash, while there is no crosshair.
    for (_, legend) in drawn.iter().filter(|(_, legend)| legend.contains("seconds")) {
        assert!(legend.starts_with("seconds0:59"), "{legend}");
    }
    (browser, sandbox)
}

/// Middle, left and right of a plot's area in the window, after scrolling to it.
fn area(browser: &Browser, plot: usize) -> Vec<(i64, i64)> {
    let script = format!(
        "const figure = document.querySelectorAll('figure[data-plot]')[{plot}];
         figure.scrollIntoView({{ block: 'center' }});
         const {{ left, top, width, height }} = figure.querySelector('.u-over').getBoundingClientRect();
         return [0.5, 0.25, 0.75].flatMap((share) => [left + width * share, top + height / 2]);"
    );
    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    let pixels: Vec<i64> = numbers(&browser.run(&script)).iter().map(|pixel| pixel.round() as i64).collect();
    pixels.chunks(2).map(|point| (point[0], point[1])).collect()
}

fn span(browser: &Browser, plot: usize) -> f64 {
    let script = format!(
        "const {{ min, max }} = document.querySelectorAll('figure[data-plot]')[{plot}].chart.scales.x; return max - min;"
    );
    browser.run(&script).as_f64().expect("a number")
}

#[test]
fn plots_are_drawn_offline_in_chromium() {
    let (browser, _sandbox) = open();
    assert_eq!(browser.run("return performance.getEntriesByType('resource').length"), 0, "no other file");
    let title = browser.run("return document.querySelector('h1').innerHTML");
    assert_eq!(title, "A source <code>fails</code> &lt;/script&gt;");
    let stages = browser.run(
        "return document.querySelector('main > script').textContent.match(/\"behavior\":\"[^\"]*\"/g).slice(0, 1)",
    );
    assert_eq!(stages[0], "\"behavior\":\"refusing\"");
    assert!(browser.print().starts_with("JVBERi"), "base64 of %PDF-");
    for (width, height) in [(375, 800), (2_560, 1_400), (1_300, 900)] {
        browser.resize(width, height);
        let widest = browser.run("return document.documentElement.scrollWidth").as_f64().expect("a number");
        assert!(widest <= f64::from(width), "{widest} px of {width}");
    }
    assert_eq!(browser.console(), [""; 0]);
}

/// As a forge shows them.
#[test]
fn pictures_of_the_markdown_report_are_images_in_chromium() {
    let (browser, sandbox) = open();
    let plots = sandbox.path().join("record/plots");
    for (name, lines) in [("1-requests.svg", 4), ("1-response.svg", 2)] {
        // An error in the XML would be an element.
        browser.open(&plots.join(name));
        let names = browser.run(
            "const names = [...document.querySelectorAll('*')].map((element) => element.localName);
             return [...new Set(names)].sort().join(' ')",
        );
        assert_eq!(names, "path rect svg text title", "{name}");
        let drawn = browser.run(
            "return [...document.querySelectorAll('path[stroke-linejoin]')]
                .filter((path) => path.getBBox().width > 600).length",
        );
        assert_eq!(drawn, lines, "{name}");
        let texts = browser.run("return document.documentElement.textContent");
        assert!(texts.as_str().expect("text").contains("refusing"), "{texts}");
        // Every text stands within the picture.
        let outside = browser.run(
            "return [...document.querySelectorAll('text')].filter((text) => {
                const { x, width, y, height } = text.getBBox();
                return x < 0 || x + width > 800 || y + height > document.documentElement.height.baseVal.value;
            }).length",
        );
        assert_eq!(outside, 0, "{name}");
    }
}

#[test]
fn plots_share_crosshair_zoom_and_arms_in_chromium() {
    let (browser, _sandbox) = open();
    let points = area(&browser, 0);
    browser.mouse(&points[..1], false);
    let at = numbers(&browser.run("return [...document.querySelectorAll('figure[data-plot]')].slice(0, 2).map((figure) => figure.chart.cursor.idx)"));
    assert!((25.0..35.0).contains(&at[0]) && (at[0] - at[1]).abs() < 0.5, "{at:?}");
    let legend = browser.run("return document.querySelector('figure[data-plot] .u-legend').innerText");
    assert!(legend.as_str().expect("text").contains("simple requests"), "{legend}");

    let whole = span(&browser, 0);
    browser.mouse(&points[1..], true);
    let zoomed = [span(&browser, 0), span(&browser, 1)];
    assert!(
        (zoomed[0] - whole / 2.0).abs() < 2.0 && (zoomed[0] - zoomed[1]).abs() < 0.1,
        "{zoomed:?} of {whole}"
    );
    let press = |key: &str| {
        let script = format!(
            "document.querySelector('figure[data-plot] [tabindex]').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', cancelable: true }}))"
        );
        browser.run(&script);
    };
    press("0");
    assert!((span(&browser, 0) - whole).abs() < 0.1);
    press("End");
    press("ArrowLeft");
    assert_eq!(browser.run("return document.querySelector('figure[data-plot]').chart.cursor.idx"), 58);

    let shown = "return document.querySelector('figure[data-plot]').chart.series.map((line) => line.show)";
    assert_eq!(browser.run(shown).to_string(), "[true,true,true,true,true]");
    browser.run("document.querySelector('[data-arm=\"0\"]').click()");
    assert_eq!(browser.run(shown).to_string(), "[true,false,true,false,true]");
    let background = "return getComputedStyle(document.body).backgroundColor";
    let before = browser.run(background);
    browser.run("const theme = document.getElementById('theme'); theme.value = 'dark'; theme.dispatchEvent(new Event('change'))");
    let dark = browser.run(background);
    browser.run("const theme = document.getElementById('theme'); theme.value = 'light'; theme.dispatchEvent(new Event('change'))");
    assert_ne!(dark, browser.run(background), "{before}");
    // Without a permission for the clipboard the text is selected.
    let copied = browser.run(
        "return (async () => {
            const button = document.querySelector('[data-copy]');
            button.click();
            const isDone = () => button.textContent === 'copied' || getSelection().toString();
            while (!isDone()) await new Promise(requestAnimationFrame);
            return isDone();
        })()",
    );
    assert!(copied == true || copied.as_str().is_some_and(|text| text.starts_with("[cache]\n")), "{copied}");
    browser.run("const select = document.querySelector('figure[data-plot] select'); select.selectedIndex = 1; select.dispatchEvent(new Event('change'))");
    assert_eq!(browser.console(), [""; 0]);
}
