//! Things that users choose by their names: policies, strategies, sources, formats. A registry lists each once; what parses a name, the
//! message about an unknown one, help texts and the tables of the reference are made from it.

use std::ops::Deref;

use crate::nearest::remedy;

/// A thing with a name.
pub trait Named {
    /// In messages: `policy`.
    const KIND: &'static str;

    /// The name that users write.
    fn name(&self) -> &'static str;

    /// One line for help texts and the reference.
    fn summary(&self) -> &'static str;

    /// The names that are parsed, where [`name`](Self::name) stands for more: `http` and `https` for `https://HOST/{id}`.
    fn parsed(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Implements [`Named`] for a type with the fields `name` and `summary`.
#[macro_export]
macro_rules! named {
    ($type:ty, $kind:literal) => {
        impl $crate::registry::Named for $type {
            const KIND: &'static str = $kind;

            fn name(&self) -> &'static str {
                self.name
            }

            fn summary(&self) -> &'static str {
                self.summary
            }
        }
    };
}

/// Everything of one kind, in the order of help texts.
///
/// ```
/// use stockade_model::registry::{Registry, ReportFormat};
///
/// type Render = fn(u64) -> String;
/// static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
///     ReportFormat::new("text", "a number, to read", |count| format!("{count} requests")),
///     ReportFormat::new("csv", "a number alone", |count| count.to_string()),
/// ]);
///
/// assert_eq!((FORMATS.named("csv").unwrap().render)(3), "3");
/// assert_eq!(FORMATS.named("pdf").unwrap_err().to_string(), "unknown format `pdf`: use one of: text, csv");
/// ```
#[derive(Debug)]
pub struct Registry<T: 'static>(&'static [T]);

impl<T: Named> Registry<T> {
    pub const fn new(all: &'static [T]) -> Self {
        Self(all)
    }

    pub fn named(&self, name: &str) -> Result<&'static T, UnknownName> {
        let is_it = |thing: &&T| parsed(*thing).any(|known| known == name);
        self.0.iter().find(is_it).ok_or_else(|| UnknownName {
            kind: T::KIND,
            name: name.to_owned(),
            remedy: remedy(name, self.parsed_names()),
        })
    }

    /// Every name that is parsed.
    pub fn parsed_names(&self) -> impl Iterator<Item = &'static str> + Clone + use<T> {
        self.0.iter().flat_map(parsed)
    }

    /// Each name with its summary.
    pub fn summaries(&self) -> impl Iterator<Item = (&'static str, &'static str)> + Clone + use<T> {
        self.0.iter().map(|thing| (thing.name(), thing.summary()))
    }

    pub fn iter(&self) -> std::slice::Iter<'static, T> {
        self.0.iter()
    }
}

fn parsed<T: Named>(thing: &T) -> impl Iterator<Item = &'static str> + Clone + use<T> {
    let parsed = thing.parsed();
    parsed.is_empty().then(|| thing.name()).into_iter().chain(parsed.iter().copied())
}

impl<T> Deref for Registry<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0
    }
}

impl<T: Named> IntoIterator for &Registry<T> {
    type Item = &'static T;
    type IntoIter = std::slice::Iter<'static, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Nothing of this kind has this name. The message has the nearest name, or all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{name}`: {remedy}")]
pub struct UnknownName {
    /// [`Named::KIND`].
    pub kind: &'static str,
    /// The unknown name.
    pub name: String,
    /// The nearest name, or all of them.
    pub remedy: String,
}

/// A format of reports, and the function that writes it.
#[derive(Clone, Copy, Debug)]
pub struct ReportFormat<R> {
    pub name: &'static str,
    pub summary: &'static str,
    pub render: R,
}

impl<R> ReportFormat<R> {
    pub const fn new(name: &'static str, summary: &'static str, render: R) -> Self {
        Self { name, summary, render }
    }
}

impl<R> Named for ReportFormat<R> {
    const KIND: &'static str = "format";

    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}
