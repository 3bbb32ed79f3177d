//! Stock web servers that serve a folder, as origins. Each ignores or reads the content of a request in its own way.

use std::{error::Error, fs, path::Path, process::Command};

use crate::proxies::Proxy;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The file of other clients, and that of the attacker. The content of a file is its name.
pub const VICTIM: &str = "victim";
pub const EVIL: &str = "evil";

/// A kind of web server.
pub struct RealOrigin {
    pub name: &'static str,
    /// Prints its version; a program that cannot be started is not installed.
    version: &'static [&'static str],
    /// Writes its files into a folder, and returns its command for an address. The folder `www` has the files.
    command: fn(&Path, &str) -> Result<Vec<String>>,
}

/// An installed web server.
pub struct InstalledOrigin {
    pub name: &'static str,
    pub version: String,
    command: fn(&Path, &str) -> Result<Vec<String>>,
}

pub const REAL_ORIGINS: [RealOrigin; 6] = [
    RealOrigin { name: "Python http.server", version: &["python3", "--version"], command: python },
    RealOrigin { name: "Node.js http", version: &["node", "--version"], command: node },
    RealOrigin { name: "Go net/http", version: &["go", "version"], command: go },
    RealOrigin { name: "Apache", version: &["apache2", "-v"], command: apache },
    RealOrigin { name: "nginx", version: &["nginx", "-v"], command: nginx },
    RealOrigin { name: "PHP", version: &["php", "--version"], command: php },
];

impl RealOrigin {
    /// `None`: it is not installed.
    pub fn find(&self, folder: &Path) -> Result<Option<InstalledOrigin>> {
        let Ok(output) = Command::new(self.version[0]).args(&self.version[1..]).output() else {
            return Ok(None);
        };
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let version = printed.lines().next().unwrap_or_default().trim().to_owned();
        let www = folder.join("www");
        fs::create_dir_all(&www)?;
        for name in [VICTIM, EVIL] {
            fs::write(www.join(name), name)?;
        }
        Ok(Some(InstalledOrigin { name: self.name, version, command: self.command }))
    }
}

impl InstalledOrigin {
    /// Starts it, and waits until it listens. `folder` is for this process alone; its parent has `www`.
    pub fn start(&self, folder: &Path, address: &'static str) -> Result<Proxy> {
        fs::create_dir_all(folder)?;
        let command = (self.command)(folder, address)?;
        let run = format!("exec {} > {}/log 2>&1", command.join(" "), folder.display());
        Proxy::start_anywhere(self.name, address, &["sh", "-c", &run])
    }
}

fn www(folder: &Path) -> String {
    folder.parent().unwrap_or(folder).join("www").display().to_string()
}

fn split(address: &str) -> Result<(&str, &str)> {
    Ok(address.split_once(':').ok_or("an address without a port")?)
}

/// HTTP/1.1, as with `--protocol HTTP/1.1`: it leaves the content of a GET or HEAD on the connection.
fn python(folder: &Path, address: &str) -> Result<Vec<String>> {
    let (host, port) = split(address)?;
    let arguments = ["-m", "http.server", port, "--bind", host, "--protocol", "HTTP/1.1", "--directory"];
    Ok(["python3"].into_iter().chain(arguments).map(str::to_owned).chain([www(folder)]).collect())
}

fn node(folder: &Path, address: &str) -> Result<Vec<String>> {
    let (host, port) = split(address)?;
    let program = folder.join("server.js");
    let text = format!(
        "require('http').createServer((request, response) => {{\n  \
         const name = new URL(request.url, 'http://a').pathname.slice(1);\n  \
         response.setHeader('Cache-Control', 'max-age=60');\n  response.end(name);\n}}).listen({port}, '{host}');\n"
    );
    fs::write(&program, text)?;
    Ok(vec!["node".to_owned(), program.display().to_string()])
}

fn go(folder: &Path, address: &str) -> Result<Vec<String>> {
    let (program, binary) = (folder.join("server.go"), folder.join("server"));
    let text = format!(
        "package main\n\nimport \"net/http\"\n\nfunc main() {{\n\t\
         panic(http.ListenAndServe(\"{address}\", http.FileServer(http.Dir(\"{}\"))))\n}}\n",
        www(folder)
    );
    fs::write(&program, text)?;
    let built = Command::new("go").arg("build").arg("-o").arg(&binary).arg(&program).status()?;
    if !built.success() {
        return Err("the Go origin cannot be built".into());
    }
    Ok(vec![binary.display().to_string()])
}

fn apache(folder: &Path, address: &str) -> Result<Vec<String>> {
    let root = folder.display();
    let file = folder.join("apache.conf");
    let modules = "/usr/lib/apache2/modules";
    let text = format!(
        "ServerName a.test\nServerRoot {root}\nDefaultRuntimeDir {root}\nPidFile {root}/apache.pid\nListen {address}\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         ErrorLog {root}/error.log\nDocumentRoot {www}\n\
         <Directory {www}>\n    Require all granted\n</Directory>\n",
        www = www(folder)
    );
    fs::write(&file, text)?;
    Ok(["apache2", "-f", &file.display().to_string(), "-DFOREGROUND"].map(str::to_owned).into())
}

fn nginx(folder: &Path, address: &str) -> Result<Vec<String>> {
    let root = folder.display();
    let file = folder.join("nginx.conf");
    let text = format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid {root}/nginx.pid;\nerror_log {root}/error.log;\nevents {{}}\n\
         http {{\n    access_log off;\n    server {{\n        listen {address};\n        root {};\n    }}\n}}\n",
        www(folder)
    );
    fs::write(&file, text)?;
    Ok(["nginx", "-c", &file.display().to_string()].map(str::to_owned).into())
}

#[expect(clippy::unnecessary_wraps, reason = "the starts of all origins have one type")]
fn php(folder: &Path, address: &str) -> Result<Vec<String>> {
    Ok(["php", "-S", address, "-t", &www(folder)].map(str::to_owned).into())
}
