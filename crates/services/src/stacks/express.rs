//! Express on Node, with compression, express-session, morgan and serve-static.

use super::{Stack, StackServer, with_app, write_static_files};
use crate::{ServiceError, process::serves_http};

pub(super) const STACK: Stack = Stack {
    name: "Express",
    app: "express",
    needs: &["/usr/bin/node", "node_modules/installed.json"],
    version: r#"cd "$0" && echo $(node -p 'require("./node_modules/express/package").version') Node $(node -v)"#,
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let mut server = with_app(STACK.app, &[])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("static"))?;
    let program = super::app_folder(STACK.app).join("app.js");
    let command = [
        "node".to_owned(),
        program.display().to_string(),
        server.port().to_string(),
        folder.display().to_string(),
    ];
    server.start("KILL", &command, serves_http)?;
    Ok(StackServer::new(server))
}
