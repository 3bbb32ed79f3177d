//! Suggestions for misspelt names.

/// The name among `known` that is nearest to `typed`, if one is near enough.
///
/// ```
/// use stockade_model::nearest::nearest;
///
/// assert_eq!(nearest("stampeed", ["none", "stampede"]), Some("stampede"));
/// assert_eq!(nearest("memcached", ["none", "stampede"]), None);
/// ```
#[cfg(feature = "suggestions")]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&typed.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().min(typed.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(not(feature = "suggestions"))]
fn nearest<'a>(_typed: &str, _known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    None
}

/// The end of a message about an unknown name: a suggestion, or a list of the known names. Without the feature `suggestions` it is
/// the list.
///
/// ```
/// use stockade_model::nearest::remedy;
///
/// # #[cfg(feature = "suggestions")]
/// assert_eq!(remedy("asynk", ["none", "async"]), "did you mean `async`?");
/// assert_eq!(remedy("redis", ["none", "async"]), "use one of: none, async");
/// ```
pub fn remedy<'a>(typed: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(typed, known.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("use one of: {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}
