//! Go's `net/http`, with gzhttp and the Gorilla packages for sessions and the access log.

use super::{Stack, StackServer, app_folder, with_app, write_static_files};
use crate::{ServiceError, process::serves_http};

pub(super) const STACK: Stack = Stack {
    name: "Go",
    app: "go",
    needs: &["bin/stand"],
    version: r#"go version -m "$0/bin/stand" | sed -n '1s/.*: go//p'"#,
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let mut server = with_app(STACK.app, &[])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("static"))?;
    let program = app_folder(STACK.app).join("bin/stand");
    let port = server.port();
    let command = [program.display().to_string(), port.to_string(), folder.display().to_string()];
    server.start("KILL", &command, serves_http)?;
    Ok(StackServer { h2_port: Some(port), ..StackServer::new(server) })
}
