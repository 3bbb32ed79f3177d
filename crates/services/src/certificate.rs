//! A self-signed certificate for tests.

use std::{fs, path::Path, process::Command};

use crate::{ServiceError, process::run};

pub(crate) const CERTIFICATE: &str = "certificate.pem";

pub(crate) const KEY: &str = "key.pem";

/// The settings of `openssl req`: a certificate for the host `localhost` that is not an authority for other certificates.
const REQUEST: &str = "\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = a test of Stockade
[extensions]
subjectAltName = DNS:localhost
basicConstraints = critical, CA:FALSE
";

/// Creates the certificate and its key in `folder`. The certificate is valid for a month.
pub(crate) fn make(folder: &Path) -> Result<(), ServiceError> {
    let request = folder.join("request.cnf");
    fs::write(&request, REQUEST)?;
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "30", "-newkey", "ec", "-pkeyopt"]);
    openssl.arg("ec_paramgen_curve:prime256v1").arg("-config").arg(request);
    openssl.arg("-keyout").arg(folder.join(KEY)).arg("-out").arg(folder.join(CERTIFICATE));
    run(&mut openssl).map(drop)
}
