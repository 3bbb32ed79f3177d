//! The SQL statements of a table.

use bytes::Bytes;
use tokio_postgres::{
    Client, Error,
    types::{FromSql, Type},
};

/// Quoted names, so that no part of a URL is executed as SQL.
pub(super) struct DocumentTable {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) body: String,
}

pub(super) struct Queries {
    /// Selects a body by the text of its key.
    pub(super) find: String,
    /// Selects the text of each key.
    pub(super) list: String,
}

pub(super) struct ColumnTypes {
    pub(super) key: Type,
    pub(super) body: Type,
}

impl DocumentTable {
    /// A name with a dot is a schema and a table.
    pub(super) fn new(name: &str, key: &str, body: &str) -> Result<Self, String> {
        for (setting, value) in [("table", name), ("key", key), ("body", body)] {
            if value.is_empty() || value.contains('\0') {
                return Err(format!("`{setting}` is not a name"));
            }
        }
        let name = name.split('.').map(quoted).collect::<Vec<_>>().join(".");
        Ok(Self { name, key: quoted(key), body: quoted(body) })
    }

    /// The statements, or the reason why the table is unsuitable.
    pub(super) async fn queries(&self, client: &Client) -> Result<Result<Queries, String>, Error> {
        let Self { name, key, body } = self;
        let types = match self.types(client).await? {
            Ok(types) => types,
            Err(reason) => return Ok(Err(reason)),
        };
        // A `bytea` is read as its bytes.
        let as_text = if types.body == Type::BYTEA { "" } else { "::text" };
        let key_type = type_name(&types.key);
        let find = format!("SELECT {body}{as_text} FROM {name} WHERE {key} = $1::text::{key_type} LIMIT 2");
        // Some types have no operator `=`.
        client.prepare_typed(&find, &[Type::TEXT]).await?;
        let list = format!("SELECT {key}::text FROM {name} WHERE {key} IS NOT NULL");
        Ok(Ok(Queries { find, list }))
    }

    /// Checks that the table exists and is readable, and that its bodies are bytes or text.
    pub(super) async fn types(&self, client: &Client) -> Result<Result<ColumnTypes, String>, Error> {
        let Self { name, key, body } = self;
        let look = client.prepare(&format!("SELECT {key}, {body} FROM {name} LIMIT 0")).await?;
        client.query(&look, &[]).await?;
        let [key, body_type] = [0, 1].map(|column: usize| look.columns()[column].type_().clone());
        Ok(match body_type {
            Type::BYTEA | Type::TEXT | Type::VARCHAR | Type::JSON | Type::JSONB => {
                Ok(ColumnTypes { key, body: body_type })
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

/// The name of the type in SQL.
pub(super) fn type_name(of: &Type) -> String {
    format!("{}.{}", quoted(of.schema()), quoted(of.name()))
}

pub(super) struct BodyColumn(pub(super) Bytes);

impl<'a> FromSql<'a> for BodyColumn {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Bytes::copy_from_slice(raw)))
    }

    fn accepts(of: &Type) -> bool {
        matches!(*of, Type::BYTEA | Type::TEXT)
    }
}
