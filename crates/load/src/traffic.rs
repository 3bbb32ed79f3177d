//! What is asked, request by request: a pure function of the request's number.

mod keys;
mod template;

use std::{borrow::Cow, sync::Arc};

use http::{HeaderName, Method, header, uri::PathAndQuery};
use rand::RngExt;
use stockade_model::seed::Seed;

use crate::target::{self, Target, UrlError};
use template::Template;

pub use keys::{Keys, KeysError};

/// All that a run may ask for, and which request asks for what.
///
/// A thread needs no more than a request's number to know what to ask, and whoever reads the results can say it
/// again.
///
/// ```
/// use stockade_load::{target::{Target, read_url}, traffic::{Traffic, Variety}};
/// use stockade_model::seed::Seed;
///
/// let targets = vec![Target::get(read_url("http://localhost/doc/{key:04}")?)];
/// let variety = Variety { keys: Some("scan:100".parse()?), ..Variety::default() };
/// let traffic = Traffic::new(targets, variety, Seed(1))?;
/// assert_eq!(traffic.nth(142).path, "/doc/0042");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traffic {
    targets: Vec<Target>,
    order: Order,
    keys: Option<Keys>,
    /// One a target if any of them varies, else none at all.
    templates: Vec<Option<Template>>,
    /// How many requests have the same number in their templates.
    requests_a_number: u64,
    seeds: Seeds,
}

/// A seed for every purpose, so that one draw does not move another.
#[derive(Clone, Copy, Debug)]
struct Seeds {
    order: Seed,
    keys: Seed,
}

/// What one request asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Which of the targets.
    pub index: usize,
    /// That target.
    pub target: &'a Target,
    /// Path and query as they are sent: the target's own, unless a key was drawn or a cache is to be missed.
    pub path: Cow<'a, str>,
}

/// Which target a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One after the other, and from the first again.
    #[default]
    InTurn,
    /// Each as often as any other, in no order.
    Random,
    /// As a log has it: their indices, and from the first again.
    Listed(Arc<[u32]>),
}

/// What differs from request to request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variety {
    /// Which target is next.
    pub order: Order,
    /// What stands for `{key}` in paths and queries; in headers and bodies it is left alone. `{key:08}` has eight
    /// digits at least.
    pub keys: Option<Keys>,
    /// Makes URLs new, so that no cache has them.
    pub cache_bust: Option<CacheBust>,
}

/// Which URLs are new: their query gets one more parameter, `stockade=` and hex digits, other ones for every such seed.
/// Of two runs with the same one the second would find what the first has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheBust {
    /// That of every request.
    Requests(Seed),
    /// All of them whenever targets are begun again: what is asked for twice in one round is so in each.
    Rounds(Seed),
}

/// This cannot be asked. The message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// No target, or a list of none.
    #[error("there is nothing to ask for: give a URL, or a file with one at least")]
    Nothing,
    /// A target that nobody can be asked for.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// CONNECT asks for no document.
    #[error("`{0} {1}` asks for a tunnel and for no answer: write another method, such as GET")]
    Method(Method, String),
    /// A place for a key, and no keys.
    #[error("`{0}` has a place for a key, and there are no keys: say which, as in `--keys zipf:10000`")]
    NoKeys(String),
    /// Keys, and no place for one.
    #[error(
        "no URL has a place for a key: write `{{key}}` into a path or a query, or leave `--keys {0}` out"
    )]
    NoPlace(String),
    /// Like a place for a key.
    #[error(
        "`{0}` in a URL is no place for a key: write `{{key}}`, or `{{key:08}}` for eight digits at least"
    )]
    Place(String),
    /// A list that goes on behind the targets.
    #[error("the order has target {index}, and there are {targets}: number them from 0")]
    Index {
        /// What the list has.
        index: u32,
        /// How many there are.
        targets: usize,
    },
}

impl Traffic {
    /// The same for every request, as it stands: nothing of it is looked at. What was typed goes through
    /// [`new`](Self::new).
    #[must_use]
    pub fn one(target: Target) -> Self {
        let seeds = Seeds { order: Seed(0), keys: Seed(0) };
        Self {
            targets: vec![target],
            order: Order::InTurn,
            keys: None,
            templates: Vec::new(),
            requests_a_number: 1,
            seeds,
        }
    }

    /// Several targets, after a look at each: whether it can be asked for, and by whom its keys are drawn.
    pub fn new(targets: Vec<Target>, variety: Variety, seed: Seed) -> Result<Self, TrafficError> {
        let Variety { order, keys, cache_bust } = variety;
        let targets: Vec<Target> = targets.into_iter().map(checked).collect::<Result<_, _>>()?;
        if targets.is_empty() || matches!(&order, Order::Listed(list) if list.is_empty()) {
            return Err(TrafficError::Nothing);
        }
        if let Order::Listed(list) = &order {
            let is_none = |index: &&u32| usize::try_from(**index).is_ok_and(|index| index >= targets.len());
            if let Some(index) = list.iter().find(is_none) {
                return Err(TrafficError::Index { index: *index, targets: targets.len() });
            }
        }
        // The number alone tells requests apart, these digits runs: they have a fixed length.
        let parameter = cache_bust
            .map(|(CacheBust::Requests(seed) | CacheBust::Rounds(seed))| format!("stockade={:016x}", seed.0));
        let template = |target: &Target| {
            let template = Template::read(path(target)).map_err(TrafficError::Place)?;
            if template.has_key() && keys.is_none() {
                return Err(TrafficError::NoKeys(target.url.to_string()));
            }
            let has_key = template.has_key();
            Ok(match &parameter {
                Some(parameter) => Some(template.with_number(parameter)),
                None => has_key.then_some(template),
            })
        };
        let mut templates = targets.iter().map(template).collect::<Result<Vec<_>, _>>()?;
        if let Some(keys) = keys
            && !templates.iter().flatten().any(Template::has_key)
        {
            return Err(TrafficError::NoPlace(keys.to_string()));
        }
        if templates.iter().all(Option::is_none) {
            templates = Vec::new();
        }
        let requests_a_number = match (cache_bust, &order) {
            (Some(CacheBust::Rounds(_)), Order::Listed(list)) => list.len() as u64,
            (Some(CacheBust::Rounds(_)), Order::InTurn | Order::Random) => targets.len() as u64,
            _ => 1,
        };
        let seeds = Seeds { order: seed.child("order"), keys: seed.child("keys") };
        Ok(Self { targets, order, keys, templates, requests_a_number, seeds })
    }

    /// All that may be asked for.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// What the `n`th request asks for, from 0: the same for the same `n`, whoever asks.
    #[must_use]
    pub fn nth(&self, n: u64) -> Asked<'_> {
        let index = self.index(n);
        let target = &self.targets[index];
        let path = match self.templates.get(index) {
            Some(Some(template)) => {
                let key = match &self.keys {
                    Some(keys) if template.has_key() => keys.nth(n, self.seeds.keys),
                    _ => 0,
                };
                template.filled(key, n / self.requests_a_number).into()
            }
            _ => path(target).into(),
        };
        Asked { index, target, path }
    }

    fn index(&self, n: u64) -> usize {
        let of = |count: usize| usize::try_from(n % count as u64).unwrap_or_default();
        match &self.order {
            Order::InTurn => of(self.targets.len()),
            Order::Random => self.seeds.order.nth(n).random_range(0..self.targets.len()),
            Order::Listed(list) => usize::try_from(list[of(list.len())]).unwrap_or_default(),
        }
    }
}

/// A target that can be asked for.
fn checked(mut target: Target) -> Result<Target, TrafficError> {
    target.url = target::checked(target.url)?;
    if target.method == Method::CONNECT {
        return Err(TrafficError::Method(target.method, target.url.to_string()));
    }
    // How long a body is and how it is sent is for the connection to say, once: twice is how requests are smuggled.
    OF_THE_CONNECTION.iter().for_each(|name| drop(target.headers.remove(name)));
    Ok(target)
}

/// No request says these for itself; Vegeta leaves them out as well.
pub const OF_THE_CONNECTION: [HeaderName; 7] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

fn path(target: &Target) -> &str {
    target.url.path_and_query().map_or("/", PathAndQuery::as_str)
}

#[cfg(test)]
mod tests;
