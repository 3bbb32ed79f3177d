//! The caches under comparison, with the settings in `caches/`.

use std::{fs, net::SocketAddr, path::Path};

use stockade_services::{ProgramServer, ServiceError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    Stockade,
    /// Stockade, which speaks HTTP/2 to the origin.
    StockadeH2,
    Nginx,
    Varnish,
}

impl Cache {
    pub const ALL: [Self; 4] = [Self::Stockade, Self::StockadeH2, Self::Nginx, Self::Varnish];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stockade => "Stockade",
            Self::StockadeH2 => "Stockade, HTTP/2",
            Self::Nginx => "nginx",
            Self::Varnish => "Varnish",
        }
    }

    pub fn is_ours(self) -> bool {
        matches!(self, Self::Stockade | Self::StockadeH2)
    }

    /// In front of an origin.
    pub fn start(self, origin: SocketAddr) -> Result<ProgramServer, ServiceError> {
        ProgramServer::start("cache", |folder, port| {
            let (file, text, command) = match self {
                Self::Stockade | Self::StockadeH2 => (
                    "stockade.toml",
                    include_str!("caches/stockade.toml"),
                    format!("{} proxy --config FILE", env!("CARGO_BIN_EXE_stockade")),
                ),
                Self::Nginx => (
                    "nginx.conf",
                    include_str!("caches/nginx.conf"),
                    "/usr/sbin/nginx -p FOLDER -c FILE -e stderr".to_owned(),
                ),
                Self::Varnish => (
                    "varnish.vcl",
                    include_str!("caches/varnish.vcl"),
                    format!(
                        "/usr/sbin/varnishd -F -j none -a 127.0.0.1:{port} -f FILE -n FOLDER/varnish -s malloc,64m \
                         -p thread_pool_min=50"
                    ),
                ),
            };
            let is_h2 = self == Self::StockadeH2;
            let text = text.replace("{{port}}", &port.to_string()).replace("{{origin}}", &origin.to_string());
            let text =
                text.replace("{{host}}", &origin.ip().to_string()).replace("{{http2}}", &is_h2.to_string());
            let text = text.replace("{{origin_port}}", &origin.port().to_string());
            fs::write(folder.join(file), text)?;
            Ok(words(&command, folder, file))
        })
    }
}

/// The words of a command, with the folder and the path of the file.
fn words(command: &str, folder: &Path, file: &str) -> Vec<String> {
    let (file, folder) = (folder.join(file), folder.display().to_string());
    let file = file.display().to_string();
    command.split(' ').map(|word| word.replace("FOLDER", &folder).replace("FILE", &file)).collect()
}
