//! Messages for the errors of PostgreSQL and its driver.

use std::{error::Error as _, io};

use rustls::CertificateError;
use tokio_postgres::{Error, error::SqlState};

/// The cause and the remedy.
pub(super) fn explain(error: &Error) -> String {
    let message = match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    };
    match error.code().map_or_else(|| connection_remedy(error, &message), server_remedy) {
        Some(remedy) => format!("{message}; {remedy}"),
        None => message,
    }
}

/// Remedies for errors of the server.
fn server_remedy(code: &SqlState) -> Option<&'static str> {
    let remedies: [(&[&SqlState], &str); 8] = [
        (
            &[&SqlState::INVALID_PASSWORD],
            "check the user and the password in the URL, or PGPASSWORD (`@`, `/` and `?` are written %40, %2F, %3F)",
        ),
        (
            &[&SqlState::INVALID_AUTHORIZATION_SPECIFICATION],
            "check the user, the database and whether the server wants sslmode=require",
        ),
        (
            &[&SqlState::INVALID_CATALOG_NAME],
            "name one that exists at the end of the URL's path, or create it",
        ),
        (
            &[&SqlState::UNDEFINED_TABLE, &SqlState::INVALID_SCHEMA_NAME],
            "name another with `table`, or make and fill it with --docs-from FILE.jsonl",
        ),
        (&[&SqlState::UNDEFINED_COLUMN], "name the columns with `key` and `body`"),
        (&[&SqlState::INSUFFICIENT_PRIVILEGE], "grant it to the user, or name another user"),
        (
            &[&SqlState::TOO_MANY_CONNECTIONS],
            "write fewer `connections`, or let the server have more (max_connections)",
        ),
        (
            &[&SqlState::ADMIN_SHUTDOWN, &SqlState::CRASH_SHUTDOWN, &SqlState::CANNOT_CONNECT_NOW],
            "it starts or stops: try again",
        ),
    ];
    remedies.iter().find(|(codes, _)| codes.contains(&code)).map(|(_, remedy)| *remedy)
}

/// Remedies for errors of the connection.
fn connection_remedy(error: &Error, message: &str) -> Option<&'static str> {
    let cause = error.source()?;
    if let Some(cause) = cause.downcast_ref::<io::Error>() {
        if let Some(rustls::Error::InvalidCertificate(what)) =
            cause.get_ref().and_then(|it| it.downcast_ref())
        {
            return Some(match what {
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "name the host as its certificate does"
                }
                CertificateError::UnknownIssuer => {
                    "name the file of the certificate authority with `sslrootcert`"
                }
                _ => "have the certificate renewed",
            });
        }
        return match cause.kind() {
            io::ErrorKind::ConnectionRefused => {
                Some("check the host and the port, and whether the server runs")
            }
            _ if message.contains("lookup") => Some("check the host"),
            _ => None,
        };
    }
    let remedies = [
        ("password missing", "write it into the URL, after the user and a colon, or set PGPASSWORD"),
        ("server does not support TLS", "switch TLS on there, or write sslmode=prefer"),
    ];
    remedies.into_iter().find(|(what, _)| message.contains(what)).map(|(_, remedy)| remedy)
}

/// True if the column's type cannot represent the key: `seven` in a column of numbers.
pub(super) fn is_invalid_key(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("22"))
}
