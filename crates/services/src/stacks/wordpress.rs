//! `WordPress` of Debian: nginx, PHP-FPM and `MariaDB`.

use std::{ffi::OsString, fs, path::Path, process::Command};

use rustix::process::Signal;

use super::{Stack, StackServer, with_app, write_static_files};
use crate::{
    RunningServer, ServiceError, free_port,
    process::{run, serves_http},
};

const NGINX: &str = "/usr/sbin/nginx";
const MARIADB: &str = "/usr/sbin/mariadbd";

pub(super) const STACK: Stack = Stack {
    name: "WordPress",
    app: "wordpress",
    needs: &[NGINX, MARIADB, "/usr/bin/php", "/usr/share/wordpress/wp-settings.php"],
    version: r"echo $(sed -n 's:^\$wp_version = .\(.*\).;:\1:p' /usr/share/wordpress/wp-includes/version.php) PHP $(php -r 'echo PHP_VERSION;')",
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let h2_port = free_port()?;
    let mut server = with_app(STACK.app, &[("h2_port", h2_port.to_string())])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("static"))?;
    let database = start_database(&folder)?;
    // Without its database WordPress tries again for hours.
    run(Command::new("timeout").args(["60", "/usr/bin/php"]).arg(folder.join("install.php")))?;
    let php = start_php(&folder)?;
    let mut command: Vec<OsString> = vec![NGINX.into(), "-p".into(), folder.clone().into(), "-c".into()];
    command.extend([folder.join("nginx.conf").into(), "-e".into(), "stderr".into()]);
    server.start("TERM", &command, serves_http)?;
    let others = vec![php, database];
    Ok(StackServer { server, others, h2_port: Some(h2_port), reload: Some(Signal::HUP) })
}

/// `MariaDB` at a socket in the folder, with an empty database.
fn start_database(folder: &Path) -> Result<RunningServer, ServiceError> {
    let mut server = RunningServer::new("mariadb")?;
    let (data, socket) = (folder.join("mysql"), folder.join("mysql.sock"));
    // A server that starts removes files that look like temporary tables; in a common folder it removes those of other servers.
    let temporary = folder.join("temporary");
    fs::create_dir(&temporary)?;
    let temporary = format!("--tmpdir={}", temporary.display());
    // A server that root starts stays root.
    let mut install = Command::new("mariadb-install-db");
    install.args([
        "--no-defaults",
        "--user=root",
        "--skip-test-db",
        "--auth-root-authentication-method=normal",
    ]);
    run(install.arg(format!("--datadir={}", data.display())).arg(&temporary))?;
    let command = [
        MARIADB.to_owned(),
        "--no-defaults".to_owned(),
        "--user=root".to_owned(),
        "--skip-networking".to_owned(),
        temporary,
        format!("--datadir={}", data.display()),
        format!("--socket={}", socket.display()),
        format!("--init-file={}", folder.join("database.sql").display()),
        "--innodb-buffer-pool-size=32M".to_owned(),
    ];
    server.start("KILL", &command, |_| exists(&socket))?;
    Ok(server)
}

fn start_php(folder: &Path) -> Result<RunningServer, ServiceError> {
    let mut server = RunningServer::new("php-fpm")?;
    let file = folder.join("php-fpm.conf").display().to_string();
    let socket = folder.join("php.sock");
    server.start("TERM", &[&php_fpm(), "--nodaemonize", "--fpm-config", &file], |_| exists(&socket))?;
    Ok(server)
}

/// Debian has its version in its name.
fn php_fpm() -> String {
    let programs = fs::read_dir("/usr/sbin").into_iter().flatten().flatten().map(|entry| entry.path());
    let newest =
        programs.map(|path| path.display().to_string()).filter(|path| path.contains("/php-fpm")).max();
    newest.unwrap_or_else(|| "php-fpm".to_owned())
}

fn exists(socket: &Path) -> Result<(), String> {
    if fs::exists(socket).unwrap_or(false) { Ok(()) } else { Err(format!("no {}", socket.display())) }
}
