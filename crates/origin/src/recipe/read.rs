//! Reads recipes: what was typed becomes what it means.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Write,
    ops::Range,
    path::Path,
    slice,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use jsonc_parser::ast::{StringLit, Value};
use serde_json::json;
use stockade_model::{capacity::Capacity, latency::Files};

use super::{
    Content, Recipe, RecipeError,
    error::{Wrong, echo, line_of},
    json::{self, EXAMPLE, beginning, place, place_in},
    object::{Object, cannot_be, named, twice},
    stage::stages,
    template::template,
    units::{content_size, count, time},
};
use crate::stages::Stages;

const KEYS: [&str; 10] = [
    "origin",
    "body",
    "random_content",
    "headers",
    "stages",
    "route",
    "capacity",
    "etag",
    "last_modified",
    "version_every",
];
const CONTENTS: [&str; 3] = ["origin", "body", "random_content"];
const EVERYTHING: &str = "/*";
/// A text has no more.
const RECIPES_MAX: usize = 10_000;
/// An answer has no more; clients take a hundred.
const HEADERS_MAX: usize = 1_000;
const COUNT_MAX: usize = 1_000_000;
/// A version lasts no shorter: each is made anew.
const VERSION_LASTS_MIN: Duration = Duration::from_millis(1);

/// Reads one recipe, or a list of them, from JSON; all of them or none.
///
/// Errors call the text `name`. Files of latencies are named from `folder` on. The language is that of
/// `OriginSimulator` (`origin`, `body`, `random_content`, `headers`, `stages`, `route`), with faults,
/// odds, rates, capacity and versions; a key that is `null` is as good as none.
///
/// ```
/// use std::{path::Path, time::Duration};
/// use stockade_origin::recipe::{Content, read};
///
/// let text = r#"{
///     "route": "/news*",
///     "random_content": "428kb",
///     "stages": [
///         {"at": 0, "latency": "100ms"},
///         {"at": "4s", "status": {"200": 0.9, "503": 0.1}, "fault": {"reset": 0.01}}
///     ]
/// }"#;
/// let recipes = read(text, "recipe.json", Path::new(""))?;
/// assert_eq!(recipes[0].content, Content::Random(428 * 1024));
/// assert_eq!(recipes[0].stages.next_after(Duration::ZERO), Some(Duration::from_secs(4)));
///
/// let error = read(&text.replace("status", "statsu"), "recipe.json", Path::new("")).unwrap_err();
/// assert_eq!(error.in_one_line(), "recipe.json:6:22: unknown key `statsu`: did you mean `status`?");
/// # Ok::<(), Box<stockade_origin::recipe::RecipeError>>(())
/// ```
pub fn read(text: &str, name: &str, folder: &Path) -> Result<Vec<Recipe>, Box<RecipeError>> {
    recipes(text, folder).map_err(|wrong| Box::new(RecipeError::new(wrong, text, name)))
}

fn recipes(text: &str, folder: &Path) -> Result<Vec<Recipe>, Wrong> {
    let value = json::parse(text)?;
    let list = match &value {
        Value::Array(list) => list.elements.as_slice(),
        one => slice::from_ref(one),
    };
    if let Some(first) = list.get(RECIPES_MAX) {
        return Err(Wrong::new("there are more than 10,000 recipes", "send fewer at once", beginning(first)));
    }
    let mut routes: HashMap<String, usize> = HashMap::new();
    let mut files = Files::below(folder);
    let mut recipes = Vec::with_capacity(list.len());
    for value in list {
        let object = Object::read(value, "a recipe", &KEYS, EXAMPLE)?;
        let recipe = recipe(&object, &text[place(value)], text, &mut files)?;
        match routes.entry(recipe.route.clone()) {
            Entry::Vacant(entry) => entry.insert(object.at.start),
            Entry::Occupied(entry) => {
                let line = line_of(text, *entry.get());
                let route = echo(&recipe.route);
                let message = format!("the recipe of line {line} has the route `{route}`, too");
                let help = "give one of them another route, or take it out";
                let at = object.get("route").map_or(object.at, place);
                return Err(Wrong::new(message, help, at));
            }
        };
        recipes.push(recipe);
    }
    Ok(recipes)
}

/// What one object means, which is written so in the text.
fn recipe(object: &Object<'_>, own: &str, text: &str, files: &mut Files) -> Result<Recipe, Wrong> {
    let route = object.get("route").map_or(Ok(EVERYTHING.to_owned()), |value| route(value, text))?;
    let content = content(object, text)?;
    let (headers, header_at) = headers(object.get("headers"))?;
    let adds = |key: &str, name: HeaderName| {
        let is_on = object.get(key).map_or(Ok(false), |value| flag(value, key))?;
        match header_at.get(&name).filter(|_| is_on) {
            Some(at) => {
                let message = format!("`{key}` makes the header `{name}`, which stands here, too");
                Err(Wrong::new(message, format!("leave out the header or `{key}`"), at.clone()))
            }
            None => Ok(is_on),
        }
    };
    Ok(Recipe {
        route,
        content,
        etag: adds("etag", header::ETAG)?,
        last_modified: adds("last_modified", header::LAST_MODIFIED)?,
        headers,
        stages: object.get("stages").map_or(Ok(Stages::default()), |value| stages(value, text, files))?,
        capacity: object.get("capacity").map(capacity).transpose()?,
        version_every: object.get("version_every").map(version_every).transpose()?,
        written: written(own, object)?,
    })
}

/// A path, or with a `*` at its end all that begin so.
fn route(value: &Value<'_>, text: &str) -> Result<String, Wrong> {
    let help = "write a path such as `/news`, or `/news*` for all that begin so";
    let Value::StringLit(literal) = value else { return Err(cannot_be("route", value, help)) };
    let route = literal.value.as_ref();
    if !route.starts_with('/') {
        let message = format!("the route `{}` does not begin with `/`", echo(route));
        return Err(Wrong::new(message, help, place(value)));
    }
    let last = route.len() - 1;
    let is_odd = |(at, char): &(usize, char)| match char {
        '*' => *at < last,
        '?' | '#' => true,
        char => !char.is_ascii_graphic(),
    };
    let Some((at, char)) = route.char_indices().find(is_odd) else { return Ok(route.to_owned()) };
    let (message, help) = match char {
        '*' => ("`*` stands at the end of a route only".to_owned(), help.to_owned()),
        '?' | '#' => (
            format!("`{char}` is no part of a path, and only the path is looked at"),
            "leave out what follows the path".to_owned(),
        ),
        char => {
            let mut sent = String::new();
            for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(sent, "%{byte:02X}");
            }
            let char = echo(&char.to_string());
            (format!("`{char}` is never sent in a path"), format!("write `{sent}`"))
        }
    };
    Err(Wrong::new(message, help, place_in(text, literal, at..at + char.len_utf8())))
}

fn content(object: &Object<'_>, text: &str) -> Result<Content, Wrong> {
    let mut given = CONTENTS.iter().filter_map(|key| Some((*key, object.get(key)?)));
    let Some((key, value)) = given.next() else {
        let help = "write one of `origin`, `body` and `random_content`";
        return Err(Wrong::new("the recipe has no content", help, object.at.clone()));
    };
    if let Some((other, _)) = given.next() {
        let (first, second) = (object.key(key), object.key(other));
        let at = if first.start > second.start { first } else { second };
        return Err(Wrong::new(format!("the recipe has `{key}` and `{other}`"), "keep one of them", at));
    }
    match (key, value) {
        ("random_content", value) => Ok(Content::Random(content_size(value, key)?)),
        ("origin", Value::StringLit(url)) => origin(url).map(Content::Origin),
        ("body", Value::StringLit(body)) => {
            let parts = template(&body.value, |said| place_in(text, body, said))?;
            Ok(Content::Template(parts))
        }
        ("origin", value) => Err(cannot_be(key, value, URL)),
        (_, value) => Err(cannot_be(key, value, "write text, such as `\"{\\\"hello\\\": \\\"world\\\"}\"`")),
    }
}

const URL: &str = "write a URL such as `http://127.0.0.1:8081/news`";

/// A URL may have a password in it: no message repeats it.
fn origin(url: &StringLit<'_>) -> Result<Uri, Wrong> {
    let wrong = |message: String| Wrong::new(message, URL, place(url));
    let begins =
        |scheme: &str| url.value.get(..scheme.len()).is_some_and(|of| of.eq_ignore_ascii_case(scheme));
    if !["http://", "https://"].into_iter().any(begins) {
        return Err(wrong("`origin` begins neither with `http://` nor with `https://`".to_owned()));
    }
    let uri: Uri = url.value.parse().map_err(|error| wrong(format!("`origin` is no URL: {error}")))?;
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let after_host = uri.host().and_then(|host| address.strip_prefix(host)).unwrap_or_default();
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong("`origin` names no host".to_owned()));
    }
    if !after_host.is_empty() && uri.port_u16().is_none_or(|port| port == 0) {
        return Err(wrong("`origin` has a port that is none".to_owned()));
    }
    Ok(uri)
}

type Headers = (HeaderMap, HashMap<HeaderName, Range<usize>>);

/// Headers, and where their names are written.
fn headers(value: Option<&Value<'_>>) -> Result<Headers, Wrong> {
    let (mut headers, mut at) = Headers::default();
    let Some(value) = value else { return Ok((headers, at)) };
    let example = "write an object, such as `{\"cache-control\": \"max-age=30\"}`";
    let Value::Object(object) = value else { return Err(cannot_be("headers", value, example)) };
    if let Some(first) = object.properties.get(HEADERS_MAX) {
        return Err(Wrong::new("a recipe has at most 1,000 headers", "write fewer", place(&first.name)));
    }
    for (name, property) in named(object) {
        let name_at = place(&property.name);
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            let message = format!("`{}` is no name of a header", echo(name));
            let help = "write letters, digits and hyphens, such as `cache-control`";
            Wrong::new(message, help, name_at.clone())
        })?;
        let Value::StringLit(text) = &property.value else {
            return Err(cannot_be("a header", &property.value, "write text, such as `\"max-age=30\"`"));
        };
        let value = HeaderValue::from_bytes(text.value.as_bytes()).map_err(|_| {
            let message = format!("the header `{}` has a control character in it", echo(name));
            Wrong::new(message, "leave out line breaks and the like", place(&property.value))
        })?;
        if known == header::ETAG && !is_tag(value.as_bytes()) {
            let message =
                format!("the header `{}` is no tag without quotes, and would match nothing", echo(name));
            return Err(Wrong::new(message, TAG, place(&property.value)));
        }
        if at.insert(known.clone(), name_at).is_some() {
            return Err(twice(property));
        }
        // The origin frames its own messages.
        if known != header::CONTENT_LENGTH && known != header::TRANSFER_ENCODING {
            headers.insert(known, value);
        }
    }
    Ok((headers, at))
}

const TAG: &str = r#"write it in quotes, such as `"\"abc\""` or `"W/\"abc\""`"#;

/// Whether it names a version, as RFC 9110, 8.8.3 has it.
fn is_tag(value: &[u8]) -> bool {
    let quoted = value.strip_prefix(b"W/").unwrap_or(value);
    let inside = quoted.strip_prefix(b"\"").and_then(|quoted| quoted.strip_suffix(b"\""));
    inside.is_some_and(|inside| inside.iter().all(|byte| *byte > b' ' && ![b'"', 0x7f].contains(byte)))
}

fn flag(value: &Value<'_>, key: &str) -> Result<bool, Wrong> {
    match value {
        Value::BooleanLit(flag) => Ok(flag.value),
        other => Err(cannot_be(key, other, "write true or false")),
    }
}

fn capacity(value: &Value<'_>) -> Result<Capacity, Wrong> {
    let example = "write an object, such as `{\"workers\": 8, \"queue\": 100}`";
    let object = Object::read(value, "capacity", &["workers", "queue"], example)?;
    let read = |key: &str, range| {
        let value = object
            .get(key)
            .ok_or_else(|| Wrong::new(format!("the capacity has no `{key}`"), example, object.at.clone()))?;
        count(value, key, range)
    };
    Ok(Capacity { workers: read("workers", 1..COUNT_MAX + 1)?, queue: read("queue", 0..COUNT_MAX + 1)? })
}

fn version_every(value: &Value<'_>) -> Result<Duration, Wrong> {
    let every = time(value, "version_every")?;
    if every.is_zero() {
        let help = "write a time such as `\"10s\"`, or leave it out: one version, for ever";
        return Err(Wrong::new("a version cannot last 0", help, place(value)));
    }
    if every < VERSION_LASTS_MIN {
        return Err(Wrong::new(
            "a version cannot last less than 1 ms",
            "write `\"1ms\"` or more",
            place(value),
        ));
    }
    Ok(every)
}

/// The recipe as it was written, and the keys that every recipe of `OriginSimulator` has.
fn written(own: &str, object: &Object<'_>) -> Result<serde_json::Value, Wrong> {
    // Between two values a line break says nothing, and in a text it is none.
    let own = own.replace(['\n', '\r'], "");
    let mut keys: serde_json::Map<_, _> = serde_json::from_str(&own).map_err(|error| {
        Wrong::new(format!("this cannot be kept: {error}"), "write it in another way", object.at.clone())
    })?;
    let absent = [("headers", json!({})), ("stages", json!([])), ("route", json!(EVERYTHING))];
    for (key, absent) in CONTENTS.map(|key| (key, serde_json::Value::Null)).into_iter().chain(absent) {
        if object.get(key).is_none() {
            keys.insert(key.to_owned(), absent);
        }
    }
    Ok(keys.into())
}
