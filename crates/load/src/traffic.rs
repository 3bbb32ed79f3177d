//! The content of each request, as a pure function of its number.

mod path_template;

use std::{borrow::Cow, sync::Arc};

use http::Method;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use stockade_model::seed::Seed;

use crate::{keys::Keys, template::RequestTemplate, url::UrlError};
use path_template::PathTemplate;

/// The request templates of a run, and the one of each request.
///
/// The number of a request determines it, so threads need no coordination and reports can name its URL.
///
/// ```
/// use stockade_load::{
///     template::RequestTemplate,
///     traffic::{Traffic, TrafficOptions},
///     url::parse_url,
/// };
/// use stockade_model::seed::Seed;
///
/// let targets = vec![RequestTemplate::get(parse_url("http://localhost/doc/{key:04}")?)];
/// let variety = TrafficOptions { keys: Some("scan:100".parse()?), ..TrafficOptions::default() };
/// let traffic = Traffic::new(targets, variety, Seed(1))?;
/// assert_eq!(traffic.request(142).path, "/doc/0042");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traffic {
    templates: Vec<RequestTemplate>,
    options: TrafficOptions,
    /// One per template if the path of any varies, else empty.
    paths: Vec<Option<PathTemplate>>,
    /// The number of consecutive requests with the same cache-bust number.
    requests_per_number: u64,
    seed: Seed,
    seeds: Seeds,
}

/// Separate seeds, so that one random choice does not change another.
#[derive(Clone, Copy, Debug)]
struct Seeds {
    order: Seed,
    keys: Seed,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpec<'a> {
    /// The index of the template.
    pub template_index: usize,
    /// The template.
    pub template: &'a RequestTemplate,
    /// Path and query as sent: those of the template, unless they have a key or a cache-bust parameter.
    pub path: Cow<'a, str>,
}

/// The order in which templates are used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum RequestOrder {
    /// In sequence, repeatedly.
    #[default]
    Sequential,
    /// At random, with equal probability.
    Random,
    /// In the order of these indices, repeatedly.
    Listed(Arc<[u32]>),
}

/// The differences between requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct TrafficOptions {
    /// The order of templates.
    pub order: RequestOrder,
    /// The keys for `{key}` in paths and queries, not in headers and bodies. `{key:08}` has at least eight digits.
    pub keys: Option<Keys>,
    /// Makes URLs unique, so that caches miss.
    pub cache_bust: Option<CacheBust>,
}

/// The URLs that are unique. Their query gets a parameter `stockade=` with hex digits that depend on this seed: a second run
/// with the same seed would hit the entries of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum CacheBust {
    /// The URL of every request.
    EveryRequest(Seed),
    /// All URLs in each round over the templates: a URL that repeats within a round still repeats.
    EveryRound(Seed),
}

/// Why traffic is refused. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// There is no template, or an empty list of indices.
    #[error("there is no target: give a URL, or a file with at least one")]
    NoTargets,
    /// The URL of a template is invalid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// CONNECT requests a tunnel.
    #[error("`{0} {1}` requests a tunnel: write another method, such as GET")]
    Connect(Method, String),
    /// A placeholder without keys.
    #[error("`{0}` has a placeholder, and there are no keys: add some, as in `--keys zipf:10000`")]
    NoKeys(String),
    /// Keys without a placeholder.
    #[error("no URL has a placeholder: write `{{key}}` into a path or a query, or remove `--keys {0}`")]
    NoPlaceholder(String),
    /// A malformed placeholder.
    #[error(
        "`{0}` in a URL is not a placeholder: write `{{key}}`, or `{{key:08}}` for at least eight digits"
    )]
    BadPlaceholder(String),
    /// An index beyond the templates.
    #[error("the order has target {index}, and there are {targets}: number them from 0")]
    Index {
        /// The index.
        index: u32,
        /// The number of templates.
        targets: usize,
    },
}

impl Traffic {
    /// The same unchecked template for every request. [`new`](Self::new) checks user input.
    #[must_use]
    pub fn single_unchecked(template: RequestTemplate) -> Self {
        Self {
            templates: vec![template],
            options: TrafficOptions::default(),
            paths: Vec::new(),
            requests_per_number: 1,
            seed: Seed(0),
            seeds: Seeds { order: Seed(0), keys: Seed(0) },
        }
    }

    /// Checks the templates, and their placeholders against the keys.
    pub fn new(
        templates: Vec<RequestTemplate>,
        options: TrafficOptions,
        seed: Seed,
    ) -> Result<Self, TrafficError> {
        let TrafficOptions { order, keys, cache_bust } = &options;
        let templates: Vec<RequestTemplate> = templates.into_iter().map(checked).collect::<Result<_, _>>()?;
        if templates.is_empty() || matches!(order, RequestOrder::Listed(list) if list.is_empty()) {
            return Err(TrafficError::NoTargets);
        }
        if let RequestOrder::Listed(list) = order {
            let is_none = |index: &&u32| usize::try_from(**index).is_ok_and(|index| index >= templates.len());
            if let Some(index) = list.iter().find(is_none) {
                return Err(TrafficError::Index { index: *index, targets: templates.len() });
            }
        }
        // The digits distinguish runs, and have a fixed length; the number distinguishes requests.
        let parameter = cache_bust.map(|(CacheBust::EveryRequest(seed) | CacheBust::EveryRound(seed))| {
            format!("stockade={:016x}", seed.0)
        });
        let path_template = |template: &RequestTemplate| {
            let path = PathTemplate::parse(template.path()).map_err(TrafficError::BadPlaceholder)?;
            let has_key = path.has_key();
            if has_key && keys.is_none() {
                return Err(TrafficError::NoKeys(template.url.to_string()));
            }
            Ok(match &parameter {
                Some(parameter) => Some(path.with_cache_bust(parameter)),
                None => has_key.then_some(path),
            })
        };
        let mut paths = templates.iter().map(path_template).collect::<Result<Vec<_>, _>>()?;
        if let Some(keys) = keys
            && !paths.iter().flatten().any(PathTemplate::has_key)
        {
            return Err(TrafficError::NoPlaceholder(keys.to_string()));
        }
        if paths.iter().all(Option::is_none) {
            paths = Vec::new();
        }
        let requests_per_number = match (cache_bust, order) {
            (Some(CacheBust::EveryRound(_)), RequestOrder::Listed(list)) => list.len() as u64,
            (Some(CacheBust::EveryRound(_)), RequestOrder::Sequential | RequestOrder::Random) => {
                templates.len() as u64
            }
            _ => 1,
        };
        let seeds = Seeds { order: seed.child("order"), keys: seed.child("keys") };
        Ok(Self { templates, options, paths, requests_per_number, seed, seeds })
    }

    /// The differences between its requests, and the seed of their choices.
    #[must_use]
    pub fn options(&self) -> (&TrafficOptions, Seed) {
        (&self.options, self.seed)
    }

    /// The templates.
    #[must_use]
    pub fn templates(&self) -> &[RequestTemplate] {
        &self.templates
    }

    /// The `n`th request, from 0; always the same for the same `n`.
    #[must_use]
    pub fn request(&self, n: u64) -> RequestSpec<'_> {
        let index = self.index(n);
        let template = &self.templates[index];
        let path = match self.paths.get(index) {
            Some(Some(path)) => {
                let key = match &self.options.keys {
                    Some(keys) if path.has_key() => keys.nth(n, self.seeds.keys),
                    _ => 0,
                };
                path.fill(key, n / self.requests_per_number).into()
            }
            _ => template.path().into(),
        };
        RequestSpec { template_index: index, template, path }
    }

    fn index(&self, n: u64) -> usize {
        let cycle = |count: usize| usize::try_from(n % count as u64).unwrap_or_default();
        match &self.options.order {
            RequestOrder::Sequential => cycle(self.templates.len()),
            RequestOrder::Random => self.seeds.order.nth(n).random_range(0..self.templates.len()),
            RequestOrder::Listed(list) => usize::try_from(list[cycle(list.len())]).unwrap_or_default(),
        }
    }
}

fn checked(template: RequestTemplate) -> Result<RequestTemplate, TrafficError> {
    let template = template.checked()?;
    if template.method == Method::CONNECT {
        return Err(TrafficError::Connect(template.method, template.url.to_string()));
    }
    Ok(template)
}

#[cfg(test)]
mod tests;
