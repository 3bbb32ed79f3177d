//! Stock servers and frameworks as origins, each with the small app of `apps/README.md`: a file each.

mod apache;
mod django;
mod express;
mod go;
mod next;
mod nginx;
mod rails;
mod tomcat;
mod wordpress;

use std::{
    fmt::{Debug, Formatter, Result as FmtResult},
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;

use crate::{RunningServer, ServiceError, process::run};

/// The size of `/static/photo.bin`.
const PHOTO_BYTES: u32 = 256 * 1024;

/// A kind of origin.
#[derive(Clone, Copy)]
pub struct Stack {
    pub name: &'static str,
    /// Its folder in `apps`.
    app: &'static str,
    /// Programs and files without which it cannot run.
    needs: &'static [&'static str],
    /// A shell command that prints the versions of its parts; `$0` is its folder.
    version: &'static str,
    start: fn() -> Result<StackServer, ServiceError>,
}

/// All stacks. `make test` has the first four.
pub const STACKS: [Stack; 9] = [
    nginx::STACK,
    apache::STACK,
    django::STACK,
    express::STACK,
    go::STACK,
    tomcat::STACK,
    wordpress::STACK,
    rails::STACK,
    next::STACK,
];

/// A running origin. A drop stops it, and then the servers that it needs.
#[derive(Debug)]
pub struct StackServer {
    server: RunningServer,
    /// Servers that it needs.
    #[expect(dead_code, reason = "they run as long as it does")]
    others: Vec<RunningServer>,
    /// Where it speaks HTTP/2 by prior knowledge, if it does.
    h2_port: Option<u16>,
    /// Reloads it without a pause, if it can.
    reload: Option<Signal>,
}

impl Debug for Stack {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str(self.name)
    }
}

impl Stack {
    /// The stack with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        STACKS.into_iter().find(|stack| stack.name == name)
    }

    /// The first of its parts that is not installed. Relative paths are below its folder.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        self.needs.iter().copied().find(|path| !app_folder(self.app).join(path).exists())
    }

    /// The versions of its parts.
    pub fn version(&self) -> Result<String, ServiceError> {
        run(Command::new("sh").args(["-c", self.version]).arg(app_folder(self.app)))
    }

    pub fn start(&self) -> Result<StackServer, ServiceError> {
        (self.start)()
    }
}

impl StackServer {
    /// Without other servers, HTTP/2 and reloads.
    fn new(server: RunningServer) -> Self {
        Self { server, others: Vec::new(), h2_port: None, reload: None }
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.port()).into()
    }

    /// Where it speaks HTTP/2 by prior knowledge, if it does.
    #[must_use]
    pub fn h2_address(&self) -> Option<SocketAddr> {
        self.h2_port.map(|port| (Ipv4Addr::LOCALHOST, port).into())
    }

    /// True if the stack reloads without a pause.
    #[must_use]
    pub fn can_reload(&self) -> bool {
        self.reload.is_some()
    }

    /// Reloads it, if it can.
    pub fn reload(&self) {
        if let (Some(signal), Some(process)) = (self.reload, self.server.process()) {
            process.signal(signal);
        }
    }

    /// The lines of its access log: `METHOD TARGET STATUS PROTOCOL`.
    pub fn access_log(&self) -> Result<Vec<String>, ServiceError> {
        let text = fs::read_to_string(self.server.folder().join("access.log"))?;
        Ok(text.lines().map(plain_line).collect())
    }
}

/// A line of the common log format in the form of [`StackServer::access_log`]; others as they are.
fn plain_line(line: &str) -> String {
    let parts: Vec<&str> = line.split('"').collect();
    let [_, request, status, ..] = parts[..] else { return line.to_owned() };
    let words: Vec<&str> = request.split(' ').collect();
    let [method, target, protocol] = words[..] else { return line.to_owned() };
    let status = status.split_whitespace().next().unwrap_or_default();
    format!("{method} {target} {status} {protocol}")
}

/// The folder of an app in the repository.
fn app_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("apps").join(name)
}

/// A folder with a copy of the app, readable for the users that servers change to, and a port.
/// `{{port}}`, `{{folder}}` and `more` are replaced in the files of configuration.
fn with_app(name: &str, more: &[(&str, String)]) -> Result<RunningServer, ServiceError> {
    let server = RunningServer::new(name)?;
    let folder = server.folder();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let mut values = vec![
        ("port", server.port().to_string()),
        ("folder", folder.display().to_string()),
        ("app", app_folder(name).display().to_string()),
    ];
    values.extend_from_slice(more);
    copy(&app_folder(name), folder, &values)?;
    Ok(server)
}

/// Copies a folder, without the packages and the program that were installed into it.
fn copy(from: &Path, to: &Path, values: &[(&str, String)]) -> Result<(), ServiceError> {
    for entry in fs::read_dir(from)? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let target = to.join(&name);
        if entry.is_dir() {
            if name != "node_modules" && name != "bin" {
                fs::create_dir_all(&target)?;
                copy(&entry, &target, values)?;
            }
        } else if entry.extension().is_some_and(|extension| extension == "conf" || extension == "xml") {
            let text = fs::read_to_string(&entry)?;
            let text = values
                .iter()
                .fold(text, |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value));
            fs::write(target, text)?;
        } else {
            fs::copy(&entry, target)?;
        }
    }
    Ok(())
}

/// Writes the files of `/static/` into a folder.
fn write_static_files(folder: &Path) -> Result<(), ServiceError> {
    fs::create_dir_all(folder)?;
    let rules = (0..200).map(|number| format!(".column-{number} {{ width: {number}px; color: #102030; }}\n"));
    fs::write(folder.join("style.css"), rules.collect::<String>())?;
    fs::write(folder.join("photo.bin"), photo())?;
    Ok(())
}

/// The content of `/static/photo.bin`.
#[must_use]
pub fn photo() -> Vec<u8> {
    (0..PHOTO_BYTES).map(|at| (at * 31 / 7).to_le_bytes()[0]).collect()
}
