//! `[shadow]`: the ghosts of the cache.

use std::{fmt, str::FromStr, time::Duration};

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_cache::{Ghost, GhostTtl, Limit, Policy, Shadow, policy::POLICIES};
use stockade_model::units::{format_exact_duration, format_exact_size, parse_duration, parse_size};

use super::value::ShadowKeys;

/// Each ghost differs from the cache in one setting. All together are 30 at most.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct ShadowConfig {
    /// Limits: 0.01 to 100 times that of the cache, such as "2x", or a size or a number of entries, in the unit of that limit. Default:
    /// `["0.5x", "2x"]`.
    pub sizes: Vec<GhostSize>,
    /// Eviction policies; that of the cache is left out. Default: all.
    pub policies: Option<Vec<GhostPolicy>>,
    /// Ttls: times that of each response, such as "2x", or one for all, such as "60s". Default: `["2x"]`.
    pub ttls: Vec<GhostTtlText>,
    /// Keys in the sample, at most, 256 to 131072; with the default ghosts each takes 0.8 KiB. Default: 16384.
    pub keys: ShadowKeys,
}

impl Default for ShadowConfig {
    fn default() -> Self {
        Self {
            sizes: vec![GhostSize::Times(0.5), GhostSize::Times(2.0)],
            policies: None,
            ttls: vec![GhostTtlText(GhostTtl::Times(2.0))],
            keys: ShadowKeys(Shadow::KEYS_MAX),
        }
    }
}

/// The limit of a ghost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GhostSize {
    /// A multiple of the limit of the cache.
    Times(f64),
    Bytes(usize),
    Entries(usize),
}

impl ShadowConfig {
    /// The ghosts of a cache with this limit.
    pub fn shadow(&self, limit: &Limit) -> Result<Shadow, String> {
        let mut ghosts = Vec::new();
        for size in &self.sizes {
            ghosts.push(size.ghost(limit)?);
        }
        let policies: Vec<&Policy> = match &self.policies {
            Some(policies) => policies.iter().map(|policy| policy.0).collect(),
            None => POLICIES.iter().filter(|policy| !policy.is_auto()).collect(),
        };
        let others = policies.into_iter().filter(|policy| *policy != limit.policy);
        ghosts.extend(others.map(|policy| Ghost::of_policy(limit, policy)));
        ghosts.extend(self.ttls.iter().map(|ttl| Ghost::of_ttl(limit, ttl.0)));
        let is_known = |index: usize| ghosts[..index].iter().any(|known| known.name == ghosts[index].name);
        if let Some(index) = (1..ghosts.len()).find(|index| is_known(*index)) {
            return Err(format!("there are two ghosts `{}`: leave one out", ghosts[index].name));
        }
        Ok(Shadow { ghosts, keys_max: self.keys.0 })
    }
}

impl GhostSize {
    fn ghost(self, limit: &Limit) -> Result<Ghost, String> {
        let of = |own: Option<usize>, limit: Limit, other: &str, example: &str| match own {
            Some(_) => Ok(Ghost::of_limit(self.to_string(), limit)),
            None => Err(format!(
                "`{self}`: the limit of the cache is in {other}: write times of it, such as \"2x\", or {example}"
            )),
        };
        match self {
            Self::Times(factor) => Ok(Ghost::of_size(limit, factor)),
            Self::Bytes(bytes) => of(
                limit.bytes,
                Limit { bytes: Some(bytes), ..limit.clone() },
                "entries",
                "a number of entries",
            ),
            Self::Entries(entries) => of(
                limit.entries,
                Limit { entries: Some(entries), ..limit.clone() },
                "bytes",
                "a size, such as \"512MiB\"",
            ),
        }
    }
}

impl fmt::Display for GhostSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(factor) => write!(f, "{factor}x size"),
            Self::Bytes(bytes) => write!(f, "{}", format_exact_size(*bytes as u64)),
            Self::Entries(entries) => write!(f, "{entries} entries"),
        }
    }
}

/// `2x`, with a number between 0.01 and 100.
fn times(text: &str) -> Option<Result<f64, String>> {
    let times = text.strip_suffix('x')?.parse::<f64>().ok()?;
    let is_allowed = (0.01..=100.0).contains(&times);
    Some(is_allowed.then_some(times).ok_or_else(|| format!("`{text}`: write 0.01x to 100x")))
}

impl FromStr for GhostSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(times) = times(text) {
            return times.map(Self::Times);
        }
        if let Ok(entries) = text.replace('_', "").parse::<usize>() {
            return if entries > 0 {
                Ok(Self::Entries(entries))
            } else {
                Err("a ghost needs room for an entry".to_owned())
            };
        }
        let bytes = parse_size(text).map_err(|_| {
            format!(
                "`{text}` is not a size: write \"2x\" for twice the limit, \"512MiB\", or a number of entries"
            )
        })?;
        if bytes == 0 {
            return Err("a ghost needs room for an entry".to_owned());
        }
        usize::try_from(bytes)
            .map(Self::Bytes)
            .map_err(|_| format!("`{text}` is more than this machine can address"))
    }
}

/// A ttl as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GhostTtlText(pub GhostTtl);

impl fmt::Display for GhostTtlText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            GhostTtl::Same => f.write_str("1x"),
            GhostTtl::Fixed(ttl) => f.write_str(&format_exact_duration(ttl)),
            GhostTtl::Times(times) => write!(f, "{times}x"),
        }
    }
}

impl FromStr for GhostTtlText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(times) = times(text) {
            return times.map(|times| Self(GhostTtl::Times(times)));
        }
        let ttl = parse_duration(text).map_err(|_| {
            format!("`{text}` is not a ttl: write \"2x\" for twice that of each response, or \"60s\"")
        })?;
        if ttl == Duration::ZERO {
            return Err("a ghost with a ttl of 0 has no hits: write a time above 0".to_owned());
        }
        Ok(Self(GhostTtl::Fixed(ttl)))
    }
}

/// A policy as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GhostPolicy(pub &'static Policy);

impl fmt::Display for GhostPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl FromStr for GhostPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Policy::named(text).map(Self).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ghost_differs_in_one_setting() {
        let limit = Limit { max_object: Some(8 << 20), ..Limit::bytes(64 << 20) };
        let config = ShadowConfig {
            sizes: vec!["4x".parse().unwrap(), "4MiB".parse().unwrap()],
            policies: Some([Policy::LRU, Policy::SIEVE].map(GhostPolicy).to_vec()),
            ttls: vec![GhostTtlText(GhostTtl::Fixed(Duration::from_mins(1)))],
            ..ShadowConfig::default()
        };
        let ghosts = config.shadow(&limit).unwrap().ghosts;
        let shown: Vec<_> = ghosts
            .iter()
            .map(|ghost| {
                (
                    ghost.name.as_str(),
                    ghost.limit.bytes,
                    ghost.limit.max_object,
                    ghost.limit.policy.name,
                    ghost.ttl,
                )
            })
            .collect();
        let object = Some(8 << 20);
        assert_eq!(
            shown,
            [
                ("4x size", Some(256 << 20), object, "sieve", GhostTtl::Same),
                // An object may not be larger than the limit.
                ("4MiB", Some(4 << 20), Some(4 << 20), "sieve", GhostTtl::Same),
                // The cache has sieve itself.
                ("lru", Some(64 << 20), object, "lru", GhostTtl::Same),
                ("ttl 60s", Some(64 << 20), object, "sieve", GhostTtl::Fixed(Duration::from_mins(1))),
            ]
        );
        let entries = ShadowConfig { sizes: vec!["1_000".parse().unwrap()], ..ShadowConfig::default() };
        assert!(entries.shadow(&limit).unwrap_err().contains("2x"));
        let ghosts = ShadowConfig::default().shadow(&Limit::entries(10)).unwrap().ghosts;
        let names: Vec<_> = ghosts.iter().map(|ghost| ghost.name.as_str()).collect();
        assert_eq!(names, ["0.5x size", "2x size", "lrw", "lru", "s3-fifo", "lfu", "gdsf", "2x ttl"]);
    }

    #[test]
    fn sizes_and_ttls_have_a_unit() {
        for text in ["", "x", "0x", "1000x", "nanx", "0", "5q", "-1", "0B"] {
            assert!(text.parse::<GhostSize>().is_err(), "{text}");
        }
        for text in ["", "60", "0s", "0x", "101x"] {
            assert!(text.parse::<GhostTtlText>().is_err(), "{text}");
        }
    }
}
