//! Parses the URL of a collection.

use std::sync::Arc;

use mongodb::options::ConnectionString;
use stockade_model::nearest::nearest;

use super::MongoDbLocation;
use crate::{OpenError, ParseResult, remote::Remote};

/// Settings of this source, in addition to those of all network sources. The driver parses the rest.
const SOURCE_PARAMETERS: [&str; 2] = ["collection", "key"];

/// Candidates for a misspelt setting that the driver does not know.
const SETTINGS: [&str; 4] = [SOURCE_PARAMETERS[0], SOURCE_PARAMETERS[1], "connections", "timeout"];

/// The remedy for an invalid part before the settings.
const FORM: &str =
    "write USER:PASSWORD@HOST:PORT/DATABASE, with `:` as %3A, `/` as %2F and `@` as %40 in user and password";

pub(crate) fn parse(scheme: &str, rest: &str) -> ParseResult {
    let remote = Remote::parse(scheme, rest, &SOURCE_PARAMETERS, true)?;
    let connection = parse_connection(scheme, &remote)?;
    let Some(database) = connection.default_database.clone() else {
        return Err(remote.invalid("it names no database: write it after the host, as in HOST:PORT/DATABASE"));
    };
    let setting = |name, default: &str| remote.setting(name).unwrap_or(default).to_owned();
    let (collection, key) = (setting("collection", "documents"), setting("key", "_id"));
    if collection.is_empty() {
        return Err(remote.invalid("`collection` is the name of a collection"));
    }
    if key.is_empty() || key.starts_with('$') || key.contains('.') {
        return Err(remote.invalid("`key` is the name of a field, without `$` and `.`"));
    }
    let connections = u32::try_from(remote.connections()?).unwrap_or(u32::MAX);
    let timeout = remote.timeout()?;
    let remote = Arc::new(remote);
    Ok(Arc::new(MongoDbLocation { remote, connection, database, collection, key, connections, timeout }))
}

/// Parses the URL with the driver. The driver's errors may quote a secret, so this function does not pass them on but
/// finds the invalid part itself.
fn parse_connection(scheme: &str, remote: &Remote) -> Result<ConnectionString, OpenError> {
    let full_url = remote.with_secrets(scheme);
    if let Ok(connection) = ConnectionString::parse(&full_url) {
        return Ok(connection);
    }
    let place = full_url.split_once('?').map_or(full_url.as_str(), |(place, _)| place);
    if ConnectionString::parse(place).is_err() {
        return Err(remote.invalid(FORM));
    }
    let query = remote.their_query();
    let theirs = query.trim_start_matches('?').split('&').filter(|parameter| !parameter.is_empty());
    let wrong = theirs.filter(|parameter| ConnectionString::parse(format!("{place}?{parameter}")).is_err());
    let names: Vec<_> = wrong.map(|parameter| parameter.split('=').next().unwrap_or(parameter)).collect();
    Err(remote.invalid(&match names.as_slice() {
        [] => "its parameters do not go together: check them against the driver's manual".to_owned(),
        [name, ..] => match nearest(name, SETTINGS) {
            Some(ours) => format!("unknown parameter `{name}`: did you mean `{ours}`?"),
            None => format!("the driver does not take `{name}`: check its name and its value"),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_errors_contain_no_secret() {
        for (rest, expected) in [
            ("//ada:secret@host", "it names no database: write it after the host"),
            ("//ada:secret@host/?collection=people", "it names no database: write it after the host"),
            ("//ada:secret@host:no/db", "write USER:PASSWORD@HOST:PORT/DATABASE"),
            ("//ada:sec:ret@host/db", "write USER:PASSWORD@HOST:PORT/DATABASE"),
            (
                "//ada:secret@host/db?colection=people",
                "unknown parameter `colection`: did you mean `collection`?",
            ),
            (
                "//ada:secret@host/db?tls=perhaps",
                "the driver does not take `tls`: check its name and its value",
            ),
            ("//ada:secret@host/db?tls=true&w", "the driver does not take `w`"),
            ("//ada:secret@host/db?tls=false&tlsInsecure=true", "its parameters do not go together"),
            ("//ada:secret@host/db?collection=", "`collection` is the name of a collection"),
            ("//ada:secret@host/db?key=$where", "`key` is the name of a field, without `$` and `.`"),
            ("//ada:secret@host/db?connections=0", "`connections` is a number from 1 to 1000"),
        ] {
            let error = parse("mongodb", rest).err().expect("an error").to_string();
            assert!(error.starts_with(&format!("mongodb: {expected}")), "{rest}: {error}");
            assert!(!error.contains("sec"), "{error}");
        }
    }

    #[test]
    fn driver_receives_the_other_settings() {
        let url =
            "//ada:secret@a:1,b:2/db?collection=people&key=name&replicaSet=rs&connections=3&maxPoolSize=4";
        let place = parse("mongodb", url).unwrap();
        assert_eq!(place.to_string(), "mongodb://ada@a:1,b:2/db?collection=people&key=name&connections=3");
        let srv = parse("mongodb+srv", "//ada:secret@cluster.example.com/db").unwrap();
        assert_eq!(srv.to_string(), "mongodb+srv://ada@cluster.example.com/db");
    }
}
