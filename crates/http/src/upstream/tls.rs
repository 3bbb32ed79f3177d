//! TLS of connections to an origin.

use std::sync::Arc;

use crate::tls::{Trust, TrustError};
use rustls::ClientConfig;

use super::settings::{UpstreamSettings, UpstreamSettingsError};

/// Reads files.
pub(super) fn config(settings: &UpstreamSettings) -> Result<Arc<ClientConfig>, UpstreamSettingsError> {
    let trust = settings.ca.clone().map_or(Trust::System, Trust::File);
    let mut config = trust.client_config().map_err(|error| UpstreamSettingsError::Trust {
        reason: match error {
            TrustError::NoSystemAuthority => format!("{error}, or name a file with `ca`"),
            TrustError::File { .. } => format!("ca: {error}"),
            TrustError::Key { .. } | TrustError::Protocol(_) => error.to_string(),
        },
    })?;
    if settings.http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}
