//! Certificates, and how they are replaced while connections go on.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// Who a front says it is: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those that vouch for it.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A certificate could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read, or has no such thing in it.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Certificate and key are no pair, or of a kind that nobody knows.
    #[error("the certificate in {} cannot be used: {reason}", path.display())]
    Unusable {
        /// Where the certificate is.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is nothing to reload.
    #[error("connections are not encrypted: there is no certificate")]
    None,
}

/// A certificate and its key, as connections need them: they are a pair.
#[derive(Clone, Debug)]
pub struct Certified(Arc<ServerConfig>);

impl Certified {
    /// Reads the files.
    pub fn read(identity: &Identity) -> Result<Self, TlsError> {
        read(identity).map(|config| Self(Arc::new(config)))
    }
}

/// How connections are encrypted, now.
#[derive(Debug)]
pub(super) struct Tls {
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    pub(super) fn new(identity: &Identity) -> Result<Self, TlsError> {
        let Certified(config) = Certified::read(identity)?;
        Ok(Self { config: ArcSwap::new(config) })
    }

    /// For a connection that begins now.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// For connections from now on.
    pub(super) fn put(&self, Certified(config): Certified) {
        self.config.store(config);
    }
}

/// For TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, as the client prefers.
fn read(identity: &Identity) -> Result<ServerConfig, TlsError> {
    let unusable = |error: rustls::Error| TlsError::Unusable {
        path: identity.certificates.clone(),
        reason: error.to_string(),
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(&identity.certificates)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&identity.certificates, error.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong(&identity.certificates, "there is no certificate in PEM in it".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&identity.key)
        .map_err(|error| wrong(&identity.key, error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        // It refuses a key that is not the certificate's.
        .with_single_cert(certificates, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Sessions resume on whichever thread they come to, and cost no memory here.
    config.ticketer = ring::Ticketer::new().map_err(unusable)?;
    Ok(config)
}

fn wrong(path: &Path, reason: String) -> TlsError {
    TlsError::File { path: path.to_owned(), reason }
}
