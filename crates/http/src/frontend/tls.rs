//! Server certificates, which can be replaced while connections are open.

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

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then its intermediates.
    pub certificates: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum CertificateLoadError {
    /// A file cannot be read, or holds no certificate or key.
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// The key does not match the certificate, or its kind is unknown.
    #[error("the certificate in {} cannot be used: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error("TLS listeners need a certificate, and none is configured")]
    NotConfigured,
}

/// A certificate with its matching key.
#[derive(Clone, Debug)]
pub struct ServerCertificate(Arc<ServerConfig>);

impl ServerCertificate {
    pub fn load(files: &CertificateFiles) -> Result<Self, CertificateLoadError> {
        server_config(files).map(|config| Self(Arc::new(config)))
    }
}

/// The TLS configuration of new connections.
#[derive(Debug)]
pub(super) struct TlsConfig {
    current: ArcSwap<ServerConfig>,
}

impl TlsConfig {
    pub(super) fn load(files: &CertificateFiles) -> Result<Self, CertificateLoadError> {
        let ServerCertificate(config) = ServerCertificate::load(files)?;
        Ok(Self { current: ArcSwap::new(config) })
    }

    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Open connections keep the certificate that they began with.
    pub(super) fn replace(&self, ServerCertificate(config): ServerCertificate) {
        self.current.store(config);
    }
}

/// TLS 1.2 and 1.3; HTTP/2 and HTTP/1.1 by ALPN.
fn server_config(files: &CertificateFiles) -> Result<ServerConfig, CertificateLoadError> {
    let unusable = |error: rustls::Error| CertificateLoadError::Unusable {
        path: files.certificates.clone(),
        reason: error.to_string(),
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect)
        .map_err(|error| file_error(&files.certificates, error.to_string()))?;
    if certificates.is_empty() {
        return Err(file_error(&files.certificates, "the file holds no certificate in PEM".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| file_error(&files.key, error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        // It rejects a key that does not match the certificate.
        .with_single_cert(certificates, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets let sessions resume on any thread, and hold no memory here.
    config.ticketer = ring::Ticketer::new().map_err(unusable)?;
    Ok(config)
}

fn file_error(path: &Path, reason: String) -> CertificateLoadError {
    CertificateLoadError::File { path: path.to_owned(), reason }
}
