//! The experiment files of the trials, with the truth of their claims.

use std::fmt::Write as _;

use super::truth::Truth;

/// Requests per second where the load itself is not a burden.
pub const RATE: u32 = 300;
/// The latency of the origin, and so of each response of the slow arm.
const SLOW_MS: u32 = 100;

/// A comparison and whether it holds.
pub type Claim = (String, Truth);

/// Two equal arms for a second.
pub fn equal() -> (String, Vec<Claim>) {
    let claims = ["p50", "p99"]
        .map(|metric| (format!("left.response.{metric} < right.response.{metric}"), Truth::Undecidable));
    let arms = [Arm::cached("left"), Arm::cached("right")];
    (text(RATE, 1, &arms, &claims), claims.into())
}

/// Two equal arms that respond from memory, and one whose origin takes 100 ms for each request. Disturbances of some seconds
/// change no p50 and no p99 of an undisturbed machine by as much as these differ.
pub fn disturbed(rate: u32, seconds: u32) -> (String, Vec<Claim>) {
    let claims = [
        ("fast.response.p50 < slow.response.p50", Truth::Holds),
        ("fast.response.p99 < slow.response.p99", Truth::Holds),
        ("fast.response.p99 <= 50ms", Truth::Holds),
        ("fast.response.p99 > slow.response.p99", Truth::Fails),
        ("slow.response.p50 <= 1ms", Truth::Fails),
        ("fast.response.p50 < again.response.p50", Truth::Undecidable),
        ("fast.response.p99 < again.response.p99", Truth::Undecidable),
    ]
    .map(|(claim, truth)| (claim.to_owned(), truth));
    let arms = [Arm::cached("fast"), Arm::cached("again"), Arm { name: "slow", is_cached: false }];
    (text(rate, seconds, &arms, &claims), claims.into())
}

/// Hits of one arm, for `stockade compare`.
pub fn hits(rate: u32, seconds: u32) -> String {
    let claim = ("hits.success == 1".to_owned(), Truth::Holds);
    text(rate, seconds, &[Arm::cached("hits")], &[claim])
}

struct Arm {
    name: &'static str,
    is_cached: bool,
}

impl Arm {
    fn cached(name: &'static str) -> Self {
        Self { name, is_cached: true }
    }
}

/// An origin that takes 100 ms.
fn recipe(cache_control: &str) -> String {
    format!(
        "recipe = [{{ route = \"/*\", random_content = \"1kb\", headers = {{ cache-control = \"{cache_control}\" }}, stages = [{{ at = 0, \
         latency = \"{SLOW_MS}ms\" }}] }}]"
    )
}

/// A proxy with a page that a probe requests before the load.
fn text(rate: u32, seconds: u32, arms: &[Arm], claims: &[Claim]) -> String {
    let recipe_of_all = recipe("public, max-age=3600");
    let mut text = format!(
        "title = \"Trials of verdicts\"\n\n[target]\nkind = \"proxy\"\n\n[cache]\nstrategy = \"stampede\"\n\n[origin]\n\
         {recipe_of_all}\n\n[preflight]\nprobes = [{{ path = \"/page\", status = 200 }}]\n\n[load]\nrate = \"{rate}/s\"\n\
         duration = \"{seconds}s\"\ndrain = \"2s\"\npath = \"/page\"\n"
    );
    for Arm { name, is_cached } in arms {
        let _ = write!(text, "\n[[arm]]\nname = \"{name}\"\n");
        if !is_cached {
            let _ = writeln!(text, "cache.strategy = \"none\"\norigin.{}", recipe("no-store"));
        }
    }
    for (claim, _) in claims {
        let _ = write!(text, "\n[[hypothesis]]\ntext = \"{claim}\"\nexpect = [\"{claim}\"]\n");
    }
    text
}
