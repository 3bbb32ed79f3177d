//! What a URL of MongoDB means.

use std::sync::Arc;

use mongodb::options::ConnectionString;
use stockade_model::nearest::nearest;

use super::Address;
use crate::{OpenError, Read, remote::Remote};

/// Settings of ours beside those that every source over a network has; the rest is the driver's.
const OURS: [&str; 2] = ["collection", "key"];

/// What may have been meant by a name that the driver does not know.
const SETTINGS: [&str; 4] = [OURS[0], OURS[1], "connections", "timeout"];

/// What to write where the part before the settings makes no sense.
const PLACE: &str =
    "write USER:PASSWORD@HOST:PORT/DATABASE, with `:` as %3A, `/` as %2F and `@` as %40 in user and password";

pub(crate) fn read(scheme: &str, rest: &str) -> Read {
    let remote = Remote::read(scheme, rest, &OURS, true)?;
    let connection = parse(scheme, &remote)?;
    let Some(database) = connection.default_database.clone() else {
        return Err(remote.wrong("it names no database: write it after the host, as in HOST:PORT/DATABASE"));
    };
    let setting = |name, default: &str| remote.setting(name).unwrap_or(default).to_owned();
    let (collection, key) = (setting("collection", "documents"), setting("key", "_id"));
    if collection.is_empty() {
        return Err(remote.wrong("`collection` is the name of a collection"));
    }
    if key.is_empty() || key.starts_with('$') || key.contains('.') {
        return Err(remote.wrong("`key` is the name of a field, without `$` and `.`"));
    }
    let connections = u32::try_from(remote.connections()?).unwrap_or(u32::MAX);
    let timeout = remote.timeout()?;
    let remote = Arc::new(remote);
    Ok(Arc::new(Address { remote, connection, database, collection, key, connections, timeout }))
}

/// What the driver makes of it. Its complaints may quote a secret, so they are not passed on: the part that it
/// complains about is looked for.
fn parse(scheme: &str, remote: &Remote) -> Result<ConnectionString, OpenError> {
    let whole = remote.with_secrets(scheme);
    if let Ok(connection) = ConnectionString::parse(&whole) {
        return Ok(connection);
    }
    let place = whole.split_once('?').map_or(whole.as_str(), |(place, _)| place);
    if ConnectionString::parse(place).is_err() {
        return Err(remote.wrong(PLACE));
    }
    let query = remote.their_query();
    let theirs = query.trim_start_matches('?').split('&').filter(|parameter| !parameter.is_empty());
    let wrong = theirs.filter(|parameter| ConnectionString::parse(format!("{place}?{parameter}")).is_err());
    let names: Vec<_> = wrong.map(|parameter| parameter.split('=').next().unwrap_or(parameter)).collect();
    Err(remote.wrong(&match names.as_slice() {
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
    fn what_is_wrong_with_a_url_is_told_without_its_secret() {
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
            let error = read("mongodb", rest).err().expect("an error").to_string();
            assert!(error.starts_with(&format!("mongodb: {expected}")), "{rest}: {error}");
            assert!(!error.contains("sec"), "{error}");
        }
    }

    #[test]
    fn the_driver_gets_what_is_not_ours() {
        let url =
            "//ada:secret@a:1,b:2/db?collection=people&key=name&replicaSet=rs&connections=3&maxPoolSize=4";
        let place = read("mongodb", url).unwrap();
        assert_eq!(place.to_string(), "mongodb://ada@a:1,b:2/db?collection=people&key=name&connections=3");
        let srv = read("mongodb+srv", "//ada:secret@cluster.example.com/db").unwrap();
        assert_eq!(srv.to_string(), "mongodb+srv://ada@cluster.example.com/db");
    }
}
