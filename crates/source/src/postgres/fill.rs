//! Fills a table.

use stockade_model::time::Live;
use tokio_postgres::{Client, Error, types::Type};

use super::{
    location::PostgresLocation,
    table::{ColumnTypes, DocumentTable, type_name},
};
use crate::{OpenError, documents::NamedDocument};

/// Documents in one message.
const BATCH: usize = 100;

/// Inserts all documents or none. A table with other documents is refused.
pub(super) async fn fill(server: &PostgresLocation, documents: &[NamedDocument]) -> Result<(), OpenError> {
    let (time, table) = (Live::new(), &server.table);
    let (client, mut connection) = server.connect(&time, server.tls()?).await?;
    connection.run(begin_with_lock(table, &client)).await?;
    let types = connection.run(table.types(&client)).await?;
    let types = types.map_err(|reason| server.remote.unusable(reason))?;
    let stored =
        connection.run(client.query_one(&format!("SELECT count(*) FROM {}", table.name), &[])).await?;
    let stored = usize::try_from(stored.get::<_, i64>(0)).unwrap_or(usize::MAX);
    let step = if stored == 0 { insert(table, &types) } else { select_same(table, &types) };
    let mut done = 0;
    if stored == 0 || stored == documents.len() {
        let step =
            connection.run(client.prepare_typed(&step, &[Type::TEXT_ARRAY, Type::BYTEA_ARRAY])).await?;
        for batch in documents.chunks(BATCH) {
            let keys: Vec<&str> = batch.iter().map(|document| &*document.id).collect();
            let bodies: Vec<&[u8]> = batch.iter().map(|document| &*document.body).collect();
            done += connection.run(client.execute(&step, &[&keys, &bodies])).await?;
        }
    }
    if done != documents.len() as u64 {
        let remedy = "leave --docs-from out to use them, or name a new table with `table`";
        return Err(server.remote.unusable(format!("it holds {stored} other documents; {remedy}")));
    }
    connection.run(client.batch_execute("COMMIT")).await?;
    connection.close(client).await;
    Ok(())
}

/// Begins a transaction, creates the table if it is missing, and locks it against other writers.
async fn begin_with_lock(table: &DocumentTable, client: &Client) -> Result<(), Error> {
    let DocumentTable { name, key, body } = table;
    client.batch_execute("BEGIN").await?;
    // A user with the right to write need not have the right to create.
    if client.query_one("SELECT to_regclass($1) IS NULL", &[name]).await?.get(0) {
        let create = format!("CREATE TABLE {name} ({key} text PRIMARY KEY, {body} bytea NOT NULL)");
        client.batch_execute(&create).await?;
    }
    client.batch_execute(&format!("LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")).await
}

/// Inserts documents from an array of keys and an array of bodies.
fn insert(table: &DocumentTable, types: &ColumnTypes) -> String {
    let DocumentTable { name, key, body } = table;
    let (key_type, value) = (type_name(&types.key), value(types));
    format!(
        "INSERT INTO {name} ({key}, {body}) \
         SELECT given.key::{key_type}, {value} FROM unnest($1, $2) AS given (key, body)"
    )
}

/// Selects a row for each document that is stored with equal content.
fn select_same(table: &DocumentTable, types: &ColumnTypes) -> String {
    let DocumentTable { name, key, body } = table;
    let (key_type, value) = (type_name(&types.key), value(types));
    // The type `json` has no equality, so its text is compared.
    let as_text = if types.body == Type::JSON { "::text" } else { "" };
    format!(
        "SELECT FROM {name} AS stored JOIN unnest($1, $2) AS given (key, body) \
         ON stored.{key} = given.key::{key_type} \
         WHERE stored.{body}{as_text} = {value}{as_text}"
    )
}

/// The expression that converts a document's bytes to the type of the column.
fn value(types: &ColumnTypes) -> String {
    match types.body {
        Type::BYTEA => "given.body".to_owned(),
        _ => format!("convert_from(given.body, 'UTF8')::{}", type_name(&types.body)),
    }
}
