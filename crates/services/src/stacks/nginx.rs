//! nginx: files, gzip, and pages from its embedded Perl.

use std::ffi::OsString;

use rustix::process::Signal;

use super::{Stack, StackServer, with_app, write_static_files};
use crate::{ServiceError, free_port, process::serves_http};

const PROGRAM: &str = "/usr/sbin/nginx";

pub(super) const STACK: Stack = Stack {
    name: "nginx",
    app: "nginx",
    needs: &[PROGRAM, "/usr/lib/nginx/modules/ngx_http_perl_module.so"],
    version: "/usr/sbin/nginx -v 2>&1 | sed 's:.*/::'",
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let h2_port = free_port()?;
    let mut server = with_app(STACK.app, &[("h2_port", h2_port.to_string())])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("static"))?;
    let mut command: Vec<OsString> = vec![PROGRAM.into(), "-p".into(), folder.clone().into(), "-c".into()];
    command.extend([folder.join("nginx.conf").into(), "-e".into(), "stderr".into()]);
    server.start("TERM", &command, serves_http)?;
    Ok(StackServer { h2_port: Some(h2_port), reload: Some(Signal::HUP), ..StackServer::new(server) })
}
