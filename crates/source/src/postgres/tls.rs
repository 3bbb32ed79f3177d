//! TLS modes of libpq's `sslmode`, with rustls and ring.

use std::{path::Path, str::FromStr};

use rustls::ClientConfig;
use stockade_http::tls::{Trust, TrustError};
use stockade_model::nearest::remedy;
use tokio_postgres::config::SslMode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    /// TLS if the server supports it, without a check of the certificate.
    Prefer,
    /// TLS without a check of the certificate.
    Require,
    /// TLS with a trusted certificate for the host.
    VerifyFull,
}

const TLS_MODES: [(&str, TlsMode); 4] = [
    ("disable", TlsMode::Disable),
    ("prefer", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-full", TlsMode::VerifyFull),
];

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(written: &str) -> Result<Self, String> {
        let known = TLS_MODES.iter().find(|(name, _)| *name == written);
        known.map(|(_, mode)| *mode).ok_or_else(|| {
            let remedy = match written {
                "verify-ca" => "write `verify-full`, which checks the host, too".to_owned(),
                _ => remedy(written, TLS_MODES.map(|(name, _)| name)),
            };
            format!("unknown `sslmode`: {remedy}")
        })
    }
}

impl From<TlsMode> for SslMode {
    fn from(mode: TlsMode) -> Self {
        match mode {
            TlsMode::Disable => Self::Disable,
            TlsMode::Prefer => Self::Prefer,
            TlsMode::Require | TlsMode::VerifyFull => Self::Require,
        }
    }
}

impl TlsMode {
    pub(super) fn requires_tls(self) -> bool {
        matches!(self, Self::Require | Self::VerifyFull)
    }
}

/// The default authorities are those of the system: the certificate of a company's database is often signed by the
/// company's own authority.
pub(super) fn client_config(mode: TlsMode, authorities: Option<&Path>) -> Result<ClientConfig, String> {
    let trust = match (mode, authorities) {
        (TlsMode::VerifyFull, Some(file)) => Trust::File(file.to_owned()),
        (TlsMode::VerifyFull, None) => Trust::System,
        _ => Trust::Insecure,
    };
    trust.client_config().map_err(|error| match error {
        TrustError::NoSystemAuthority => format!("{error}, or name a file with `sslrootcert`"),
        TrustError::File { .. } => format!("`sslrootcert`: {error}"),
        TrustError::Key { .. } | TrustError::Protocol(_) => error.to_string(),
    })
}
