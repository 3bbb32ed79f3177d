//! Servers as child processes on this machine.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use stockade_record::{
    record::Role,
    server::{ServerError, ServerMachine, ServerOrder, StartedServer},
};

use super::{
    HttpError,
    child::Child,
    settings::{start_with_file, start_with_settings},
};
use crate::host::host;

/// Runs servers as child processes.
#[derive(Clone, Debug)]
pub struct ThisMachine {
    /// The program `stockade`, with the commands `origin` and `proxy`.
    pub program: PathBuf,
    /// The address by which others reach the servers.
    pub address: IpAddr,
}

impl ServerMachine for ThisMachine {
    fn start(&self, order: &ServerOrder, folder: &Path) -> Result<Box<dyn StartedServer>, ServerError> {
        let child = match order.role {
            Role::Origin => self.start_origin(order, folder),
            Role::Proxy => self.start_proxy(order, folder),
            Role::Load => {
                Err(ServerError { message: "a load is not a server".to_owned(), is_usage: true }.into())
            }
        };
        child.map(|child| Box::new(child) as Box<dyn StartedServer>).map_err(|error| match error {
            HttpError::Server(error) => error,
            error => ServerError { message: error.to_string(), is_usage: error.is_usage() },
        })
    }

    fn memory_mib(&self) -> u64 {
        host().memory_mib
    }

    fn name(&self) -> Option<&str> {
        None
    }
}

impl ThisMachine {
    fn listen(&self, order: &ServerOrder) -> String {
        order.listen.unwrap_or_else(|| SocketAddr::new(self.address, 0)).to_string()
    }

    /// Its stages start at `/start`.
    fn start_origin(&self, order: &ServerOrder, folder: &Path) -> Result<Child, HttpError> {
        let path = folder.join("origin.json");
        let (recipe, listen) = (path.display().to_string(), self.listen(order));
        let arguments = ["origin", &recipe, "--listen", &listen, "--admin", "127.0.0.1:0", "--hold"];
        let (arguments, program) = (arguments.map(str::to_owned), &self.program);
        start_with_file(Role::Origin, program, &arguments, &path, &order.settings)
    }

    fn start_proxy(&self, order: &ServerOrder, folder: &Path) -> Result<Child, HttpError> {
        let mut settings = Map::from_iter([
            ("listen".to_owned(), json!([self.listen(order)])),
            ("admin".to_owned(), json!({ "listen": "127.0.0.1:0" })),
            ("log".to_owned(), json!({ "format": "none" })),
        ]);
        let written: Map<String, Value> = serde_json::from_str(&order.settings).map_err(|error| {
            ServerError { message: format!("the proxy's settings: {error}"), is_usage: true }
        })?;
        for (key, value) in written {
            match (settings.get_mut(&key), value) {
                // Tables that have keys of the run, too.
                (Some(Value::Object(of_run)), Value::Object(written)) => {
                    let written =
                        written.into_iter().filter(|(key, _)| !of_run.contains_key(key)).collect::<Vec<_>>();
                    of_run.extend(written);
                }
                (_, value) => drop(settings.insert(key, value)),
            }
        }
        start_with_settings(&self.program, &["proxy", "--config"], &settings, &folder.join("proxy.toml"))
    }
}
