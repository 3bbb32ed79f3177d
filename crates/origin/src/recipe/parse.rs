//! Parses recipes from JSON.

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
use stockade_model::{capacity::Capacity, latency::LatencyFiles};

use super::{
    Content, Recipe, RecipeError,
    error::{RecipeProblem, abbreviate, line_number},
    fields::{RecipeFields, duplicate_key, named_properties, wrong_type},
    json::{RECIPE_HELP, first_char, parse_json, source_span, span},
    stage::parse_stages,
    template::parse_template,
    units::{parse_content_size, parse_count, parse_time},
};
use crate::stages::Stages;

const KEYS: [&str; 12] = [
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
    "owner",
    "variant",
];
const CONTENT_KEYS: [&str; 3] = ["origin", "body", "random_content"];
const ROUTE_DEFAULT: &str = "/*";
const RECIPES_MAX: usize = 10_000;
/// Clients accept about a hundred.
const HEADERS_MAX: usize = 1_000;
/// Bound of workers, and of the queue.
const CAPACITY_MAX: usize = 1_000_000;
/// Each version is built anew, so versions cannot be arbitrarily short.
const VERSION_EVERY_MIN: Duration = Duration::from_millis(1);

/// Parses one recipe, or a list of recipes, from JSON.
///
/// Errors call the text `name`. Paths of latency files are relative to `folder`. The language is that of
/// `OriginSimulator` (`origin`, `body`, `random_content`, `headers`, `stages`, `route`), extended by faults, shares,
/// rates, capacity and versions. A key whose value is `null` counts as absent.
///
/// # Errors
/// The first error in the text. Then no recipe is returned.
///
/// ```
/// use std::{path::Path, time::Duration};
/// use stockade_origin::recipe::{Content, parse};
///
/// let text = r#"{
///     "route": "/news*",
///     "random_content": "428kb",
///     "stages": [
///         {"at": 0, "latency": "100ms"},
///         {"at": "4s", "status": {"200": 0.9, "503": 0.1}, "fault": {"reset": 0.01}}
///     ]
/// }"#;
/// let recipes = parse(text, "recipe.json", Path::new(""))?;
/// assert_eq!(recipes[0].content, Content::Random(428 * 1024));
/// assert_eq!(recipes[0].stages.next_start_after(Duration::ZERO), Some(Duration::from_secs(4)));
///
/// let error = parse(&text.replace("status", "statsu"), "recipe.json", Path::new("")).unwrap_err();
/// assert_eq!(error.in_one_line(), "recipe.json:6:22: unknown key `statsu`: did you mean `status`?");
/// # Ok::<(), Box<stockade_origin::recipe::RecipeError>>(())
/// ```
pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Vec<Recipe>, Box<RecipeError>> {
    parse_recipes(text, folder).map_err(|problem| Box::new(RecipeError::new(problem, text, name)))
}

fn parse_recipes(text: &str, folder: &Path) -> Result<Vec<Recipe>, RecipeProblem> {
    let value = parse_json(text)?;
    let list = match &value {
        Value::Array(list) => list.elements.as_slice(),
        single => slice::from_ref(single),
    };
    if let Some(first) = list.get(RECIPES_MAX) {
        return Err(RecipeProblem::new(
            "the text has more than 10,000 recipes",
            "send fewer recipes at once",
            first_char(first),
        ));
    }
    let mut routes: HashMap<String, usize> = HashMap::new();
    let mut files = LatencyFiles::below(folder);
    let mut recipes = Vec::with_capacity(list.len());
    for value in list {
        let fields = RecipeFields::parse(value, "a recipe", &KEYS, RECIPE_HELP)?;
        let recipe = parse_recipe(&fields, &text[span(value)], text, &mut files)?;
        match routes.entry(recipe.route.clone()) {
            Entry::Vacant(entry) => entry.insert(fields.span.start),
            Entry::Occupied(entry) => {
                let line = line_number(text, *entry.get());
                let route = abbreviate(&recipe.route);
                let message = format!("the recipe on line {line} has the same route `{route}`");
                let span = fields.get("route").map_or(fields.span, span);
                return Err(RecipeProblem::new(
                    message,
                    "change one of the routes, or remove a recipe",
                    span,
                ));
            }
        };
        recipes.push(recipe);
    }
    Ok(recipes)
}

/// Parses one recipe, which is `recipe_text` in the whole text.
fn parse_recipe(
    fields: &RecipeFields<'_>,
    recipe_text: &str,
    whole_text: &str,
    files: &mut LatencyFiles,
) -> Result<Recipe, RecipeProblem> {
    let route = fields.get("route");
    let stages = fields.get("stages");
    let route = route.map_or(Ok(ROUTE_DEFAULT.to_owned()), |value| parse_route(value, whole_text))?;
    let content = parse_content(fields, whole_text)?;
    let (headers, name_spans) = parse_headers(fields.get("headers"))?;
    let generated = |key: &str, name: HeaderName| {
        let is_on = fields.get(key).map_or(Ok(false), |value| parse_bool(value, key))?;
        match name_spans.get(&name).filter(|_| is_on) {
            Some(span) => {
                let message = format!("`{key}` generates the header `{name}`, which the recipe also sets");
                Err(RecipeProblem::new(message, format!("remove the header or `{key}`"), span.clone()))
            }
            None => Ok(is_on),
        }
    };
    Ok(Recipe {
        route,
        content,
        etag: generated("etag", header::ETAG)?,
        last_modified: generated("last_modified", header::LAST_MODIFIED)?,
        headers,
        stages: stages.map_or(Ok(Stages::default()), |value| parse_stages(value, whole_text, files))?,
        capacity: fields.get("capacity").map(parse_capacity).transpose()?,
        owner: fields.get("owner").map(|value| parse_field_name("owner", value)).transpose()?,
        variant: fields.get("variant").map(|value| parse_field_name("variant", value)).transpose()?,
        version_every: fields.get("version_every").map(parse_version_every).transpose()?,
        json: complete_json(recipe_text, fields)?,
    })
}

/// Parses the name of a field of requests.
fn parse_field_name(key: &str, value: &Value<'_>) -> Result<HeaderName, RecipeProblem> {
    let help = "write the name of a field of requests, such as `cookie` or `accept-language`";
    let Value::StringLit(literal) = value else { return Err(wrong_type(key, value, help)) };
    literal.value.parse().map_err(|_| {
        let message = format!("`{}` is not the name of a field", abbreviate(&literal.value));
        RecipeProblem::new(message, help, span(value))
    })
}

/// Parses a path, or a prefix with a `*` at its end.
fn parse_route(value: &Value<'_>, text: &str) -> Result<String, RecipeProblem> {
    let help = "write a path such as `/news`, or a prefix such as `/news*`";
    let Value::StringLit(literal) = value else { return Err(wrong_type("route", value, help)) };
    let route = literal.value.as_ref();
    if !route.starts_with('/') {
        let message = format!("the route `{}` does not begin with `/`", abbreviate(route));
        return Err(RecipeProblem::new(message, help, span(value)));
    }
    let last = route.len() - 1;
    let is_invalid = |(offset, char): &(usize, char)| match char {
        '*' => *offset < last,
        '?' | '#' => true,
        char => !char.is_ascii_graphic(),
    };
    let Some((offset, char)) = route.char_indices().find(is_invalid) else { return Ok(route.to_owned()) };
    let (message, help) = match char {
        '*' => ("`*` is allowed at the end of a route only".to_owned(), help.to_owned()),
        '?' | '#' => (
            format!("`{char}` begins a query or fragment, but a route matches the path alone"),
            format!("remove `{char}` and what follows it"),
        ),
        char => {
            let mut encoded = String::new();
            for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(encoded, "%{byte:02X}");
            }
            let char = abbreviate(&char.to_string());
            (format!("clients percent-encode `{char}` in a path"), format!("write `{encoded}`"))
        }
    };
    let char_span = source_span(text, literal, offset..offset + char.len_utf8());
    Err(RecipeProblem::new(message, help, char_span))
}

fn parse_content(fields: &RecipeFields<'_>, text: &str) -> Result<Content, RecipeProblem> {
    let mut contents = CONTENT_KEYS.iter().filter_map(|key| Some((*key, fields.get(key)?)));
    let Some((key, value)) = contents.next() else {
        let help = "write one of `origin`, `body` and `random_content`";
        return Err(RecipeProblem::new("the recipe has no content", help, fields.span.clone()));
    };
    if let Some((other, _)) = contents.next() {
        let (first, second) = (fields.key_span(key), fields.key_span(other));
        let span = if first.start > second.start { first } else { second };
        let message = format!("the recipe has both `{key}` and `{other}`");
        return Err(RecipeProblem::new(message, "keep one of them", span));
    }
    match (key, value) {
        ("random_content", value) => Ok(Content::Random(parse_content_size(value, key)?)),
        ("origin", Value::StringLit(url)) => parse_origin_url(url).map(Content::Origin),
        ("body", Value::StringLit(body)) => {
            let parts = parse_template(&body.value, |span| source_span(text, body, span))?;
            Ok(Content::Template(parts))
        }
        ("origin", value) => Err(wrong_type(key, value, URL_HELP)),
        (_, value) => Err(wrong_type(key, value, "write text, such as `\"{\\\"hello\\\": \\\"world\\\"}\"`")),
    }
}

const URL_HELP: &str = "write a URL such as `http://127.0.0.1:8081/news`";

/// A URL may contain a password, so no message repeats it.
fn parse_origin_url(url: &StringLit<'_>) -> Result<Uri, RecipeProblem> {
    let problem = |message: String| RecipeProblem::new(message, URL_HELP, span(url));
    let begins_with =
        |scheme: &str| url.value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if !["http://", "https://"].into_iter().any(begins_with) {
        return Err(problem("`origin` begins neither with `http://` nor with `https://`".to_owned()));
    }
    let uri: Uri = url.value.parse().map_err(|error| problem(format!("`origin` is not a URL: {error}")))?;
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let after_host = uri.host().and_then(|host| address.strip_prefix(host)).unwrap_or_default();
    if uri.host().is_none_or(str::is_empty) {
        return Err(problem("`origin` has no host".to_owned()));
    }
    if !after_host.is_empty() && uri.port_u16().is_none_or(|port| port == 0) {
        return Err(problem("the port of `origin` is not a number from 1 to 65535".to_owned()));
    }
    Ok(uri)
}

type HeadersAndSpans = (HeaderMap, HashMap<HeaderName, Range<usize>>);

/// Parses the headers. Returns the spans of their names, too.
fn parse_headers(value: Option<&Value<'_>>) -> Result<HeadersAndSpans, RecipeProblem> {
    let (mut headers, mut name_spans) = HeadersAndSpans::default();
    let Some(value) = value else { return Ok((headers, name_spans)) };
    let example = "write an object, such as `{\"cache-control\": \"max-age=30\"}`";
    let Value::Object(object) = value else { return Err(wrong_type("headers", value, example)) };
    if let Some(first) = object.properties.get(HEADERS_MAX) {
        return Err(RecipeProblem::new(
            "a recipe has at most 1,000 headers",
            "write fewer headers",
            span(&first.name),
        ));
    }
    for (written_name, property) in named_properties(object) {
        let name_span = span(&property.name);
        let name = HeaderName::from_bytes(written_name.as_bytes()).map_err(|_| {
            let message = format!("`{}` is not the name of a header", abbreviate(written_name));
            let help = "write letters, digits and hyphens, such as `cache-control`";
            RecipeProblem::new(message, help, name_span.clone())
        })?;
        let Value::StringLit(text) = &property.value else {
            return Err(wrong_type("a header", &property.value, "write text, such as `\"max-age=30\"`"));
        };
        let value = HeaderValue::from_bytes(text.value.as_bytes()).map_err(|_| {
            let message = format!("the header `{}` contains a control character", abbreviate(written_name));
            RecipeProblem::new(message, "remove line breaks and the like", span(&property.value))
        })?;
        if name == header::ETAG && !is_entity_tag(value.as_bytes()) {
            let message = format!(
                "the value of `{}` is not an entity tag and would never match",
                abbreviate(written_name)
            );
            return Err(RecipeProblem::new(message, ETAG_HELP, span(&property.value)));
        }
        if name_spans.insert(name.clone(), name_span).is_some() {
            return Err(duplicate_key(property));
        }
        // The origin frames its messages itself.
        if name != header::CONTENT_LENGTH && name != header::TRANSFER_ENCODING {
            headers.insert(name, value);
        }
    }
    Ok((headers, name_spans))
}

const ETAG_HELP: &str = r#"write it in quotes, such as `"\"abc\""` or `"W/\"abc\""`"#;

/// RFC 9110, 8.8.3.
fn is_entity_tag(value: &[u8]) -> bool {
    let quoted = value.strip_prefix(b"W/").unwrap_or(value);
    let inside = quoted.strip_prefix(b"\"").and_then(|quoted| quoted.strip_suffix(b"\""));
    inside.is_some_and(|inside| inside.iter().all(|byte| *byte > b' ' && ![b'"', 0x7f].contains(byte)))
}

fn parse_bool(value: &Value<'_>, key: &str) -> Result<bool, RecipeProblem> {
    match value {
        Value::BooleanLit(flag) => Ok(flag.value),
        other => Err(wrong_type(key, other, "write true or false")),
    }
}

fn parse_capacity(value: &Value<'_>) -> Result<Capacity, RecipeProblem> {
    let example = "write an object, such as `{\"workers\": 8, \"queue\": 100}`";
    let fields = RecipeFields::parse(value, "capacity", &["workers", "queue"], example)?;
    let count = |key: &str, range| {
        let missing =
            || RecipeProblem::new(format!("the capacity has no `{key}`"), example, fields.span.clone());
        parse_count(fields.get(key).ok_or_else(missing)?, key, range)
    };
    let (workers, queue) = (1..CAPACITY_MAX + 1, 0..CAPACITY_MAX + 1);
    Ok(Capacity { workers: count("workers", workers)?, queue: count("queue", queue)? })
}

fn parse_version_every(value: &Value<'_>) -> Result<Duration, RecipeProblem> {
    let every = parse_time(value, "version_every")?;
    if every.is_zero() {
        let help = "write a time such as `\"10s\"`, or remove the key: the first version never ends";
        return Err(RecipeProblem::new("a version cannot last 0", help, span(value)));
    }
    if every < VERSION_EVERY_MIN {
        return Err(RecipeProblem::new(
            "a version cannot last less than 1 ms",
            "write `\"1ms\"` or more",
            span(value),
        ));
    }
    Ok(every)
}

/// The recipe as JSON, with every key that recipes of `OriginSimulator` have.
fn complete_json(recipe_text: &str, fields: &RecipeFields<'_>) -> Result<serde_json::Value, RecipeProblem> {
    // Line breaks between values have no meaning, and those within strings are not part of them.
    let in_one_line = recipe_text.replace(['\n', '\r'], "");
    let mut keys: serde_json::Map<_, _> = serde_json::from_str(&in_one_line).map_err(|error| {
        let message = format!("the recipe cannot be stored: {error}");
        RecipeProblem::new(message, "write that value in another way", fields.span.clone())
    })?;
    let defaults = [("headers", json!({})), ("stages", json!([])), ("route", json!(ROUTE_DEFAULT))];
    let null = serde_json::Value::Null;
    for (key, default) in CONTENT_KEYS.map(|key| (key, null.clone())).into_iter().chain(defaults) {
        if fields.get(key).is_none() {
            keys.insert(key.to_owned(), default);
        }
    }
    Ok(keys.into())
}
