//! Keys of documents as text: strings, object ids and whole numbers.

use std::sync::Arc;

use bson::{Bson, Document, RawBsonRef, RawDocument, doc, oid::ObjectId};

use super::error::MongoDbError;

/// A query for the document with this key. Numbers are equal whatever their type.
pub(super) fn equals(key: &str, id: &str) -> Document {
    let object = ObjectId::parse_str(id).ok().filter(|object| object.to_hex() == id).map(Bson::ObjectId);
    let number = id.parse::<i64>().ok().filter(|number| number.to_string() == id).map(Bson::Int64);
    match object.or(number) {
        Some(other) => doc! { key: { "$in": [id, other] } },
        None => doc! { key: id },
    }
}

/// The key of a document as text.
pub(super) fn text(key: &str, document: &RawDocument) -> Result<Arc<str>, MongoDbError> {
    let value = document.get(key).ok().flatten();
    let text = value.and_then(|value| match value {
        RawBsonRef::String(text) => Some(text.to_owned()),
        RawBsonRef::ObjectId(object) => Some(object.to_hex()),
        RawBsonRef::Int32(number) => Some(number.to_string()),
        RawBsonRef::Int64(number) => Some(number.to_string()),
        // Old shells store all numbers as doubles.
        RawBsonRef::Double(number) => integer(number),
        _ => None,
    });
    text.map(Arc::from).ok_or_else(|| {
        let found =
            value.map_or("nothing".to_owned(), |value| format!("a value of type {:?}", value.element_type()));
        MongoDbError::Message(format!(
            "a document's `{key}` is {found}: it has to be a string, an object id or a whole number"
        ))
    })
}

/// The double as a whole number, if it is one and doubles of its size are exact.
fn integer(number: f64) -> Option<String> {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    (number.fract() == 0.0 && number.abs() <= LARGEST).then(|| format!("{}", number + 0.0))
}

#[cfg(test)]
mod tests {
    use bson::RawDocumentBuf;

    use super::*;

    #[test]
    fn keys_round_trip_through_text() {
        let object = ObjectId::parse_str("56e1fc72e0c917e9c4714161").unwrap();
        for (value, written, query) in [
            (Bson::from("a"), "a", doc! { "k": "a" }),
            (
                Bson::from(object),
                "56e1fc72e0c917e9c4714161",
                doc! { "k": { "$in": ["56e1fc72e0c917e9c4714161", object] } },
            ),
            (Bson::from(-7_i32), "-7", doc! { "k": { "$in": ["-7", -7_i64] } }),
            (Bson::from(7_i64), "7", doc! { "k": { "$in": ["7", 7_i64] } }),
            (Bson::from(-0.0), "0", doc! { "k": { "$in": ["0", 0_i64] } }),
            (Bson::from("07"), "07", doc! { "k": "07" }),
            (
                Bson::from("56E1FC72E0C917E9C4714161"),
                "56E1FC72E0C917E9C4714161",
                doc! { "k": "56E1FC72E0C917E9C4714161" },
            ),
        ] {
            let document = RawDocumentBuf::try_from(&doc! { "k": value }).unwrap();
            assert_eq!(&*text("k", &document).unwrap(), written);
            assert_eq!(equals("k", written), query);
        }
        for value in [Bson::from(0.5), Bson::from(1e300), Bson::from(true), Bson::Null] {
            let document = RawDocumentBuf::try_from(&doc! { "k": value }).unwrap();
            let Err(MongoDbError::Message(message)) = text("k", &document) else { panic!("{document:?}") };
            assert!(message.contains("has to be a string, an object id or a whole number"), "{message}");
        }
    }
}
