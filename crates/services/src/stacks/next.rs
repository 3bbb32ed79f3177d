//! Next.js with its custom server, on Node.

use super::{Stack, StackServer, app_folder, with_app, write_static_files};
use crate::{ServiceError, process::serves_http};

pub(super) const STACK: Stack = Stack {
    name: "Next.js",
    app: "next",
    needs: &["/usr/bin/node", "node_modules/installed.json"],
    version: r#"cd "$0" && echo $(node -p 'require("./node_modules/next/package").version') Node $(node -v)"#,
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let mut server = with_app(STACK.app, &[])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("public/static"))?;
    // Node looks for packages next to the program.
    std::os::unix::fs::symlink(app_folder(STACK.app).join("node_modules"), folder.join("node_modules"))?;
    let folder = folder.display().to_string();
    let program = format!("{folder}/server.js");
    let command = ["env", "NODE_ENV=production", "node", &program, &server.port().to_string(), &folder];
    server.start("KILL", &command.map(str::to_owned), serves_http)?;
    Ok(StackServer::new(server))
}
