//! Runs the program as a user does.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// A directory to run the program in, with a cache directory of its own.
pub struct Sandbox(TempDir);

/// The exit code and the output of the program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file into it and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("the directory is writable");
        path.display().to_string()
    }

    pub fn command(&self) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_stockade"))
    }

    /// Another program, in the same directory and environment.
    pub fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env("XDG_CACHE_HOME", shared_cache()).env("RUST_BACKTRACE", "1");
        command.env_remove("PGPASSWORD");
        command
    }

    pub fn stockade(&self, arguments: &[&str]) -> ProgramOutput {
        let output = self.command().args(arguments).output().expect("the program starts");
        ProgramOutput::of(output)
    }

    /// The runs of `stockade stampede --format json`.
    pub fn stampede(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.stockade(&[&["stampede", "--format", "json"], arguments].concat());
        assert_eq!(output.code, 0, "{}", output.stderr);
        let report: Value = serde_json::from_str(&output.stdout).expect("one JSON object");
        report["runs"].as_array().expect("runs").clone()
    }
}

/// One cache for all tests, so that the documents are generated once.
fn shared_cache() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

impl ProgramOutput {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it ends by itself"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// One message on standard error with these words in it, nothing on standard output, no panic.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in:\n{}", self.stderr);
        }
        for never in ["panicked", "backtrace", "RUST_"] {
            assert!(!self.stderr.contains(never), "{}", self.stderr);
        }
    }
}

/// An arm with an nginx at `port`, with these directives for its pages. Paths are relative to its prefix.
pub fn nginx(sandbox: &Sandbox, name: &str, [port, origin]: [u16; 2], directives: &str) -> String {
    let paths =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|of| format!("{of}_temp_path {of}; "));
    let text = format!(
        "daemon off; master_process off; pid pid; error_log stderr; events {{}}\n\
         http {{ access_log off; {} proxy_cache_path cache keys_zone=pages:1m;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{origin}; proxy_cache pages;\n\
         {directives} }} }} }}\n",
        paths.concat()
    );
    let file = sandbox.file(name, &text);
    format!(
        "[[arm]]\nname = \"{name}\"\ntarget.url = \"http://127.0.0.1:{port}\"\n\
         target.command = 'exec /usr/sbin/nginx -p \"$STOCKADE_FOLDER\" -e stderr -c \"{file}\"'\n"
    )
}
