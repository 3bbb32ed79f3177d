//! The certificates that a client accepts: rustls with ring, TLS 1.2 and 1.3.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};

/// The certificates that a client accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Certificates of the authorities that the system trusts.
    #[default]
    System,
    /// Certificates of the authorities in this file (PEM).
    File(PathBuf),
    /// Certificates of the authorities in this text (PEM).
    Pem(Arc<[u8]>),
    /// Every certificate, unchecked: the connection is encrypted, the identity of the server is not checked.
    Insecure,
}

/// There is no certificate authority to trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the system has no trusted certificate authority: install ca-certificates")]
    NoSystemAuthority,
    #[error("{}: {reason}; name a file of certificates in PEM", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{}: {reason}; name a file with the private key of --cert in PEM, without a passphrase", path.display())]
    Key { path: PathBuf, reason: String },
    #[error("TLS is not available: {0}")]
    Protocol(rustls::Error),
}

/// The files of a certificate for servers that ask their clients for one, and of its private key (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, and after it those of authorities below the one that the server knows.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl ClientCertificate {
    /// Reads both files, and checks that they belong together.
    pub fn certified_key(&self) -> Result<CertifiedKey, TrustError> {
        let Self { certificate, key } = self;
        let of_certificate = |reason: String| TrustError::File { path: certificate.clone(), reason };
        let of_key = |reason: String| TrustError::Key { path: key.clone(), reason };
        let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| of_certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(of_certificate("it contains no certificate".to_owned()));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
            pem::Error::NoItemsFound => of_key("it contains no private key".to_owned()),
            error => of_key(error.to_string()),
        })?;
        CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                of_key(format!("it is not the key of {}", certificate.display()))
            }
            error => of_key(error.to_string()),
        })
    }
}

impl Trust {
    /// A configuration without client certificate and without ALPN. Reads files.
    pub fn client_config(&self) -> Result<ClientConfig, TrustError> {
        let invalid = |path: &Path, reason| TrustError::File { path: path.to_owned(), reason };
        match self {
            Self::System => with_authorities(system_authorities()?),
            Self::File(path) => {
                let text = std::fs::read(path).map_err(|error| invalid(path, error.to_string()))?;
                with_authorities(pem_authorities(&text).map_err(|reason| invalid(path, reason))?)
            }
            Self::Pem(text) => {
                let name = Path::new("the trusted certificates");
                with_authorities(pem_authorities(text).map_err(|reason| invalid(name, reason))?)
            }
            Self::Insecure => {
                let provider = Arc::new(ring::default_provider());
                let verifier = Arc::new(AcceptAll(Arc::clone(&provider)));
                let builder = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .map_err(TrustError::Protocol)?;
                Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
            }
        }
    }
}

/// A configuration that accepts certificates of these authorities alone.
pub fn with_authorities(authorities: RootCertStore) -> Result<ClientConfig, TrustError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Protocol)?;
    Ok(builder.with_root_certificates(authorities).with_no_client_auth())
}

fn system_authorities() -> Result<RootCertStore, TrustError> {
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if authorities.is_empty() { Err(TrustError::NoSystemAuthority) } else { Ok(authorities) }
}

/// The error is the reason.
fn pem_authorities(text: &[u8]) -> Result<RootCertStore, String> {
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        authorities.add(certificate).map_err(|error| error.to_string())?;
    }
    if authorities.is_empty() {
        return Err("it contains no certificate".to_owned());
    }
    Ok(authorities)
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The certificate is for another host.
    OtherHost,
    Expired,
    /// No trusted authority signed the certificate, or it is invalid.
    Untrusted,
    /// The server does not use TLS, or no common version or cipher.
    Protocol,
}

impl HandshakeFailure {
    #[must_use]
    pub fn classify(error: &io::Error) -> Self {
        use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext};
        let cause = error.get_ref().and_then(|cause| (cause as &(dyn Error + 'static)).downcast_ref());
        match cause {
            Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Self::OtherHost
            }
            Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => Self::Expired,
            Some(rustls::Error::InvalidCertificate(_)) => Self::Untrusted,
            _ => Self::Protocol,
        }
    }

    /// Cause and remedy. `setting` names the file of authorities: `ca=FILE`.
    #[must_use]
    pub fn explain(error: &io::Error, setting: &str) -> String {
        match Self::classify(error) {
            Self::OtherHost => {
                "its certificate is for another host: write the name that it is for".to_owned()
            }
            Self::Expired => "its certificate has expired: renew it".to_owned(),
            Self::Untrusted => {
                format!("its certificate is not trusted ({error}): name a file with its authority, {setting}")
            }
            Self::Protocol => format!("no TLS: {error}; check the port and the scheme"),
        }
    }
}

/// Accepts every certificate. Signatures of the handshake are checked.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
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
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_authorities_has_a_certificate() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        std::fs::write(path("authority.pem"), key.cert.pem()).expect("written");
        std::fs::write(path("text.pem"), "no certificate").expect("written");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(path("broken.pem"), broken).expect("written");
        assert!(Trust::File(path("authority.pem")).client_config().is_ok());
        for (name, reason) in [
            ("absent.pem", "No such file or directory (os error 2); name a file of certificates in PEM"),
            ("text.pem", "it contains no certificate; name a file of certificates in PEM"),
            ("broken.pem", "invalid peer certificate: BadEncoding; name a file of certificates in PEM"),
        ] {
            let error = Trust::File(path(name)).client_config().expect_err(name).to_string();
            assert_eq!(error, format!("{}: {reason}", path(name).display()));
        }
    }

    #[test]
    fn insecure_trust_needs_no_authority() {
        assert!(Trust::Insecure.client_config().is_ok());
        assert!(with_authorities(RootCertStore::empty()).is_ok());
    }

    #[test]
    fn handshake_failures_have_a_remedy() {
        let tls = |error: CertificateError| io::Error::other(rustls::Error::InvalidCertificate(error));
        for (error, failure, remedy) in [
            (tls(CertificateError::NotValidForName), HandshakeFailure::OtherHost, "write the name"),
            (tls(CertificateError::Expired), HandshakeFailure::Expired, "renew it"),
            (tls(CertificateError::UnknownIssuer), HandshakeFailure::Untrusted, "its authority, ca=FILE"),
            (io::Error::other("eof"), HandshakeFailure::Protocol, "no TLS: eof; check the port"),
        ] {
            assert_eq!(HandshakeFailure::classify(&error), failure);
            let message = HandshakeFailure::explain(&error, "ca=FILE");
            assert!(message.contains(remedy), "{message}");
        }
    }
}
