//! The benches of `make bench`, one file each.
//!
//! ```text
//! Bench::measure(&Sitting) -> figures -> record (a file for each bench) -> fold (ratios, verdicts) -> report
//! ```
//!
//! A sitting measures all contenders of a bench in several rounds, in a random order in each. A ratio is one of figures of the same
//! round; the ratio of a sitting is the median of its rounds, and sittings are the repeats of the interval.

mod agents;
mod aims;
mod bytes;
mod herd;
mod hits;
mod leaders;
mod load;
mod memory;
mod misses;
mod mixed;
mod origin;
mod proxy;
mod refresh;
mod snapshot;
mod stampede;
mod traces;

use std::{cell::RefCell, env, fs, path::PathBuf, time::Duration};

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::origin::{ORIGIN, Server};

/// Errors of the tool itself, shown to the user.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The word that begins the name of each contender of this project.
pub const OURS: &str = "stockade";
/// A contender that stands for a bound: its figure is the aim.
pub const AIM: &str = "the aim";

/// A comparison of several contenders.
pub struct Bench {
    pub name: &'static str,
    /// The subject of its rows, in a line.
    pub shows: &'static str,
    /// How the comparison is made fair and how to read its rows: a paragraph of RESULTS.md.
    pub method: &'static str,
    /// The duration of a sitting on the reference machine. A sitting that takes four times as long and two minutes more is ended.
    pub seconds: u64,
    /// Programs without which it does not run.
    pub needs: &'static [&'static str],
    /// The parts whose versions RESULTS.md states: programs, and packages of Cargo.lock.
    pub peers: &'static [&'static str],
    /// The figures that have rows, in this order.
    pub metrics: &'static [Metric],
    /// Contenders without an aim: upper limits that do less.
    pub limits: &'static [&'static str],
    pub measure: fn(&Sitting) -> Result<Vec<Figure>>,
    /// The work of a child process, where memory is measured. It prints figures.
    pub child: Option<ChildProcess>,
}

/// Takes the arguments of a child process.
pub type ChildProcess = fn(&[&str]) -> Result<()>;

/// A measured quantity.
#[derive(Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// Digits after the decimal point.
    pub digits: usize,
    pub better: Better,
    /// Where ours / theirs should lie: at least here if higher is better, at most otherwise. `None`: no verdict.
    pub aim: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
}

/// The values of one contender in one case of a bench, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    pub case: String,
    pub metric: String,
    /// Words after a comma are a setting: of settings of one peer, the best one counts.
    pub contender: String,
    pub rounds: Vec<f64>,
}

/// The conditions of a sitting.
pub struct Sitting {
    /// One short round of each case, to see that the bench works.
    pub is_smoke: bool,
    /// A folder for files, removed after the sitting.
    pub folder: PathBuf,
    /// The same in memory.
    pub memory_folder: PathBuf,
    rng: RefCell<Pcg64Mcg>,
}

impl Sitting {
    #[must_use]
    pub fn new(seed: u64, is_smoke: bool, folder: PathBuf, memory_folder: PathBuf) -> Self {
        Self { is_smoke, folder, memory_folder, rng: RefCell::new(Pcg64Mcg::seed_from_u64(seed)) }
    }

    /// `full`, or `tiny` in a smoke run.
    pub fn scaled<T>(&self, full: T, tiny: T) -> T {
        if self.is_smoke { tiny } else { full }
    }

    /// The numbers below `count` in a random order.
    #[must_use]
    pub fn order(&self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut *self.rng.borrow_mut());
        order
    }

    /// True if a program is installed. Rows of the others are left out.
    #[must_use]
    pub fn has(&self, program: &str) -> bool {
        crate::process::is_installed(program)
    }

    /// Tells the runner what is measured now.
    pub fn progress(&self, text: &str) {
        eprintln!("{PROGRESS}{text}");
    }

    /// Measures each contender once in each round, in a random order. `measure` returns the figures of `metrics`.
    pub fn interleave<const N: usize>(
        &self,
        case: &str,
        metrics: [&str; N],
        contenders: &[&str],
        rounds: usize,
        mut measure: impl FnMut(usize) -> Result<[f64; N]>,
    ) -> Result<Vec<Figure>> {
        self.progress(case);
        let mut values = vec![vec![Vec::new(); N]; contenders.len()];
        for _ in 0..self.scaled(rounds, 1) {
            for at in self.order(contenders.len()) {
                let measured = measure(at).map_err(|error| format!("{case}, {}: {error}", contenders[at]))?;
                for (values, value) in values[at].iter_mut().zip(measured) {
                    values.push(value);
                }
            }
        }
        let of_contender = |(contender, values): (&&str, Vec<Vec<f64>>)| {
            metrics
                .iter()
                .zip(values)
                .map(|(metric, rounds)| Figure {
                    case: case.to_owned(),
                    metric: (*metric).to_owned(),
                    contender: (*contender).to_owned(),
                    rounds,
                })
                .collect::<Vec<_>>()
        };
        Ok(contenders.iter().zip(values).flat_map(of_contender).collect())
    }
}

/// Starts the origin of a sitting on these cores.
fn start_origin(sitting: &Sitting, cores: &str, recipes: &str) -> Result<Server> {
    let file = sitting.folder.join("recipes.json");
    fs::write(&file, recipes)?;
    let program = env::current_exe()?;
    let text = |path: &std::path::Path| path.to_str().map(str::to_owned).ok_or("a path that is not text");
    Server::start_on(cores, &[&text(&program)?, "serve", &text(&file)?], ORIGIN)
}

/// Begins a line of standard error that is progress, not an error.
pub const PROGRESS: &str = "progress: ";

impl Bench {
    /// The longest that a sitting may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        Duration::from_secs(4 * self.seconds + 120)
    }

    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&'static Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// All benches, in the order of RESULTS.md.
pub const BENCHES: [Bench; 16] = [
    hits::BENCH,
    mixed::BENCH,
    misses::BENCH,
    bytes::BENCH,
    traces::BENCH,
    stampede::BENCH,
    refresh::BENCH,
    snapshot::BENCH,
    proxy::BENCH,
    memory::BENCH,
    herd::BENCH,
    leaders::BENCH,
    load::BENCH,
    agents::BENCH,
    origin::BENCH,
    aims::BENCH,
];

/// A bench by its name.
pub fn find(name: &str) -> Result<&'static Bench> {
    static ALL: [Bench; 16] = BENCHES;
    ALL.iter().find(|bench| bench.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|bench| bench.name).collect();
        format!("no bench is called `{name}`: choose from {}, or all", names.join(", ")).into()
    })
}
