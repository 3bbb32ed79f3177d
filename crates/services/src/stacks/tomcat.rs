//! Tomcat, with a servlet, its default servlet for files, compression and its access log.

use std::fs;

use super::{Stack, StackServer, with_app, write_static_files};
use crate::{ServiceError, process::serves_http};

const HOME: &str = "/usr/share/tomcat10";

pub(super) const STACK: Stack = Stack {
    name: "Tomcat",
    app: "tomcat",
    needs: &[
        "/usr/share/tomcat10/bin/catalina.sh",
        "/etc/tomcat10/web.xml",
        "webapp/WEB-INF/classes/App.class",
    ],
    version: "unzip -p /usr/share/tomcat10/lib/catalina.jar org/apache/catalina/util/ServerInfo.properties | \
              sed -n 's:server.info=Apache Tomcat/::p'",
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let mut server = with_app(STACK.app, &[])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("webapp/static"))?;
    for name in ["logs", "temp", "work", "apps"] {
        fs::create_dir_all(folder.join(name))?;
    }
    // The defaults of every web application: the servlet for files, and MIME types.
    fs::copy("/etc/tomcat10/web.xml", folder.join("conf/web.xml"))?;
    let command = [
        "/usr/bin/env".to_owned(),
        format!("CATALINA_HOME={HOME}"),
        format!("CATALINA_BASE={}", folder.display()),
        "CATALINA_OPTS=-Xmx256m".to_owned(),
        format!("{HOME}/bin/catalina.sh"),
        "run".to_owned(),
    ];
    server.start("TERM", &command, serves_http)?;
    let h2_port = Some(server.port());
    Ok(StackServer { h2_port, ..StackServer::new(server) })
}
