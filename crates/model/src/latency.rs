//! Constant and random latencies.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use rand::RngExt;
use rand_distr::{Distribution, Exp1, StandardNormal};
use rustix::fs::OFlags;

use crate::{
    nearest::remedy,
    seed::Rng,
    units::{UnitError, format_duration, milliseconds, parse_duration},
};

/// A latency distribution. Each request draws from it.
///
/// | text | distribution |
/// |---|---|
/// | `20ms` | constant |
/// | `10ms..30ms` | uniform, both ends included |
/// | `normal(mean=20ms, sd=5ms)` | normal; a negative draw is zero |
/// | `lognormal(median=20ms, p99=200ms)` | log-normal, with a long tail like most services |
/// | `exponential(mean=20ms)` | exponential |
/// | `empirical(FILE)` | the durations in a file, one on each line, all equally likely |
///
/// ```
/// use stockade_model::latency::Latency;
///
/// let latency: Latency = "10ms..30ms".parse()?;
/// assert_eq!(latency.to_string(), "10ms..30ms");
/// assert_eq!(
///     "30ms..10ms".parse::<Latency>().unwrap_err().to_string(),
///     "`30ms..10ms` ends before it begins: write the smaller latency first",
/// );
/// # Ok::<(), stockade_model::latency::LatencyError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Latency(LatencyDistribution);

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum LatencyDistribution {
    Constant(Duration),
    Uniform { min: Duration, max: Duration },
    Normal { mean: Duration, sd: Duration },
    LogNormal { median: Duration, p99: Duration },
    Exponential { mean: Duration },
    Empirical { file: PathBuf, seen: Arc<[Duration]> },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatencyError {
    /// A part of the text is not a duration.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The larger end of a range comes first.
    #[error("`{0}` ends before it begins: write the smaller latency first")]
    Backwards(String),
    #[error("`{name}` is not a distribution: {}", remedy(.name, DISTRIBUTIONS.map(|(name, ..)| name)))]
    UnknownDistribution {
        /// The text before the bracket.
        name: String,
    },
    /// Missing, unknown or extra arguments.
    #[error("`{text}` is not how that is written: write `{form}`")]
    Form {
        /// The text of the latency.
        text: String,
        /// The expected form.
        form: &'static str,
    },
    /// Half of the draws of a log-normal distribution are above its median.
    #[error("`{0}` has a p99 below its median: write a p99 that is larger")]
    TailBelowMedian(String),
    #[error("{path}: {reason}")]
    File {
        path: String,
        /// The cause and the remedy.
        reason: String,
    },
}

/// Cache of latency files, so that each file is read once.
#[derive(Clone, Debug)]
pub struct LatencyFiles {
    /// `None`: no file is read.
    folder: Option<PathBuf>,
    /// By device and inode, because several paths may name one file.
    seen: HashMap<(u64, u64), Arc<[Duration]>>,
}

/// Name, form, arguments and constructor; no constructor: the distribution reads a file.
type DistributionEntry =
    (&'static str, &'static str, &'static [&'static str], Option<fn(&[Duration]) -> LatencyDistribution>);

static DISTRIBUTIONS: [DistributionEntry; 4] = [
    (
        "normal",
        "normal(mean=20ms, sd=5ms)",
        &["mean", "sd"],
        Some(|of| LatencyDistribution::Normal { mean: of[0], sd: of[1] }),
    ),
    (
        "lognormal",
        "lognormal(median=20ms, p99=200ms)",
        &["median", "p99"],
        Some(|of| LatencyDistribution::LogNormal { median: of[0], p99: of[1] }),
    ),
    (
        "exponential",
        "exponential(mean=20ms)",
        &["mean"],
        Some(|of| LatencyDistribution::Exponential { mean: of[0] }),
    ),
    ("empirical", "empirical(latencies.txt)", &[], None),
];

/// Limit of a latency file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The 99th percentile of the standard normal distribution.
const Z99: f64 = 2.326_347_874_040_840_8;
/// Upper bound of a draw, because the tails of some distributions have none.
const LONGEST: Duration = Duration::from_secs(60 * 60);

impl Latency {
    /// Parses a latency. `folder` is the base of relative file names.
    pub fn parse_in(text: &str, folder: &Path) -> Result<Self, LatencyError> {
        Self::parse_with(text, &mut LatencyFiles::below(folder))
    }

    /// Parses a latency. `files` caches the latency files.
    pub fn parse_with(text: &str, files: &mut LatencyFiles) -> Result<Self, LatencyError> {
        let law = match (
            text.trim().strip_suffix(')').and_then(|text| text.split_once('(')),
            text.split_once(".."),
        ) {
            (Some((name, arguments)), _) => parse_law(text, name.trim(), arguments.trim(), files)?,
            (None, Some((min, max))) => {
                let (min, max) = (parse_duration(min)?, parse_duration(max)?);
                if min > max {
                    return Err(LatencyError::Backwards(text.to_owned()));
                }
                if min == max {
                    LatencyDistribution::Constant(min)
                } else {
                    LatencyDistribution::Uniform { min, max }
                }
            }
            (None, None) => LatencyDistribution::Constant(parse_duration(text)?),
        };
        Ok(Self(law))
    }

    pub fn draw(&self, rng: &mut Rng) -> Duration {
        match &self.0 {
            LatencyDistribution::Constant(latency) => *latency,
            LatencyDistribution::Uniform { min, max } => rng.random_range(*min..=*max),
            LatencyDistribution::Normal { mean, sd } => {
                let z: f64 = StandardNormal.sample(rng);
                seconds(mean.as_secs_f64() + z * sd.as_secs_f64())
            }
            LatencyDistribution::LogNormal { median, p99 } => {
                let z: f64 = StandardNormal.sample(rng);
                seconds(median.as_secs_f64() * (p99.as_secs_f64() / median.as_secs_f64()).powf(z / Z99))
            }
            LatencyDistribution::Exponential { mean } => {
                let times: f64 = Exp1.sample(rng);
                seconds(mean.as_secs_f64() * times)
            }
            LatencyDistribution::Empirical { seen, .. } => seen[rng.random_range(0..seen.len())],
        }
    }

    /// The form of the origins' admin pages: milliseconds without their unit (`100`, `100..200`), or the distribution
    /// without blanks.
    #[must_use]
    pub fn in_milliseconds(&self) -> String {
        match &self.0 {
            LatencyDistribution::Constant(latency) => milliseconds(*latency).to_string(),
            LatencyDistribution::Uniform { min, max } => {
                format!("{}..{}", milliseconds(*min), milliseconds(*max))
            }
            _ => self.to_string().replace(' ', ""),
        }
    }

    /// The latency, if it is constant.
    #[must_use]
    pub fn constant(&self) -> Option<Duration> {
        match self.0 {
            LatencyDistribution::Constant(latency) => Some(latency),
            _ => None,
        }
    }

    /// The longest latency, if there is a bound.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        match &self.0 {
            LatencyDistribution::Constant(latency) => Some(*latency),
            LatencyDistribution::Uniform { max, .. } => Some(*max),
            LatencyDistribution::Empirical { seen, .. } => seen.iter().copied().max(),
            _ => None,
        }
    }
}

impl Default for Latency {
    /// Zero.
    fn default() -> Self {
        Self(LatencyDistribution::Constant(Duration::ZERO))
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST).min(LONGEST)
}

/// Parses `name(arguments)`.
fn parse_law(
    text: &str,
    name: &str,
    arguments: &str,
    files: &mut LatencyFiles,
) -> Result<LatencyDistribution, LatencyError> {
    let Some((_, form, names, make)) = DISTRIBUTIONS.iter().find(|(known, ..)| *known == name) else {
        return Err(LatencyError::UnknownDistribution { name: name.to_owned() });
    };
    let malformed = || LatencyError::Form { text: text.to_owned(), form };
    let Some(make) = make else {
        if arguments.is_empty() {
            return Err(malformed());
        }
        let seen = files.read(Path::new(arguments))?;
        return Ok(LatencyDistribution::Empirical { file: arguments.into(), seen });
    };
    let mut named: Vec<_> = arguments.split(',').map(|argument| argument.split_once('=')).collect();
    let mut found = Vec::new();
    for name in *names {
        let at = named.iter().position(|pair| pair.is_some_and(|(known, _)| known.trim() == *name));
        let (_, value) = at.and_then(|at| named.swap_remove(at)).ok_or_else(malformed)?;
        found.push(parse_duration(value)?);
    }
    if !named.is_empty() {
        return Err(malformed());
    }
    match make(&found) {
        LatencyDistribution::LogNormal { median, p99 } if median.is_zero() || p99 < median => {
            Err(LatencyError::TailBelowMedian(text.to_owned()))
        }
        law => Ok(law),
    }
}

impl LatencyFiles {
    /// `folder` is the base of relative file names.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), seen: HashMap::new() }
    }

    /// Refuses latencies of files.
    #[must_use]
    pub fn none() -> Self {
        Self { folder: None, seen: HashMap::new() }
    }

    /// Reads a file with one duration on each line.
    fn read(&mut self, name: &Path) -> Result<Arc<[Duration]>, LatencyError> {
        let path = self.folder.as_ref().map(|folder| folder.join(name));
        let shown = path.as_deref().unwrap_or(name).display();
        let wrong = |reason: String| LatencyError::File { path: shown.to_string(), reason };
        let Some(path) = &path else {
            return Err(wrong("no file is read here: write another latency".to_owned()));
        };
        let unread = |error| wrong(format!("cannot read it: {error}"));
        // Nonblocking, because a pipe without a writer blocks in `open`, and some files of the kernel block in `read`.
        // With it, a pipe opens at once and is refused, and a read of the other files fails.
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(unread)?;
        let about = file.metadata().map_err(unread)?;
        if !about.is_file() {
            return Err(wrong("it is not a file".to_owned()));
        }
        let key = (about.dev(), about.ino());
        if let Some(seen) = self.seen.get(&key) {
            return Ok(Arc::clone(seen));
        }
        let mut text = String::new();
        // Files of the kernel report a length of zero, so the limit applies to the read.
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        if text.len() as u64 > FILE_BYTES_MAX || about.len() > FILE_BYTES_MAX {
            return Err(wrong(
                "it has more than 16 MiB: a hundred thousand latencies say as much".to_owned(),
            ));
        }
        read.map_err(unread)?;
        let seen = lines(&text).map_err(wrong)?;
        self.seen.insert(key, Arc::clone(&seen));
        Ok(seen)
    }
}

/// Parses one duration on each line and skips lines that begin with `#`. An error is the cause with its remedy.
fn lines(text: &str) -> Result<Arc<[Duration]>, String> {
    let mut seen = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The file may contain secrets, and the message may be public: it contains the line's number, not its text.
        let latency = parse_duration(line).map_err(|_| {
            format!("line {} is not a duration: write one a line, such as `12.5ms`", number + 1)
        })?;
        seen.push(latency);
    }
    if seen.is_empty() {
        return Err("there is no latency in it: write one a line, such as `12.5ms`".to_owned());
    }
    Ok(seen.into())
}

impl FromStr for Latency {
    type Err = LatencyError;

    /// The current folder is the base of relative file names.
    fn from_str(text: &str) -> Result<Self, LatencyError> {
        Self::parse_in(text, Path::new(""))
    }
}

impl From<Duration> for Latency {
    /// A constant latency.
    fn from(latency: Duration) -> Self {
        Self(LatencyDistribution::Constant(latency))
    }
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let d = |duration: &Duration| format_duration(*duration);
        match &self.0 {
            LatencyDistribution::Constant(latency) => f.write_str(&d(latency)),
            LatencyDistribution::Uniform { min, max } => write!(f, "{}..{}", d(min), d(max)),
            LatencyDistribution::Normal { mean, sd } => write!(f, "normal(mean={}, sd={})", d(mean), d(sd)),
            LatencyDistribution::LogNormal { median, p99 } => {
                write!(f, "lognormal(median={}, p99={})", d(median), d(p99))
            }
            LatencyDistribution::Exponential { mean } => write!(f, "exponential(mean={})", d(mean)),
            LatencyDistribution::Empirical { file, .. } => write!(f, "empirical({})", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::seed::Seed;

    fn drawn(text: &str, count: usize) -> Vec<f64> {
        let latency: Latency = text.parse().unwrap();
        let mut rng = Seed(1).stream("latency");
        let mut drawn: Vec<_> = (0..count).map(|_| latency.draw(&mut rng).as_secs_f64() * 1e3).collect();
        drawn.sort_by(f64::total_cmp);
        drawn
    }

    #[test]
    fn some_distributions_have_a_longest_latency() {
        let max = |text: &str| text.parse::<Latency>().unwrap().max();
        assert_eq!(max("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(max("10ms..30ms"), Some(Duration::from_millis(30)));
        assert_eq!(max("exponential(mean=20ms)"), None);
    }

    #[test]
    fn range_draws_are_uniform_and_include_both_ends() {
        let latency: Latency = "1ns..4ns".parse().unwrap();
        let mut rng = Seed(1).stream("latency");
        let mut drawn = [0_u32; 4];
        for _ in 0..40_000 {
            let nanos = usize::try_from(latency.draw(&mut rng).as_nanos()).unwrap();
            drawn[nanos - 1] += 1;
        }
        // Chi-squared, 3 degrees of freedom: 16.27 is exceeded by chance once in a thousand seeds.
        let chi_squared: f64 = drawn.iter().map(|n| (f64::from(*n) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi_squared < 16.27, "{drawn:?}");
    }

    #[test]
    fn distributions_have_their_declared_percentiles() {
        // For 100,000 draws: the expected percentile and a tolerance of at least five standard errors.
        for (text, percentiles) in [
            ("20ms", [(0.5, 20.0, 0.0), (0.99, 20.0, 0.0)]),
            ("normal(mean=20ms, sd=5ms)", [(0.5, 20.0, 0.1), (0.99, 31.63, 0.3)]),
            ("normal(sd=20ms, mean=10ms)", [(0.1, 0.0, 0.0), (0.5, 10.0, 0.4)]),
            ("lognormal(median=20ms, p99=200ms)", [(0.5, 20.0, 0.4), (0.99, 200.0, 12.0)]),
            ("exponential(mean=20ms)", [(0.5, 13.86, 0.35), (0.99, 92.1, 3.2)]),
        ] {
            let drawn = drawn(text, 100_000);
            for (at, expected, off) in percentiles {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
                let found = drawn[(at * 100_000.0) as usize];
                assert!((found - expected).abs() <= off, "{text}: {at} at {found} ms, not {expected}");
            }
        }
    }

    #[test]
    fn file_latencies_are_equally_likely() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("seen.txt"), "# of Monday\n1ms\n\n2ms\n2ms\n40ms\n").unwrap();
        let latency = Latency::parse_in("empirical(seen.txt)", folder.path()).unwrap();
        assert_eq!(latency.to_string(), "empirical(seen.txt)");
        let mut rng = Seed(1).stream("latency");
        let mut twice = 0;
        for _ in 0..10_000 {
            let millis = latency.draw(&mut rng).as_millis();
            assert!([1, 2, 40].contains(&millis));
            twice += u32::from(millis == 2);
        }
        // Half of 10,000, with a tolerance of five standard deviations.
        assert!((4_750..5_250).contains(&twice), "{twice}");
    }

    #[test]
    fn file_with_several_paths_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("seen.txt"), "1ms\n2ms\n").unwrap();
        let mut files = LatencyFiles::below(folder.path());
        let mut read = |name: &str| match Latency::parse_with(&format!("empirical({name})"), &mut files) {
            Ok(Latency(LatencyDistribution::Empirical { seen, .. })) => seen,
            other => panic!("{other:?}"),
        };
        let seen = read("seen.txt");
        let here = folder.path().file_name().and_then(|name| name.to_str()).unwrap();
        assert!(Arc::ptr_eq(&seen, &read("seen.txt")));
        assert!(Arc::ptr_eq(&seen, &read(&format!("../{here}/seen.txt"))));
    }

    #[test]
    fn no_file_is_read_where_none_may_be() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("seen.txt"), "1ms\n").unwrap();
        let path = folder.path().join("seen.txt").display().to_string();
        for text in ["empirical(PATH)", "empirical (PATH)", " empirical\t( PATH )", "empirical (/etc/passwd)"]
        {
            let text = text.replace("PATH", &path);
            let error = Latency::parse_with(&text, &mut LatencyFiles::none()).unwrap_err().to_string();
            assert!(error.ends_with(": no file is read here: write another latency"), "{text}: {error}");
        }
        assert!(Latency::parse_with("normal(mean=20ms, sd=5ms)", &mut LatencyFiles::none()).is_ok());
    }

    #[test]
    fn pipes_and_devices_are_refused_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (name, reason) in [
            (pipe.to_str().unwrap(), "it is not a file"),
            ("/dev/zero", "it is not a file"),
            ("/proc/self/status", "line 1 is not a duration: write one a line, such as `12.5ms`"),
        ] {
            let error = Latency::parse_in(&format!("empirical({name})"), folder.path()).unwrap_err();
            assert_eq!(error.to_string(), format!("{name}: {reason}"));
        }
        let large = folder.path().join("large");
        fs::File::create(&large).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = Latency::parse_in("empirical(large)", folder.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("it has more than 16 MiB: a hundred thousand latencies say as much"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("bad"), "1ms\nsecret\n").unwrap();
        fs::write(folder.path().join("empty"), "# nothing\n").unwrap();
        let path = |name| folder.path().join(name).display().to_string();
        for (text, message) in [
            ("5", "`5` has no unit: write `5ms` or `5s`".to_owned()),
            ("1..2s", "`1` has no unit: write `1ms` or `1s`".to_owned()),
            ("2s..1s", "`2s..1s` ends before it begins: write the smaller latency first".to_owned()),
            ("norml(mean=1s, sd=1s)", "`norml` is not a distribution: did you mean `normal`?".to_owned()),
            (
                "pareto(1s)",
                "`pareto` is not a distribution: use one of: normal, lognormal, exponential, empirical"
                    .to_owned(),
            ),
            (
                "normal(1s)",
                "`normal(1s)` is not how that is written: write `normal(mean=20ms, sd=5ms)`".to_owned(),
            ),
            (
                "exponential(mean=1s, sd=1s)",
                "`exponential(mean=1s, sd=1s)` is not how that is written: write `exponential(mean=20ms)`"
                    .to_owned(),
            ),
            ("exponential(mean=1)", "`1` has no unit: write `1ms` or `1s`".to_owned()),
            (
                "lognormal(median=1s, p99=1ms)",
                "`lognormal(median=1s, p99=1ms)` has a p99 below its median: write a p99 that is larger"
                    .to_owned(),
            ),
            (
                "empirical()",
                "`empirical()` is not how that is written: write `empirical(latencies.txt)`".to_owned(),
            ),
            (
                "empirical(bad)",
                format!("{}: line 2 is not a duration: write one a line, such as `12.5ms`", path("bad")),
            ),
            (
                "empirical(empty)",
                format!("{}: there is no latency in it: write one a line, such as `12.5ms`", path("empty")),
            ),
            (
                "empirical(none)",
                format!("{}: cannot read it: No such file or directory (os error 2)", path("none")),
            ),
            ("empirical(.)", format!("{}: it is not a file", path("."))),
        ] {
            assert_eq!(Latency::parse_in(text, folder.path()).unwrap_err().to_string(), message, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(normal|lognormal|exponential)?[(]?(mean|sd|median|p99|=|,|[0-9]{1,12}(ms|s|d)|[ .()])*") {
            if let Ok(latency) = text.parse::<Latency>() {
                let _ = latency.draw(&mut Seed(1).stream("latency"));
            }
        }

        #[test]
        fn formatted_text_parses_again(a in 1..1_000_u64, b in 1..1_000_u64) {
            let (min, max) = (a.min(b), a.max(b));
            for text in [
                format!("{min}ms..{max}ms"),
                format!("normal(mean={a}ms, sd={b}ms)"),
                format!("lognormal(median={min}ms, p99={max}ms)"),
                format!("exponential(mean={a}ms)"),
            ] {
                let written = text.parse::<Latency>().unwrap().to_string();
                prop_assert_eq!(written.parse::<Latency>().unwrap().to_string(), written);
            }
        }
    }
}
