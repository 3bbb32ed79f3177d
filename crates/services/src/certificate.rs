//! A certificate that nobody but its holder vouches for.

use std::{fs, path::Path, process::Command};

use crate::{ServiceError, process::run};

/// The file that it is in.
pub(crate) const CERTIFICATE: &str = "certificate.pem";

/// The file that its key is in.
pub(crate) const KEY: &str = "key.pem";

/// Of no authority: it vouches for the host `localhost` and for no other certificate.
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

/// Makes one in a folder, for a month.
pub(crate) fn make(folder: &Path) -> Result<(), ServiceError> {
    let request = folder.join("request.cnf");
    fs::write(&request, REQUEST)?;
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "30", "-newkey", "ec", "-pkeyopt"]);
    openssl.arg("ec_paramgen_curve:prime256v1").arg("-config").arg(request);
    openssl.arg("-keyout").arg(folder.join(KEY)).arg("-out").arg(folder.join(CERTIFICATE));
    run(&mut openssl).map(drop)
}
