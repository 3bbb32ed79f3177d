//! TLS of connections to an HTTP server.
//!
//! The default authorities are those of the system: the certificate of a company's server is often signed by the company's
//! own authority. `ca` in the URL replaces them.

use std::{panic, path::PathBuf, sync::Arc};

use rustls::pki_types::ServerName;
use stockade_http::tls::{HandshakeFailure, Trust, TrustError};
use tokio::{net::TcpStream, task::spawn_blocking};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{OpenError, remote::Remote};

/// The TLS settings of a URL.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    server_name: ServerName<'static>,
    trust: Trust,
}

pub(super) struct TlsHandshake {
    server_name: ServerName<'static>,
    connector: TlsConnector,
}

impl TlsSettings {
    pub(super) fn parse(remote: &Remote, host: &str, ca: Option<&str>) -> Result<Self, OpenError> {
        let server_name = ServerName::try_from(host.to_owned());
        let server_name =
            server_name.map_err(|_| remote.invalid("its host is no name that a certificate could have"))?;
        if ca.is_some_and(str::is_empty) {
            return Err(remote.invalid("`ca` names no file"));
        }
        Ok(Self { server_name, trust: ca.map_or(Trust::System, |ca| Trust::File(PathBuf::from(ca))) })
    }
}

impl TlsHandshake {
    /// Reads the authorities.
    pub(super) async fn new(settings: &TlsSettings) -> Result<Self, String> {
        let TlsSettings { server_name, trust } = settings.clone();
        let config = spawn_blocking(move || trust.client_config()).await;
        let config = config.unwrap_or_else(|lost| panic::resume_unwind(lost.into_panic()));
        let config = config.map_err(|error| match error {
            TrustError::NoSystemAuthority => format!("{error}, or name a file of certificates with ca="),
            TrustError::File { .. } => format!("`ca`: {error}"),
            TrustError::Key { .. } | TrustError::Protocol(_) => error.to_string(),
        })?;
        Ok(Self { server_name, connector: TlsConnector::from(Arc::new(config)) })
    }

    pub(super) async fn connect(&self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let connection = self.connector.connect(self.server_name.clone(), tcp).await;
        connection.map_err(|error| HandshakeFailure::explain(&error, "ca=FILE"))
    }
}
