//! Puts documents into a table.

use stockade_model::time::Live;
use tokio_postgres::{Client, Error, types::Type};

use super::{
    server::Server,
    table::{Table, Types, type_name},
};
use crate::{OpenError, documents::NamedDocument};

/// How many documents go in one message.
const BATCH: usize = 100;

/// All of them or none. Somebody's table is not written to, unless it holds these very documents.
pub(super) async fn fill(server: &Server, documents: &[NamedDocument]) -> Result<(), OpenError> {
    let (time, table) = (Live::new(), &server.table);
    let (client, mut line) = server.connect(&time, server.tls()?).await?;
    line.carry(begin(table, &client)).await?;
    let types = line.carry(table.types(&client)).await?;
    let types = types.map_err(|reason| server.remote.unusable(reason))?;
    let stored = line.carry(client.query_one(&format!("SELECT count(*) FROM {}", table.name), &[])).await?;
    let stored = usize::try_from(stored.get::<_, i64>(0)).unwrap_or(usize::MAX);
    let step = if stored == 0 { insert(table, &types) } else { select_same(table, &types) };
    let mut done = 0;
    if stored == 0 || stored == documents.len() {
        let step = line.carry(client.prepare_typed(&step, &[Type::TEXT_ARRAY, Type::BYTEA_ARRAY])).await?;
        for batch in documents.chunks(BATCH) {
            let keys: Vec<&str> = batch.iter().map(|document| &*document.id).collect();
            let bodies: Vec<&[u8]> = batch.iter().map(|document| &*document.body).collect();
            done += line.carry(client.execute(&step, &[&keys, &bodies])).await?;
        }
    }
    if done != documents.len() as u64 {
        let remedy = "leave --docs-from out to use them, or name a new table with `table`";
        return Err(server.remote.unusable(format!("it holds {stored} other documents; {remedy}")));
    }
    line.carry(client.batch_execute("COMMIT")).await?;
    line.close(client).await;
    Ok(())
}

/// Begins a transaction in which there is such a table, and nobody else writes to it.
async fn begin(table: &Table, client: &Client) -> Result<(), Error> {
    let Table { name, key, body } = table;
    client.batch_execute("BEGIN").await?;
    // Who may write to it need not be allowed to make it.
    if client.query_one("SELECT to_regclass($1) IS NULL", &[name]).await?.get(0) {
        let create = format!("CREATE TABLE {name} ({key} text PRIMARY KEY, {body} bytea NOT NULL)");
        client.batch_execute(&create).await?;
    }
    client.batch_execute(&format!("LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")).await
}

/// Puts documents in, given as an array of keys and one of bodies.
fn insert(table: &Table, types: &Types) -> String {
    let Table { name, key, body } = table;
    let (key_type, value) = (type_name(&types.key), value(types));
    format!(
        "INSERT INTO {name} ({key}, {body}) \
         SELECT given.key::{key_type}, {value} FROM unnest($1, $2) AS given (key, body)"
    )
}

/// Gives a row for each of these documents that is there as it is given.
fn select_same(table: &Table, types: &Types) -> String {
    let Table { name, key, body } = table;
    let (key_type, value) = (type_name(&types.key), value(types));
    // What is JSON to the letter cannot be compared but to the letter.
    let as_text = if types.body == Type::JSON { "::text" } else { "" };
    format!(
        "SELECT FROM {name} AS stored JOIN unnest($1, $2) AS given (key, body) \
         ON stored.{key} = given.key::{key_type} \
         WHERE stored.{body}{as_text} = {value}{as_text}"
    )
}

/// The bytes of a document as a column has them.
fn value(types: &Types) -> String {
    match types.body {
        Type::BYTEA => "given.body".to_owned(),
        _ => format!("convert_from(given.body, 'UTF8')::{}", type_name(&types.body)),
    }
}
