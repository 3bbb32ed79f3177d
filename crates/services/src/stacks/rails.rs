//! Rails on Puma, with `Rack::Deflater`.

use rustix::process::Signal;

use super::{Stack, StackServer, with_app, write_static_files};
use crate::{ServiceError, process::serves_http};

const PUMA: &str = "/usr/bin/puma";

pub(super) const STACK: Stack = Stack {
    name: "Rails",
    app: "rails",
    needs: &[PUMA, "/usr/share/rubygems-integration/all/specifications"],
    version: "/usr/bin/ruby -e 'require \"rails\"; require \"puma\"; puts \"#{Rails.version} Puma #{Puma::Const::VERSION}\"'",
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let mut server = with_app(STACK.app, &[])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("public/static"))?;
    let folder = folder.display();
    let command = [
        "/usr/bin/env".to_owned(),
        format!("PORT={}", server.port()),
        PUMA.to_owned(),
        "--dir".to_owned(),
        folder.to_string(),
        "--config".to_owned(),
        format!("{folder}/config/puma.rb"),
        format!("{folder}/config.ru"),
    ];
    server.start("TERM", &command, serves_http)?;
    // Replaces its workers one after another.
    Ok(StackServer { reload: Some(Signal::USR1), ..StackServer::new(server) })
}
