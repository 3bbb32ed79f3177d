//! The resources of the origin: each a pure function of seed, path, variant and version.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::pattern::{Pace, Pattern};

/// The host name of every request.
pub const HOST: &str = "soak.test";
/// The header that selects one of the variants of a class with `Vary`.
pub const VARIANT: &str = "x-variant";
/// The header with the origin's time, in ms since the epoch.
pub const GENERATED: &str = "x-generated";
/// The path below which the origin returns length and hash of a request's body.
pub const ECHO: &str = "/echo/";

/// Resources that differ only in their numbers.
#[derive(Debug)]
pub struct Class {
    pub name: &'static str,
    pub cache_control: &'static str,
    /// `max-age` in `cache_control`; `None` if it must not be stored.
    pub fresh_seconds: Option<u64>,
    /// `stale-while-revalidate` in `cache_control`, or the proxy's own `swr`.
    pub stale_seconds: u64,
    /// Smallest and largest body.
    pub body_bytes: (u64, u64),
    /// How many resources there are.
    pub count: u32,
    /// How long a version lasts; 0: there is one.
    pub version_seconds: u64,
    pub statuses: &'static [u16],
    pub variants: u8,
    pub manner: Manner,
    /// Share of the traffic, in thousandths of all classes.
    pub weight: u32,
}

/// How the origin sends a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Plain,
    /// Without a length.
    Chunked,
    /// The head comes after 0.2 to 2 s.
    LateHead,
    /// The body comes in eight parts, 0.1 s apart.
    Parts,
}

const PLAIN: Class = Class {
    name: "plain",
    cache_control: "public, max-age=30",
    fresh_seconds: Some(30),
    stale_seconds: SWR_SECONDS,
    body_bytes: (100, 65_536),
    count: 600,
    version_seconds: 20,
    statuses: &[200],
    variants: 1,
    manner: Manner::Plain,
    weight: 300,
};
/// The proxy's own `swr`, for responses that declare none.
pub const SWR_SECONDS: u64 = 10;

pub const CLASSES: [Class; 13] = [
    PLAIN,
    Class {
        name: "swr",
        cache_control: "public, max-age=2, stale-while-revalidate=20",
        fresh_seconds: Some(2),
        stale_seconds: 20,
        count: 200,
        version_seconds: 3,
        weight: 100,
        ..PLAIN
    },
    Class {
        name: "sie",
        cache_control: "public, max-age=4, stale-while-revalidate=0, stale-if-error=600",
        fresh_seconds: Some(4),
        stale_seconds: 0,
        count: 200,
        weight: 80,
        ..PLAIN
    },
    Class {
        name: "revalidate",
        cache_control: "public, max-age=1, must-revalidate",
        fresh_seconds: Some(1),
        stale_seconds: 0,
        count: 100,
        version_seconds: 60,
        weight: 60,
        ..PLAIN
    },
    Class {
        name: "no-store",
        cache_control: "no-store",
        fresh_seconds: None,
        version_seconds: 1,
        weight: 60,
        ..PLAIN
    },
    Class { name: "private", cache_control: "private, max-age=60", fresh_seconds: None, weight: 40, ..PLAIN },
    Class { name: "vary", variants: 3, count: 200, weight: 80, ..PLAIN },
    Class { name: "chunked", manner: Manner::Chunked, count: 300, weight: 80, ..PLAIN },
    Class {
        name: "missing",
        cache_control: "public, max-age=5",
        fresh_seconds: Some(5),
        statuses: &[404],
        body_bytes: (100, 1_000),
        weight: 30,
        ..PLAIN
    },
    Class {
        name: "error",
        cache_control: "no-store",
        fresh_seconds: None,
        statuses: &[500, 503],
        body_bytes: (100, 1_000),
        weight: 20,
        ..PLAIN
    },
    Class {
        name: "late",
        cache_control: "public, max-age=10",
        fresh_seconds: Some(10),
        manner: Manner::LateHead,
        count: 60,
        weight: 30,
        ..PLAIN
    },
    Class { name: "parts", manner: Manner::Parts, count: 100, weight: 20, ..PLAIN },
    // New URLs fill the cache, so that it evicts from the first minutes on.
    Class {
        name: "new",
        cache_control: "public, max-age=3600",
        fresh_seconds: Some(3_600),
        body_bytes: (1_000, 100_000),
        count: u32::MAX,
        version_seconds: 0,
        weight: 90,
        ..PLAIN
    },
];

/// Large bodies, some of them too large for the cache. They have a share of their own.
pub const BIG: Class = Class {
    name: "big",
    cache_control: "public, max-age=60",
    fresh_seconds: Some(60),
    body_bytes: (262_144, 4_194_304),
    count: 40,
    version_seconds: 120,
    weight: 10,
    ..PLAIN
};

/// Bodies that take a slow reader some seconds.
pub const MEDIUM: Class = Class {
    name: "medium",
    cache_control: "public, max-age=20",
    fresh_seconds: Some(20),
    body_bytes: (131_072, 262_144),
    count: 40,
    version_seconds: 40,
    weight: 0,
    ..PLAIN
};

#[derive(Clone, Copy, Debug)]
pub struct Resource {
    pub class: &'static Class,
    pub id: u32,
    /// Below `class.variants`.
    pub variant: u8,
}

/// One version of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation {
    pub version: u64,
    pub body: Pattern,
    pub body_bytes: u64,
}

impl Resource {
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}/{}", self.class.name, self.id)
    }

    /// The resource at a path, and its variant.
    #[must_use]
    pub fn parse(path: &str, variant: u8) -> Option<Self> {
        let (class, id) = path.strip_prefix('/')?.split_once('/')?;
        let class = CLASSES.iter().chain([&BIG, &MEDIUM]).find(|known| known.name == class)?;
        Some(Self { class, id: id.parse().ok()?, variant: variant % class.variants })
    }

    /// The version at a time in ms since the epoch. Resources change at different times.
    #[must_use]
    pub fn version_at(&self, unix_ms: u64) -> u64 {
        match self.class.version_seconds {
            0 => 0,
            seconds => (unix_ms / 1_000 + u64::from(self.id)) / seconds,
        }
    }

    #[must_use]
    pub fn representation(&self, seed: u64, version: u64) -> Representation {
        let name = format!("{} {} {version}", self.path(), self.variant);
        let hash = xxh3_64_with_seed(name.as_bytes(), seed);
        let (least, most) = self.class.body_bytes;
        // Uniform in the logarithm: most bodies are small.
        let share = (hash >> 40) as f64 / f64::from(1 << 24);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two lengths")]
        let body_bytes = (least as f64 * (most as f64 / least as f64).powf(share)) as u64;
        Representation { version, body: Pattern(hash), body_bytes }
    }

    #[must_use]
    pub fn status(&self) -> u16 {
        self.class.statuses[self.id as usize % self.class.statuses.len()]
    }

    #[must_use]
    pub fn head_delay(&self, body: Pattern) -> Duration {
        match self.class.manner {
            Manner::LateHead => Duration::from_millis(200 + body.0 % 1_800),
            _ => Duration::ZERO,
        }
    }

    #[must_use]
    pub fn pace(&self, body_bytes: u64) -> Pace {
        match self.class.manner {
            Manner::Plain | Manner::LateHead => Pace::default(),
            Manner::Chunked => Pace { is_unsized: true, ..Pace::default() },
            Manner::Parts => Pace {
                pause: Duration::from_millis(100),
                part_bytes: body_bytes.div_ceil(8),
                is_unsized: false,
            },
        }
    }
}

impl Representation {
    /// It names the version, and with the hash the seed, the path and the variant.
    #[must_use]
    pub fn etag(&self) -> String {
        format!("\"{:x}-{:016x}\"", self.version, self.body.0)
    }
}

/// The version and the hash that an `ETag` names.
#[must_use]
pub fn parse_etag(etag: &str) -> Option<(u64, u64)> {
    let (version, hash) = etag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
    Some((u64::from_str_radix(version, 16).ok()?, u64::from_str_radix(hash, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_thousandths() {
        assert_eq!(CLASSES.iter().map(|class| class.weight).sum::<u32>() + BIG.weight, 1_000);
    }

    #[test]
    fn representations_differ_by_seed_path_variant_and_version() {
        let resource = Resource::parse("/vary/7", 1).expect("a known class");
        let one = resource.representation(1, 5);
        assert_eq!(parse_etag(&one.etag()), Some((5, one.body.0)));
        for other in [
            resource.representation(2, 5),
            resource.representation(1, 6),
            Resource { id: 8, ..resource }.representation(1, 5),
            Resource { variant: 2, ..resource }.representation(1, 5),
        ] {
            assert_ne!(one.body, other.body);
        }
    }

    #[test]
    fn lengths_stay_within_the_class() {
        for id in 0..1_000 {
            let bytes = Resource { class: &BIG, id, variant: 0 }.representation(1, 0).body_bytes;
            assert!((262_144..=4_194_304).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn declared_lifetimes_are_those_of_the_header() {
        for class in CLASSES.iter().chain([&BIG, &MEDIUM]) {
            let directive = |name: &str| {
                class.cache_control.split(", ").find_map(|one| one.strip_prefix(name)?.parse::<u64>().ok())
            };
            let is_shared =
                !class.cache_control.contains("no-store") && !class.cache_control.contains("private");
            assert_eq!(class.fresh_seconds, directive("max-age=").filter(|_| is_shared), "{}", class.name);
            if let Some(stale) = directive("stale-while-revalidate=") {
                assert_eq!(class.stale_seconds, stale, "{}", class.name);
            }
        }
    }
}
