//! A table and the SQL that is about it.

use bytes::Bytes;
use tokio_postgres::{
    Client, Error,
    types::{FromSql, Type},
};

/// Names, quoted: what is written in a URL is never SQL.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) body: String,
}

/// What is asked about a table.
pub(super) struct Queries {
    /// A body, by the text of its key.
    pub(super) find: String,
    /// The text of every key.
    pub(super) list: String,
}

/// The types of a table's columns.
pub(super) struct Types {
    pub(super) key: Type,
    pub(super) body: Type,
}

impl Table {
    /// A name with a dot is that of a schema and a table in it.
    pub(super) fn new(name: &str, key: &str, body: &str) -> Result<Self, String> {
        for (setting, value) in [("table", name), ("key", key), ("body", body)] {
            if value.is_empty() || value.contains('\0') {
                return Err(format!("`{setting}` is no name"));
            }
        }
        let name = name.split('.').map(quoted).collect::<Vec<_>>().join(".");
        Ok(Self { name, key: quoted(key), body: quoted(body) })
    }

    /// What can be asked about it, or why nothing can.
    pub(super) async fn queries(&self, client: &Client) -> Result<Result<Queries, String>, Error> {
        let Self { name, key, body } = self;
        let types = match self.types(client).await? {
            Ok(types) => types,
            Err(reason) => return Ok(Err(reason)),
        };
        // Its bytes, as they are.
        let as_text = if types.body == Type::BYTEA { "" } else { "::text" };
        let key_type = type_name(&types.key);
        let find = format!("SELECT {body}{as_text} FROM {name} WHERE {key} = $1::text::{key_type} LIMIT 2");
        // There are types without an `=`.
        client.prepare_typed(&find, &[Type::TEXT]).await?;
        let list = format!("SELECT {key}::text FROM {name} WHERE {key} IS NOT NULL");
        Ok(Ok(Queries { find, list }))
    }

    /// Looks at it: it has to be there and readable, and its bodies have to be bytes or text.
    pub(super) async fn types(&self, client: &Client) -> Result<Result<Types, String>, Error> {
        let Self { name, key, body } = self;
        let look = client.prepare(&format!("SELECT {key}, {body} FROM {name} LIMIT 0")).await?;
        client.query(&look, &[]).await?;
        let [key, body_type] = [0, 1].map(|column: usize| look.columns()[column].type_().clone());
        Ok(match body_type {
            Type::BYTEA | Type::TEXT | Type::VARCHAR | Type::JSON | Type::JSONB => {
                Ok(Types { key, body: body_type })
            }
            other => Err(format!(
                "column {body} is of type {other}; name one of type bytea, text, json or jsonb with `body`"
            )),
        })
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// As SQL has it.
pub(super) fn type_name(of: &Type) -> String {
    format!("{}.{}", quoted(of.schema()), quoted(of.name()))
}

/// The bytes of a body.
pub(super) struct Body(pub(super) Bytes);

impl<'a> FromSql<'a> for Body {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Bytes::copy_from_slice(raw)))
    }

    fn accepts(of: &Type) -> bool {
        matches!(*of, Type::BYTEA | Type::TEXT)
    }
}
