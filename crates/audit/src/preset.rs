//! Installed servers as caches, with the configuration that their documentation begins with.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crate::{
    control::{Purge, StartedCache},
    template::{Template, TemplateFault, Values},
};
use stockade_model::{named, registry::Registry};
use stockade_services::{ProgramServer, ServiceError, Signal, path_or_name};

/// A server that an audit can start.
pub struct Preset {
    pub name: &'static str,
    pub summary: &'static str,
    /// The signal with which it reloads its configuration.
    reload: Option<Signal>,
    /// The request that removes a page, if its configuration allows one.
    purge: Option<&'static str>,
    /// Its stock configuration, with placeholders.
    stock: &'static str,
    /// Writes the configuration into the folder of the server and returns the command.
    configure: fn(Settings<'_>) -> io::Result<Vec<String>>,
}

named!(Preset, "preset");

/// Each needs its program, which the message about a missing one names.
pub static PRESETS: Registry<Preset> = Registry::new(&[
    Preset {
        name: "nginx",
        summary: "proxy_cache with its defaults (Debian: nginx)",
        reload: Some(Signal::HUP),
        purge: None,
        stock: include_str!("../presets/nginx.conf"),
        configure: nginx,
    },
    Preset {
        name: "varnish",
        summary: "the built-in VCL (Debian: varnish)",
        reload: None,
        purge: None,
        stock: include_str!("../presets/varnish.vcl"),
        configure: varnish,
    },
    Preset {
        name: "haproxy",
        summary: "cache-use and cache-store (Debian: haproxy)",
        reload: None,
        purge: None,
        stock: include_str!("../presets/haproxy.cfg"),
        configure: haproxy,
    },
    Preset {
        name: "squid",
        summary: "an accelerator with its defaults (Debian: squid)",
        reload: Some(Signal::HUP),
        purge: None,
        stock: include_str!("../presets/squid.conf"),
        configure: squid,
    },
    Preset {
        name: "trafficserver",
        summary: "the files of its package (Debian: trafficserver)",
        reload: None,
        purge: None,
        stock: include_str!("../presets/trafficserver.config"),
        configure: traffic_server,
    },
    Preset {
        name: "stockade",
        summary: "stockade proxy with its defaults",
        reload: Some(Signal::HUP),
        purge: Some("PURGE {url}"),
        stock: include_str!("../presets/stockade.toml"),
        configure: stockade,
    },
]);

impl Preset {
    /// Starts the server with its stock configuration.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn start(&self, origin: SocketAddr) -> Result<StartedCache, ServiceError> {
        self.start_with(&Template::stock(self.stock), origin)
    }

    /// Starts the server with this configuration.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn start_with(&self, template: &Template, origin: SocketAddr) -> Result<StartedCache, ServiceError> {
        let configure = |folder: &Path, port| {
            let listen = (Ipv4Addr::LOCALHOST, port).into();
            let text = template.filled(&Values { folder, listen, origin });
            (self.configure)(Settings { folder, listen, text: &text })
        };
        Ok(StartedCache::new(ProgramServer::start(self.name, configure)?, self.reload))
    }

    /// A configuration in place of the stock one.
    ///
    /// # Errors
    /// It has an unknown placeholder, or lacks one.
    pub fn template(&self, text: String) -> Result<Template, TemplateFault> {
        Template::checked(text, self.stock)
    }

    /// The request that removes a page, if its configuration allows one.
    #[must_use]
    pub fn purge(&self) -> Option<Purge> {
        self.purge?.parse().ok()
    }
}

/// The configuration of a server, and its places.
#[derive(Clone, Copy)]
struct Settings<'a> {
    folder: &'a Path,
    listen: SocketAddr,
    text: &'a str,
}

impl Settings<'_> {
    /// Writes the configuration into a file, and returns its path.
    fn written(&self, name: &str) -> io::Result<String> {
        let path = self.folder.join(name);
        fs::write(&path, self.text)?;
        Ok(path.to_string_lossy().into_owned())
    }
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn nginx(settings: Settings<'_>) -> io::Result<Vec<String>> {
    let (file, folder) = (settings.written("nginx.conf")?, settings.folder.to_string_lossy());
    Ok(command(&[path_or_name("/usr/sbin/nginx"), "-p", &folder, "-e", "stderr", "-c", &file]))
}

/// Lines of the VCL file that begin with `# varnishd` have arguments of the program.
fn varnish(settings: Settings<'_>) -> io::Result<Vec<String>> {
    let (file, listen) = (settings.written("varnish.vcl")?, settings.listen.to_string());
    let folder = settings.folder.join("varnish");
    let fixed = ["-F", "-j", "none", "-a", &listen, "-f", &file, "-n", &folder.to_string_lossy()];
    let more = settings.text.lines().filter_map(|line| line.strip_prefix("# varnishd "));
    let words = [path_or_name("/usr/sbin/varnishd")].into_iter().chain(fixed).chain(["-s", "malloc,256m"]);
    Ok(command(&words.chain(more.flat_map(str::split_whitespace)).collect::<Vec<_>>()))
}

fn haproxy(settings: Settings<'_>) -> io::Result<Vec<String>> {
    Ok(command(&[path_or_name("/usr/sbin/haproxy"), "-db", "-f", &settings.written("haproxy.cfg")?]))
}

fn squid(settings: Settings<'_>) -> io::Result<Vec<String>> {
    Ok(command(&[path_or_name("/usr/sbin/squid"), "--foreground", "-f", &settings.written("squid.conf")?]))
}

/// A line `[FILE]` begins the text of a file. The lines of `records.config` are added to those of the package, the others replace them.
fn traffic_server(Settings { folder, text, .. }: Settings<'_>) -> io::Result<Vec<String>> {
    let at = folder.to_string_lossy();
    let [etc, runroot] = ["etc", "runroot.yaml"].map(|name| folder.join(name));
    for name in ["etc", "run", "logs", "cache"] {
        fs::create_dir(folder.join(name))?;
    }
    for file in fs::read_dir("/etc/trafficserver")? {
        let file = file?;
        if file.file_type()?.is_file() {
            fs::copy(file.path(), etc.join(file.file_name()))?;
        }
    }
    let folders = format!(
        "prefix: {at}
exec_prefix: /usr
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: {at}/etc
datadir: {at}/cache
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: {at}
runtimedir: {at}/run
logdir: {at}/logs
cachedir: {at}/cache
"
    );
    fs::write(&runroot, folders)?;
    fs::write(etc.join("storage.config"), format!("{at}/cache 256M\n"))?;
    for (name, lines) in sections(text, "records.config") {
        let is_added = name == "records.config";
        let mut file = OpenOptions::new()
            .create(true)
            .append(is_added)
            .write(true)
            .truncate(!is_added)
            .open(etc.join(Path::new(name).file_name().unwrap_or_default()))?;
        file.write_all(lines.as_bytes())?;
    }
    Ok(command(&["traffic_server", &format!("--run-root={}", runroot.display())]))
}

/// The parts of a text by the names in their first lines, such as `[remap.config]`. `first` is the name of the part without such a line.
fn sections<'a>(text: &'a str, first: &'a str) -> Vec<(&'a str, String)> {
    let mut sections = vec![(first, String::new())];
    for line in text.lines() {
        match line.trim().strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => sections.push((name, String::new())),
            None => sections.iter_mut().next_back().into_iter().for_each(|(_, lines)| {
                lines.push_str(line);
                lines.push('\n');
            }),
        }
    }
    sections
}

/// The proxy of the program that runs the audit.
fn stockade(settings: Settings<'_>) -> io::Result<Vec<String>> {
    let (program, file) = (std::env::current_exe()?, settings.written("stockade.toml")?);
    Ok(command(&[&program.to_string_lossy(), "proxy", "--config", &file]))
}

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Preset").field(&self.name).finish()
    }
}
