//! Django behind Gunicorn, with `WhiteNoise` for its files.

use rustix::process::Signal;

use super::{Stack, StackServer, with_app, write_static_files};
use crate::{ServiceError, process::serves_http};

const PROGRAM: &str = "/usr/bin/gunicorn";
const MODULES: &str = "/usr/lib/python3/dist-packages";

pub(super) const STACK: Stack = Stack {
    name: "Django",
    app: "django",
    needs: &[PROGRAM, "/usr/lib/python3/dist-packages/django", "/usr/lib/python3/dist-packages/whitenoise"],
    version: r#"/usr/bin/python3 -c 'import django, gunicorn; print(django.__version__, "Gunicorn", gunicorn.__version__)'"#,
    start,
};

fn start() -> Result<StackServer, ServiceError> {
    let mut server = with_app(STACK.app, &[])?;
    let folder = server.folder().to_owned();
    write_static_files(&folder.join("static"))?;
    let folder = folder.display();
    let command = [
        "/usr/bin/env".to_owned(),
        format!("PYTHONPATH={folder}:{MODULES}"),
        "sh".to_owned(),
        "-c".to_owned(),
        // WhiteNoise serves the files that this command compresses.
        format!(
            "/usr/bin/python3 -m whitenoise.compress {folder}/static && exec {PROGRAM} --chdir {folder} \
             --bind 127.0.0.1:{port} --worker-class gthread --threads 100 --keep-alive 1 \
             --access-logfile {folder}/access.log --access-logformat '%(m)s %(U)s?%(q)s %(s)s %(H)s' stand.wsgi",
            port = server.port()
        ),
    ];
    server.start("TERM", &command, serves_http)?;
    Ok(StackServer { reload: Some(Signal::HUP), ..StackServer::new(server) })
}
