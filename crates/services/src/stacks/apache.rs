//! Apache: files, gzip, and pages from a CGI program.

use std::ffi::OsString;

use rustix::process::Signal;

use super::{Stack, StackServer, with_app, write_static_files};
use crate::{ServiceError, process::serves_http};

const PROGRAM: &str = "/usr/sbin/apache2";

pub(super) const STACK: Stack = Stack {
    name: "Apache",
    app: "apache",
    needs: &[PROGRAM, "/usr/lib/apache2/modules/mod_cgid.so", "/usr/bin/perl"],
    version: r"/usr/sbin/apache2 -v | sed -n 's:.*Apache/\([^ ]*\).*:\1:p'",
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let mut server = with_app(STACK.app, &[])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("static"))?;
    let mut command: Vec<OsString> = vec![PROGRAM.into(), "-DFOREGROUND".into(), "-f".into()];
    command.push(folder.join("httpd.conf").into());
    server.start("TERM", &command, serves_http)?;
    let h2_port = Some(server.port());
    Ok(StackServer { h2_port, reload: Some(Signal::USR1), ..StackServer::new(server) })
}
