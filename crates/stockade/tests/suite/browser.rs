//! Chromium, driven by `chromedriver`: the commands of W3C `WebDriver`, and of the `DevTools` protocol.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::running::PATIENCE;

/// A browser without a window. It ends when this is dropped.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

impl Browser {
    pub fn start() -> Self {
        // Each attempt takes another port: the free one of IPv4 may be taken in IPv6, where the driver listens as well, and then it ends.
        let started = (0..10).find_map(|_| start_driver());
        let (driver, address) = started.expect("chromedriver finds a port");
        let mut browser = Self { driver, address, session: String::new() };
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"],
        });
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let session = browser.send("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        session["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        browser
    }

    /// Opens a file without a network: a page that needs another file would fail to get it.
    pub fn open(&self, file: &Path) {
        let offline =
            json!({ "offline": true, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0 });
        self.devtools("Network.enable", &json!({}));
        self.devtools("Network.emulateNetworkConditions", &offline);
        self.visit(&format!("file://{}", file.display()));
    }

    pub fn visit(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// Runs the body of a function in the page and returns its value, also that of a promise.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Moves the mouse over these points of the window, in pixels; with the button down if `is_drag`.
    pub fn mouse(&self, points: &[(i64, i64)], is_drag: bool) {
        let moves =
            points.iter().map(|(x, y)| json!({ "type": "pointerMove", "duration": 50, "x": x, "y": y }));
        let mut actions: Vec<Value> = moves.collect();
        if is_drag {
            actions.insert(1, json!({ "type": "pointerDown", "button": 0 }));
            actions.push(json!({ "type": "pointerUp", "button": 0 }));
        }
        let mouse = json!({ "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" }, "actions": actions });
        self.command("actions", &json!({ "actions": [mouse] }));
    }

    /// The errors and warnings of the page so far.
    pub fn console(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        log.as_array().expect("a log").iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// The page as a PDF, in base64.
    pub fn print(&self) -> String {
        self.command("print", &json!({})).as_str().expect("a PDF").to_owned()
    }

    /// The coloured pixels between the axes of each of these plots; all of them are drawn.
    pub fn coloured_pixels(&self, selector: &str) -> Vec<u64> {
        let counts = self.run(&format!(
            "return [...document.querySelectorAll({selector:?})].map(({{ chart: {{ ctx, bbox }} }}) => {{
                const {{ data }} = ctx.getImageData(bbox.left, bbox.top, bbox.width, bbox.height);
                let coloured = 0;
                for (let at = 0; at < data.length; at += 4) {{
                    const [red, green, blue, alpha] = data.subarray(at, at + 4);
                    if (alpha > 0 && Math.max(red, green, blue) - Math.min(red, green, blue) > 30) coloured += 1;
                }}
                return coloured;
            }})"
        ));
        counts.as_array().expect("plots").iter().map(|count| count.as_u64().expect("a count")).collect()
    }

    /// Keeps a picture of the window as `target/tmp/NAME.png`.
    pub fn picture(&self, name: &str) {
        self.keep_picture(name, &json!({}));
    }

    /// Keeps a picture of the whole page, also of what is not in the window.
    pub fn picture_of_all(&self, name: &str) {
        self.keep_picture(name, &json!({ "captureBeyondViewport": true }));
    }

    fn keep_picture(&self, name: &str, parameters: &Value) {
        let picture = self.devtools("Page.captureScreenshot", parameters);
        let picture = STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("base64");
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png")), picture)
            .expect("it is written");
    }

    /// Waits until each plot that this selects has been drawn, without scrolling to it, and returns their coloured pixels and the texts
    /// of their legends.
    pub fn drawn_plots(&self, selector: &str) -> Vec<(u64, String)> {
        let selector = format!("{selector}:not([hidden])");
        let legends = self.run(&format!(
            "return (async () => {{
                const plots = () => [...document.querySelectorAll({selector:?})];
                const isDrawn = () => plots().length && plots().every((figure) => figure.chart);
                while (!isDrawn()) await new Promise(requestAnimationFrame);
                for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
                return plots().map((figure) => figure.querySelector('.u-legend')?.innerText ?? '');
            }})()"
        ));
        let legends = legends.as_array().expect("plots").iter();
        let legends = legends.map(|legend| legend.as_str().expect("text").to_owned());
        self.coloured_pixels(&selector).into_iter().zip(legends).collect()
    }

    pub fn resize(&self, width: u32, height: u32) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &screen);
    }

    #[track_caller]
    fn command(&self, name: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}/{name}", self.session), body)
    }

    #[track_caller]
    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.exchange(method, path, body).expect("chromedriver answers");
        let value = &answer["value"];
        assert!(value["error"].is_null(), "{path}: {value}");
        value.clone()
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let mut tcp = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        let (body, address) = (body.to_string(), self.address);
        let length = body.len();
        write!(
            tcp,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        // The driver keeps the connection open.
        let mut answer = BufReader::new(tcp);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().map_err(std::io::Error::other)?;
                }
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        serde_json::from_slice(&body).map_err(std::io::Error::from)
    }
}

/// The driver and its address; `None`: it has ended without a port.
fn start_driver() -> Option<(Child, SocketAddr)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver starts");
    let stdout = driver.stdout.take().expect("it is piped");
    let port = BufReader::new(stdout).lines().map_while(Result::ok).find_map(|line| {
        line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
    });
    let Some(port) = port else {
        driver.wait().expect("it has ended");
        return None;
    };
    Some((driver, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser that it started.
        let _ = self.exchange("DELETE", &format!("/session/{}", self.session), &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
