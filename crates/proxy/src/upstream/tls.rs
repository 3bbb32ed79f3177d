//! Whom an origin's connections trust, and what is wrong with those whom they cannot.

use std::{error::Error, io, path::Path, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::settings::{Settings, SettingsError};

/// How connections are encrypted. Reads files.
pub(super) fn config(settings: &Settings) -> Result<Arc<ClientConfig>, SettingsError> {
    let roots = match &settings.ca {
        Some(ca) => of_file(ca)?,
        None => of_machine()?,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError::Trust { reason: error.to_string() })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if settings.http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}

fn of_machine() -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let reason = "this machine trusts no authority: install ca-certificates, or name a file with `ca`";
        return Err(SettingsError::Trust { reason: reason.to_owned() });
    }
    Ok(roots)
}

fn of_file(ca: &Path) -> Result<RootCertStore, SettingsError> {
    let wrong = |error: &dyn std::fmt::Display| SettingsError::Trust {
        reason: format!("ca: {}: {error}; name a file of certificates in PEM", ca.display()),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() { Err(wrong(&"it has no certificate")) } else { Ok(roots) }
}

/// Why a handshake failed, and what to do about it.
pub(super) fn explain(error: &io::Error) -> String {
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
            format!("its certificate is not trusted ({error}): name a file with that of its authority, `ca`")
        }
        _ => format!("no handshake: {error}; check the port and the scheme"),
    }
}
