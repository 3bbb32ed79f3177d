//! The server's certificate: generated at start, or read from files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
};

/// Source of the certificate.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// A certificate for `localhost`, 127.0.0.1 and `::1`, generated at every start.
    SelfSigned,
    /// PEM files.
    PemFiles {
        /// The certificate, followed by its chain.
        certificates: PathBuf,
        /// The private key.
        key: PathBuf,
    },
}

/// TLS settings of the listeners.
#[derive(Clone, Debug)]
pub(crate) struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// The certificate in PEM, for clients that have to trust it.
    pub(crate) pem: String,
}

/// A certificate could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read, or does not contain what it should.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// Cause and remedy.
        reason: String,
    },
    /// The key does not belong to the certificate, or rustls does not support one of them.
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
}

impl ServerTls {
    /// Offers HTTP/2 and HTTP/1.1 by ALPN.
    pub(crate) fn new(source: &CertificateSource) -> Result<Self, CertificateError> {
        let unusable = |error: &dyn std::fmt::Display| CertificateError::Unusable(error.to_string());
        let (certificates, key, pem) = match source {
            CertificateSource::SelfSigned => {
                let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
                let CertifiedKey { cert, signing_key } =
                    generate_simple_self_signed(names).map_err(|error| unusable(&error))?;
                let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
                (vec![cert.der().clone()], PrivateKeyDer::from(key), cert.pem())
            }
            CertificateSource::PemFiles { certificates: certificates_path, key: key_path } => {
                let pem = read(certificates_path)?;
                let certificates: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
                let certificates = certificates.ok().filter(|certificates| !certificates.is_empty());
                let certificates = certificates.ok_or_else(|| {
                    file_error(certificates_path, "the file contains no certificate in PEM")
                })?;
                let key_pem = read(key_path)?;
                let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
                    .map_err(|_| file_error(key_path, "the file contains no private key in PEM"))?;
                (certificates, key, pem)
            }
        };
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_no_client_auth();
        let mut config = config.with_single_cert(certificates, key).map_err(|error| unusable(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), pem })
    }
}

fn read(path: &Path) -> Result<String, CertificateError> {
    fs::read_to_string(path).map_err(|error| file_error(path, &format!("cannot read it: {error}")))
}

fn file_error(path: &Path, reason: &str) -> CertificateError {
    CertificateError::File { path: path.display().to_string(), reason: reason.to_owned() }
}
