//! How TLS is spoken, after libpq's `sslmode`: rustls with ring.

use std::{fs, path::Path, str::FromStr, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use stockade_model::nearest::remedy;
use tokio_postgres::config::SslMode;

/// Whether TLS is spoken, and how sure we are with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Never.
    Disable,
    /// If the server does; with whom is not checked.
    Prefer,
    /// Always; with whom is not checked.
    Require,
    /// Always; the certificate has to be one that we trust, and for that host.
    VerifyFull,
}

const MODES: [(&str, Mode); 4] = [
    ("disable", Mode::Disable),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-full", Mode::VerifyFull),
];

impl FromStr for Mode {
    type Err = String;

    fn from_str(written: &str) -> Result<Self, String> {
        let known = MODES.iter().find(|(name, _)| *name == written);
        known.map(|(_, mode)| *mode).ok_or_else(|| {
            let remedy = match written {
                "verify-ca" => "write `verify-full`, which checks the host, too".to_owned(),
                _ => remedy(written, MODES.map(|(name, _)| name)),
            };
            format!("unknown `sslmode`: {remedy}")
        })
    }
}

impl From<Mode> for SslMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Disable => Self::Disable,
            Mode::Prefer => Self::Prefer,
            Mode::Require | Mode::VerifyFull => Self::Require,
        }
    }
}

impl Mode {
    /// Whether nothing is ever said in the clear.
    pub(super) fn is_sure_of_tls(self) -> bool {
        matches!(self, Self::Require | Self::VerifyFull)
    }
}

/// Our end of TLS. Who vouches for the server is read from a file of PEM, or, because databases tend to have
/// certificates of authorities that are known to a company's machines only, from what this machine trusts.
pub(super) fn client(mode: Mode, roots: Option<&Path>) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    if mode != Mode::VerifyFull {
        let anybody = Arc::new(Anybody(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth());
    }
    let roots = roots.map_or_else(of_this_machine, of_file)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn of_this_machine() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let remedy = "install ca-certificates, or name a file with `sslrootcert`";
        return Err(format!("this machine trusts no certificates; {remedy}"));
    }
    Ok(roots)
}

fn of_file(path: &Path) -> Result<RootCertStore, String> {
    let unusable = |reason: String| {
        format!("`sslrootcert`: {}: {reason}; name a file with certificates in PEM", path.display())
    };
    let text = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("it has no certificate".to_owned()));
    }
    Ok(roots)
}

/// Takes any certificate. What is said is encrypted, and whoever is in the way may be the one to whom it is said.
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
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
