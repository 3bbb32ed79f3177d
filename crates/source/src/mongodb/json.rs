//! Documents as relaxed extended JSON (MongoDB Extended JSON v2), with fields in the order of the BSON.

use bson::{Bson, RawBsonRef, RawDocument};
use serde::{Serialize, Serializer, ser::Error};
use stockade_model::source::Document;

use super::error::MongoDbError;

pub(super) fn relaxed(document: &RawDocument) -> Result<Document, MongoDbError> {
    let mut bytes = Vec::with_capacity(document.as_bytes().len());
    serde_json::to_writer(&mut bytes, &BsonFields(document))
        .map_err(|error| MongoDbError::Message(format!("its document is damaged: {error}")))?;
    Ok(bytes.into())
}

struct BsonFields<'a>(&'a RawDocument);

impl Serialize for BsonFields<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.iter().map(|field| field.map(|(name, value)| (name.as_str(), BsonValue(value))));
        let fields: Vec<_> = fields.collect::<Result<_, _>>().map_err(S::Error::custom)?;
        to.collect_map(fields)
    }
}

struct BsonValue<'a>(RawBsonRef<'a>);

impl Serialize for BsonValue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            RawBsonRef::Document(document) => BsonFields(document).serialize(to),
            RawBsonRef::Array(values) => {
                let values: Vec<_> = values
                    .into_iter()
                    .map(|value| value.map(BsonValue))
                    .collect::<Result<_, _>>()
                    .map_err(S::Error::custom)?;
                to.collect_seq(values)
            }
            RawBsonRef::String(text) => to.serialize_str(text),
            // A value without fields has no order to preserve.
            value => Bson::try_from(value).map_err(S::Error::custom)?.into_relaxed_extjson().serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{
        Binary, DateTime, Decimal128, RawDocumentBuf, Regex, Timestamp, doc, oid::ObjectId,
        spec::BinarySubtype,
    };

    use super::*;

    /// The examples of the specification of extended JSON, in an order that no map would preserve.
    #[test]
    fn every_type_is_serialized_as_specified_and_in_order() {
        let document = doc! {
            "z": ObjectId::parse_str("56e1fc72e0c917e9c4714161").unwrap(),
            "y": [1, 2_i64, 3.5, f64::NAN, true, null],
            "x": { "b": "text \" \n", "a": {} },
            "w": DateTime::from_millis(1_565_546_054_692),
            "v": DateTime::from_millis(-1),
            "u": Binary { subtype: BinarySubtype::Generic, bytes: vec![0xff, 0xff] },
            "t": Regex { pattern: "^H".try_into().unwrap(), options: "i".try_into().unwrap() },
            "s": Timestamp { time: 42, increment: 1 },
            "r": Bson::MinKey,
            "q": "1.50".parse::<Decimal128>().unwrap(),
            "p": i64::MAX,
        };
        let written = relaxed(&RawDocumentBuf::try_from(&document).unwrap()).unwrap();
        let expected = concat!(
            r#"{"z":{"$oid":"56e1fc72e0c917e9c4714161"},"#,
            r#""y":[1,2,3.5,{"$numberDouble":"NaN"},true,null],"#,
            r#""x":{"b":"text \" \n","a":{}},"#,
            r#""w":{"$date":"2019-08-11T17:54:14.692Z"},"#,
            r#""v":{"$date":{"$numberLong":"-1"}},"#,
            r#""u":{"$binary":{"base64":"//8=","subType":"00"}},"#,
            r#""t":{"$regularExpression":{"options":"i","pattern":"^H"}},"#,
            r#""s":{"$timestamp":{"i":1,"t":42}},"#,
            r#""r":{"$minKey":1},"#,
            r#""q":{"$numberDecimal":"1.50"},"#,
            r#""p":9223372036854775807}"#,
        );
        assert_eq!(std::str::from_utf8(&written).unwrap(), expected);
        assert_eq!(serde_json::from_slice::<bson::Document>(&written).unwrap().keys().next().unwrap(), "z");
    }
}
