//! A load as bytes, for a generator on another machine.

use std::{fs, io, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use stockade_model::seed::Seed;

use crate::{
    ClientOptions, Trust,
    generator::{LoadTest, Share},
    plan::Plan,
    schedule::ScheduleLimitError,
    template::RequestTemplate,
    traffic::{Traffic, TrafficError, TrafficOptions},
};

/// The bytes cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file of certificates cannot be read.
    #[error("{}: {error}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The private key of a client certificate would leave this machine.
    #[error(
        "a client certificate is not sent to agents, since its private key would leave this machine: run the load here"
    )]
    ClientCertificate,
    /// The load is of another version, or damaged.
    #[error("this is not a load of this version: {0}")]
    Malformed(String),
    /// The requests are refused.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The plan is refused.
    #[error("its plan is {0}")]
    Plan(#[from] ScheduleLimitError),
}

/// A load, with the content of the files that it needs.
#[derive(Serialize, Deserialize)]
struct Bundle {
    id: String,
    plan: Plan,
    templates: Vec<Template>,
    traffic_options: TrafficOptions,
    traffic_seed: Seed,
    options: ClientOptions,
    certificates: Certificates,
    max_in_flight: Option<usize>,
    drain: Duration,
    threads: Option<NonZeroUsize>,
    seed: Seed,
    first_request: u64,
}

#[derive(Serialize, Deserialize)]
struct Template {
    method: String,
    url: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// The certificates that connections accept, with the content of a file.
#[derive(Serialize, Deserialize)]
enum Certificates {
    System,
    Pem(Vec<u8>),
    Insecure,
}

impl LoadTest {
    /// The load as bytes, with the content of the files that it needs, and without its share.
    pub fn to_bundle(&self) -> Result<Vec<u8>, BundleError> {
        let (options, traffic_seed) = self.traffic.options();
        let bundle = Bundle {
            id: self.id.clone(),
            plan: self.plan.clone(),
            templates: self.traffic.templates().iter().map(Template::from).collect(),
            traffic_options: options.clone(),
            traffic_seed,
            options: self.options.clone(),
            certificates: Certificates::of(&self.options)?,
            max_in_flight: self.max_in_flight,
            drain: self.drain,
            threads: self.threads,
            seed: self.seed,
            first_request: self.first_request,
        };
        postcard::to_allocvec(&bundle).map_err(|error| BundleError::Malformed(error.to_string()))
    }

    /// The load of these bytes, whose generator sends this share.
    pub fn from_bundle(bytes: &[u8], share: Share) -> Result<Self, BundleError> {
        let malformed = |error: &dyn ToString| BundleError::Malformed(error.to_string());
        let bundle: Bundle = postcard::from_bytes(bytes).map_err(|error| malformed(&error))?;
        bundle.plan.check()?;
        let templates = bundle.templates.into_iter().map(RequestTemplate::try_from);
        Ok(Self {
            id: bundle.id,
            plan: bundle.plan,
            traffic: Arc::new(Traffic::new(
                templates.collect::<Result<_, _>>()?,
                bundle.traffic_options,
                bundle.traffic_seed,
            )?),
            options: ClientOptions { trust: bundle.certificates.into(), ..bundle.options },
            max_in_flight: bundle.max_in_flight,
            drain: bundle.drain,
            threads: bundle.threads,
            seed: bundle.seed,
            first_request: bundle.first_request,
            share,
            observes_samples: false,
        })
    }
}

impl From<&RequestTemplate> for Template {
    fn from(template: &RequestTemplate) -> Self {
        let headers = template.headers.iter();
        Self {
            method: template.method.to_string(),
            url: template.url.to_string(),
            headers: headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect(),
            body: template.body.to_vec(),
        }
    }
}

impl TryFrom<Template> for RequestTemplate {
    type Error = BundleError;

    fn try_from(template: Template) -> Result<Self, BundleError> {
        let malformed = |error: &dyn ToString| BundleError::Malformed(error.to_string());
        let mut headers = HeaderMap::new();
        for (name, value) in template.headers {
            let name = HeaderName::try_from(name).map_err(|error| malformed(&error))?;
            headers.append(name, HeaderValue::from_bytes(&value).map_err(|error| malformed(&error))?);
        }
        Ok(Self {
            method: template.method.parse().map_err(|error| malformed(&error))?,
            url: template.url.parse().map_err(|error| malformed(&error))?,
            headers,
            body: template.body.into(),
        })
    }
}

impl Certificates {
    fn of(options: &ClientOptions) -> Result<Self, BundleError> {
        if options.client_certificate.is_some() {
            return Err(BundleError::ClientCertificate);
        }
        Ok(match &options.trust {
            Trust::System => Self::System,
            Trust::Insecure => Self::Insecure,
            Trust::Pem(text) => Self::Pem(text.to_vec()),
            Trust::File(path) => Self::Pem(
                fs::read(path).map_err(|error| BundleError::Certificates { path: path.clone(), error })?,
            ),
        })
    }
}

impl From<Certificates> for Trust {
    fn from(certificates: Certificates) -> Self {
        match certificates {
            Certificates::System => Self::System,
            Certificates::Pem(text) => Self::Pem(text.into()),
            Certificates::Insecure => Self::Insecure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        traffic::{CacheBust, RequestOrder},
        url::parse_url,
    };

    fn load(plan: &str) -> LoadTest {
        let mut template = RequestTemplate::get(parse_url("http://localhost:8080/{key}?a=b").unwrap());
        template.headers.append("x-team", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        template.headers.append("x-team", HeaderValue::from_static("web"));
        template.body = vec![0, 255].into();
        let options = TrafficOptions {
            order: RequestOrder::Listed([0, 0].into()),
            keys: Some("zipf:1000:1.1".parse().unwrap()),
            cache_bust: Some(CacheBust::EveryRound(Seed(3))),
        };
        let plan = Plan::parse("plan.toml", plan).unwrap();
        LoadTest {
            id: "run".to_owned(),
            threads: NonZeroUsize::new(3),
            plan,
            traffic: Arc::new(Traffic::new(vec![template], options, Seed(5)).unwrap()),
            options: ClientOptions {
                body_digest: Some([7; 32]),
                resolve: vec!["a.example:80:127.0.0.1,[::1]".parse().unwrap()],
                connect_to: vec!["::[::1]:8080".parse().unwrap()],
                ..ClientOptions::default()
            },
            max_in_flight: Some(77),
            drain: Duration::from_secs(3),
            seed: Seed(u64::MAX),
            first_request: 12,
            share: Share::WHOLE,
            observes_samples: false,
        }
    }

    #[test]
    fn bundle_has_the_same_requests_at_the_same_times() {
        for plan in [
            "[[phase]]\nrate = \"7/3s\"\nfor = \"9s\"\narrivals = \"poisson\"\n[[phase]]\nburst = 9",
            "[[phase]]\nramp = { from = \"0/s\", to = \"1000/s\" }\nfor = \"30s\"",
            "[[phase]]\nconnections = 64\nfor = \"10s\"\nthink = \"10ms..50ms\"",
        ] {
            let load = load(plan);
            let read = LoadTest::from_bundle(&load.to_bundle().unwrap(), Share::WHOLE).unwrap();
            assert_eq!(read.plan, load.plan, "{plan}");
            assert_eq!(read.options, load.options);
            for n in [0, 1, 9_999] {
                assert_eq!(read.traffic.request(n), load.traffic.request(n));
            }
            assert_eq!(
                (read.id, read.max_in_flight, read.drain, read.threads, read.seed, read.first_request),
                (load.id, load.max_in_flight, load.drain, load.threads, load.seed, load.first_request),
            );
        }
    }

    #[test]
    fn replayed_times_are_kept() {
        let due: Vec<Duration> = (0..1000).map(|n| Duration::from_micros(n * n)).collect();
        let load = LoadTest { plan: Plan::replay(due).unwrap(), ..load("[[phase]]\nburst = 1") };
        assert_eq!(LoadTest::from_bundle(&load.to_bundle().unwrap(), Share::WHOLE).unwrap().plan, load.plan);
    }

    #[test]
    fn damaged_bundle_is_refused() {
        let bytes = load("[[phase]]\nburst = 9").to_bundle().unwrap();
        for length in 0..bytes.len() {
            assert!(LoadTest::from_bundle(&bytes[..length], Share::WHOLE).is_err(), "{length} bytes");
        }
    }
}
