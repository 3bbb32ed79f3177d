//! A SQLite database: one table, `documents (id, body)`.

use std::{
    collections::BTreeMap,
    env, fs, panic,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use deadpool::{
    Runtime,
    managed::{self, Metrics, Pool, RecycleResult},
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use stockade_model::source::{Document, Source, SourceError, SourceFuture};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::{
    OpenError, OpenFuture, ParseResult, SourceKind, SourceLocation,
    documents::{self, NamedDocument},
};

/// Limit of concurrent reads. Point reads from the page cache are limited by the processor.
const CONNECTIONS: usize = 4;

/// Limit of the wait for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);

/// The version changes with the result of [`documents::generate`], so that an old file is not reused.
const GENERATED_FILE: &str = "documents-680-v1.sqlite";

/// A SQLite database with a bounded pool of connections.
pub struct SqliteSource {
    path: PathBuf,
    pool: Pool<SqliteConnector>,
    /// Removes a temporary database when the source is dropped.
    _temporary: Option<TempDir>,
}

/// The path of a database; no path: the database of generated documents.
struct SqliteLocation {
    path: Option<PathBuf>,
}

pub(crate) const fn kind(schemes: &'static [&'static str]) -> SourceKind {
    SourceKind {
        schemes,
        form: "sqlite:PATH",
        summary: "a SQLite database; without a path one with 680 generated documents",
        is_simulated: false,
        parse,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as the registry has it: other URLs can be wrong")]
fn parse(_: &str, path: &str) -> ParseResult {
    let path = (!path.is_empty()).then(|| PathBuf::from(path));
    Ok(Arc::new(SqliteLocation { path }))
}

impl SourceLocation for SqliteLocation {
    fn open(&self) -> OpenFuture<'_> {
        let path = self.path.clone();
        blocking(move || SqliteSource::open(path.map_or_else(generated, Ok)?, None))
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a> {
        let (path, documents) = (self.path.clone(), documents.to_vec());
        blocking(move || {
            if let Some(path) = path {
                refuse_other(&path, &documents)?;
                write(&path, &documents)?;
                return SqliteSource::open(path, None);
            }
            let temporary = TempDir::with_prefix("stockade-").map_err(|error| {
                unusable(&env::temp_dir(), format!("{error}; set TMPDIR to a writable directory"))
            })?;
            let path = temporary.path().join("documents.sqlite");
            write(&path, &documents)?;
            SqliteSource::open(path, Some(temporary))
        })
    }
}

/// Opens a database on a thread for blocking work.
fn blocking<'a>(open: impl FnOnce() -> Result<SqliteSource, OpenError> + Send + 'static) -> OpenFuture<'a> {
    Box::pin(async {
        let opened = spawn_blocking(open).await;
        let source = opened.unwrap_or_else(|lost| panic::resume_unwind(lost.into_panic()))?;
        Ok::<Arc<dyn Source>, _>(Arc::new(source))
    })
}

impl std::fmt::Display for SqliteLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sqlite:{}", self.path.as_deref().unwrap_or(Path::new("")).display())
    }
}

impl SqliteSource {
    fn open(path: PathBuf, temporary: Option<TempDir>) -> Result<Self, OpenError> {
        if !path.exists() {
            return Err(OpenError::Missing { place: path.display().to_string() });
        }
        check(&path)?;
        let pool = Pool::builder(SqliteConnector { path: path.clone() })
            .max_size(CONNECTIONS)
            .wait_timeout(Some(CONNECTION_WAIT))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| unusable(&path, error))?;
        Ok(Self { path, pool, _temporary: temporary })
    }

    /// Runs a query on a thread for blocking work.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SourceError> {
        let connection = self.pool.get().await.map_err(|error| match error {
            managed::PoolError::Timeout(_) => {
                SourceError::TimedOut { source_name: self.name(), after: CONNECTION_WAIT }
            }
            error => self.failed(error),
        })?;
        let answer = spawn_blocking(move || query(&connection)).await;
        answer.map_err(|error| self.failed(error))?.map_err(|error| self.failed(explain(&error)))
    }

    fn name(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    fn failed(&self, reason: impl std::fmt::Display) -> SourceError {
        SourceError::Failed { source_name: self.name(), reason: reason.to_string() }
    }
}

impl Source for SqliteSource {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let id = id.to_owned();
        Box::pin(self.read(move |connection| {
            connection
                .prepare_cached("SELECT body FROM documents WHERE id = ?1")?
                .query_row([id], |row| {
                    row.get_ref(0)?.as_bytes().map(Document::copy_from_slice).map_err(Into::into)
                })
                .optional()
        }))
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(self.read(|connection| {
            let mut select = connection.prepare("SELECT id FROM documents ORDER BY id")?;
            let ids = select.query_map([], |row| row.get::<_, Arc<str>>(0))?;
            ids.collect()
        }))
    }
}

/// Opens connections for the pool.
struct SqliteConnector {
    path: PathBuf,
}

impl managed::Manager for SqliteConnector {
    type Type = Connection;
    type Error = rusqlite::Error;

    async fn create(&self) -> Result<Connection, rusqlite::Error> {
        connect_read_only(&self.path)
    }

    async fn recycle(&self, _: &mut Connection, _: &Metrics) -> RecycleResult<rusqlite::Error> {
        // A file has no network connection that could be lost.
        Ok(())
    }
}

fn connect_read_only(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

/// Fails if the file is not a database with the table.
fn check(path: &Path) -> Result<(), OpenError> {
    let look = || {
        let connection = connect_read_only(path)?;
        let mut select = connection.prepare("SELECT id, body FROM documents LIMIT 1")?;
        let first = select.query_row([], |row| row.get::<_, String>(0)).optional();
        first.map(drop)
    };
    look().map_err(|error| unusable(path, explain(&error)))
}

/// The cause and the remedy.
fn explain(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseCorrupt, DiskFull, NotADatabase, ReadOnly, SystemIoFailure,
    };
    let remedy = match (error, error.sqlite_error_code()) {
        (_, Some(NotADatabase | DatabaseCorrupt)) => {
            "name a SQLite database, or remove the file and fill a new one with --docs-from FILE.jsonl"
        }
        (_, Some(CannotOpen | SystemIoFailure | ReadOnly)) => {
            "check that it is a file, its directory, and their permissions"
        }
        (_, Some(DatabaseBusy)) => "another program is writing to it: try again",
        (_, Some(DiskFull)) => "make room on the disk",
        (rusqlite::Error::InvalidColumnType(..), _) => "ids have to be TEXT, bodies TEXT or BLOB",
        _ => "it needs a table `documents (id TEXT, body BLOB)`: --docs-from FILE.jsonl makes and fills one",
    };
    format!("{error}; {remedy}")
}

/// Fails if the database has other documents.
fn refuse_other(path: &Path, documents: &[NamedDocument]) -> Result<(), OpenError> {
    if !path.exists() {
        return Ok(());
    }
    check(path)?;
    let stored = || -> rusqlite::Result<BTreeMap<String, Vec<u8>>> {
        let connection = connect_read_only(path)?;
        let mut select = connection.prepare("SELECT id, body FROM documents")?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get_ref(1)?.as_bytes()?.to_vec())))?;
        rows.collect()
    };
    let stored = stored().map_err(|error| unusable(path, explain(&error)))?;
    let is_same =
        |document: &NamedDocument| stored.get(&*document.id).is_some_and(|body| *body == document.body);
    if stored.is_empty() || (stored.len() == documents.len() && documents.iter().all(is_same)) {
        return Ok(());
    }
    let remedy = "leave --docs-from out to use them, or name a new file with --source";
    Err(unusable(path, format!("it holds {} other documents; {remedy}", stored.len())))
}

fn write(path: &Path, documents: &[NamedDocument]) -> Result<(), OpenError> {
    let fill = || -> rusqlite::Result<()> {
        let mut connection = Connection::open(path)?;
        let all = connection.transaction()?;
        all.execute_batch(
            "CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
        )?;
        {
            let mut insert = all.prepare("INSERT OR REPLACE INTO documents (id, body) VALUES (?1, ?2)")?;
            for document in documents {
                insert.execute(params![document.id, document.body.as_ref()])?;
            }
        }
        all.commit()
    };
    fill().map_err(|error| unusable(path, explain(&error)))
}

/// The path of the database of generated documents, created on first use in the user's cache directory.
fn generated() -> Result<PathBuf, OpenError> {
    let directory = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::home_dir().map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("stockade");
    let path = directory.join(GENERATED_FILE);
    if path.exists() && is_whole(&path) {
        return Ok(path);
    }
    // Written to a temporary file and renamed, so that no reader sees an incomplete database.
    let error = |error: std::io::Error| {
        unusable(&directory, format!("{error}; set XDG_CACHE_HOME to a writable directory"))
    };
    fs::create_dir_all(&directory).map_err(error)?;
    let new = TempDir::with_prefix_in("filling-", &directory).map_err(error)?;
    let filling = new.path().join(GENERATED_FILE);
    write(&filling, &documents::generate(documents::GENERATED))?;
    fs::rename(&filling, &path).map_err(error)?;
    Ok(path)
}

/// False if the generated database is incomplete and must be created again.
fn is_whole(path: &Path) -> bool {
    let look = || -> rusqlite::Result<bool> {
        let connection = connect_read_only(path)?;
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        let count: i64 = connection.query_row("SELECT count(*) FROM documents", [], |row| row.get(0))?;
        Ok(verdict == "ok" && usize::try_from(count) == Ok(documents::GENERATED))
    };
    look().unwrap_or(false)
}

fn unusable(path: &Path, reason: impl std::fmt::Display) -> OpenError {
    OpenError::Unusable { place: path.display().to_string(), reason: reason.to_string() }
}
