//! TLS of a load's connections.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, client::Resumption, sign::SingleCertAndKey};
use stockade_http::tls::with_authorities;
pub use stockade_http::tls::{ClientCertificate, Trust, TrustError};

use crate::settings::ClientOptions;

/// Reads the authorities of the system only if a connection `may_encrypt`. If the system has none, each connection with
/// TLS fails, and the others do not.
pub(crate) fn config(options: &ClientOptions, may_encrypt: bool) -> Result<Arc<ClientConfig>, TrustError> {
    let mut config = match &options.trust {
        Trust::System if !may_encrypt => with_authorities(RootCertStore::empty())?,
        trust => match trust.client_config() {
            Err(TrustError::NoSystemAuthority) => with_authorities(RootCertStore::empty())?,
            config => config?,
        },
    };
    if let Some(certificate) = &options.client_certificate {
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certificate.certified_key()?));
    }
    if !options.keep_alive {
        // Each connection has a full handshake, as the first one of a client.
        config.resumption = Resumption::disabled();
    }
    config.alpn_protocols = vec![if options.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Arc::new(config))
}
