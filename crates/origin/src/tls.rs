//! A certificate, given or made at start.

use std::{fs, path::Path, sync::Arc};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
};

/// Who the origin says it is.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A certificate for `localhost`, 127.0.0.1 and `::1`, signed by nobody else, new with every start.
    Made,
    /// What these files in PEM hold.
    Given {
        /// The certificate, and those that vouch for it.
        certificates: std::path::PathBuf,
        /// Its key.
        key: std::path::PathBuf,
    },
}

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    /// The certificate in PEM, for who wants to trust it.
    pub pem: String,
}

/// A certificate could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read, or has no such thing in it.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Certificate and key are no pair, or of a kind that nobody knows.
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
}

impl Tls {
    /// For HTTP/2 and HTTP/1.1, as the client prefers.
    pub fn new(identity: &Identity) -> Result<Self, TlsError> {
        let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable(error.to_string());
        let (certificates, key, pem) = match identity {
            Identity::Made => {
                let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
                let CertifiedKey { cert, signing_key } =
                    generate_simple_self_signed(names).map_err(|error| unusable(&error))?;
                let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
                (vec![cert.der().clone()], PrivateKeyDer::from(key), cert.pem())
            }
            Identity::Given { certificates, key } => {
                let pem = read(certificates)?;
                let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
                let found = found.ok().filter(|found| !found.is_empty());
                let found =
                    found.ok_or_else(|| wrong(certificates, "there is no certificate in PEM in it"))?;
                let key_pem = read(key)?;
                let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
                    .map_err(|_| wrong(key, "there is no key in PEM in it"))?;
                (found, key, pem)
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

fn read(path: &Path) -> Result<String, TlsError> {
    fs::read_to_string(path).map_err(|error| wrong(path, &format!("cannot read it: {error}")))
}

fn wrong(path: &Path, reason: &str) -> TlsError {
    TlsError::File { path: path.display().to_string(), reason: reason.to_owned() }
}
