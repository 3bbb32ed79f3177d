//! Whom connections trust.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

/// Whose certificates are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those of the system's authorities.
    #[default]
    System,
    /// Those that this file's authorities vouch for, in PEM.
    File(PathBuf),
    /// Everybody's: nobody's name is checked.
    Everybody,
}

/// A file of certificates could not be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct TrustError {
    /// Which.
    pub path: String,
    /// Why, and what to do.
    pub reason: String,
}

/// How connections are encrypted; the system's authorities are read only where any may be.
pub(crate) fn config(
    trust: &Trust,
    is_http2: bool,
    keeps_alive: bool,
    may_encrypt: bool,
) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError { path: "TLS".to_owned(), reason: error.to_string() })?;
    let mut config = match trust {
        Trust::System => {
            let mut roots = RootCertStore::empty();
            if may_encrypt {
                // Without any, nobody is believed, and every request says so.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::File(path) => builder.with_root_certificates(of_file(path)?).with_no_client_auth(),
        Trust::Everybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
    };
    if !keeps_alive {
        // Who wants new connections wants them as strangers make them.
        config.resumption = Resumption::disabled();
    }
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Arc::new(config))
}

fn of_file(path: &std::path::Path) -> Result<RootCertStore, TrustError> {
    let wrong = |reason: String| TrustError { path: path.display().to_string(), reason };
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("no certificate in it: write one in PEM (-----BEGIN CERTIFICATE-----)".to_owned()));
    }
    Ok(roots)
}

/// Believes whatever it is shown, as it was asked to.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
