//! TLS by rustls: whom to trust, and what is wrong with those whom one cannot.
//!
//! The authorities are those that the machine trusts, as with curl: an origin inside a company has a certificate
//! of the company's own authority, and only the machine knows that. A `ca` in the URL replaces them.

use std::{error::Error, io, panic, path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{net::TcpStream, task::spawn_blocking};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{OpenError, remote::Remote};

/// Whom to believe that they are the server.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    name: ServerName<'static>,
    /// A file of authorities. None: those of the machine.
    ca: Option<PathBuf>,
}

/// Makes connections secret.
pub(super) struct Tls {
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Trust {
    pub(super) fn read(remote: &Remote, host: &str, ca: Option<&str>) -> Result<Self, OpenError> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| remote.wrong("its host is no name that a certificate could have"))?;
        if ca.is_some_and(str::is_empty) {
            return Err(remote.wrong("`ca` names no file"));
        }
        Ok(Self { name, ca: ca.map(PathBuf::from) })
    }

    fn authorities(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let Some(ca) = &self.ca else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("this machine trusts no authority: install ca-certificates, or name a file of \
                            certificates with ca="
                    .to_owned());
            }
            return Ok(roots);
        };
        let wrong = |error: &dyn std::fmt::Display| {
            format!("`ca`: {}: {error}; name a file of certificates in PEM", ca.display())
        };
        for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| wrong(&error))? {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
        if roots.is_empty() { Err(wrong(&"it has no certificate")) } else { Ok(roots) }
    }
}

impl Tls {
    pub(super) async fn new(trust: &Trust) -> Result<Self, String> {
        let own = trust.clone();
        let roots = spawn_blocking(move || own.authorities()).await;
        let roots = roots.unwrap_or_else(|lost| panic::resume_unwind(lost.into_panic()))?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { name: trust.name.clone(), connector: TlsConnector::from(Arc::new(config)) })
    }

    pub(super) async fn connect(&self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        self.connector.connect(self.name.clone(), tcp).await.map_err(|error| explain(&error))
    }
}

/// Why there is no secret connection, and what to do about it.
fn explain(error: &io::Error) -> String {
    use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext};
    let cause = error.get_ref().and_then(|cause| (cause as &(dyn Error + 'static)).downcast_ref());
    match cause {
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "its certificate is for another host: write the name that it is for".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            "its certificate has expired: renew it".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(_)) => {
            format!(
                "its certificate is not trusted ({error}): name a file with that of its authority, ca=FILE"
            )
        }
        _ => format!("no TLS: {error}; check the port, or use the scheme without TLS"),
    }
}
