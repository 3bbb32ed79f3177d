//! Claims of known truth during a disturbance.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{
    Result,
    disturb::{Disturber, StopPlan},
    experiment::{self, Claim, RATE},
    options::Trials,
    program::{Folder, RunPlan, Running},
    record::{Judged, verdicts},
    truth::{Outcome, Truth},
};

/// Of each measurement. A stop lasts a second.
const SECONDS: u32 = 5;
const ARMS: u32 = 3;
/// Requests per second near and beyond what a generator can send that shares its core with two busy loops. The proxy on a core of its own
/// responds to as many hits.
const LIMIT_RATES: [u32; 2] = [20_000, 60_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A busy loop on one core, in a third of the seconds.
    Busy,
    /// The proxy, or the origin in each fourth trial, stopped for a second.
    Stop,
    /// The generator shares its core with two busy loops; proxy and origin have the other one.
    Limit,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Busy, Self::Stop, Self::Limit];

    fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy core",
            Self::Stop => "stopped process",
            Self::Limit => "generator at its limit",
        }
    }
}

/// A verdict and what it is worth.
struct Judgement {
    kind: Kind,
    truth: Truth,
    outcome: Outcome,
}

pub fn run(options: &Trials) -> Result<bool> {
    let (mut judgements, mut wrong_trials) = (Vec::new(), 0);
    for trial in 0..options.count {
        let kind = Kind::ALL[trial as usize % Kind::ALL.len()];
        let folder = Folder::create(&options.out, &format!("noise-{trial}"))?;
        let claims = disturbed(options, kind, trial, &folder)?;
        let of_trial = judged(kind, trial, &claims, &verdicts(&folder.record())?)?;
        let is_wrong = of_trial.iter().any(|judgement| judgement.outcome == Outcome::Wrong);
        wrong_trials += u32::from(is_wrong);
        folder.close(is_wrong)?;
        judgements.extend(of_trial);
    }
    print_table(&judgements);
    println!("\n{} trials, {wrong_trials} with a wrong verdict", options.count);
    Ok(wrong_trials == 0)
}

/// Runs the experiment during its disturbance, and returns its claims.
fn disturbed(options: &Trials, kind: Kind, trial: u32, folder: &Folder) -> Result<Vec<Claim>> {
    let seed = options.seed + u64::from(trial);
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let of_kind = trial / 3;
    let rate = if kind == Kind::Limit { LIMIT_RATES[of_kind as usize % LIMIT_RATES.len()] } else { RATE };
    let (experiment, claims) = experiment::disturbed(rate, SECONDS);
    let plan = RunPlan {
        program: &options.program,
        experiment: &experiment,
        repeats: options.repeats,
        seed,
        load: Duration::from_secs((ARMS * SECONDS * options.repeats).into()),
        core: (kind == Kind::Limit).then_some(0),
    };
    let running = Running::start(&plan, folder)?;
    let disturbers = match kind {
        Kind::Busy => vec![Disturber::busy(1, 1.0 / 3.0, seed)],
        Kind::Stop => {
            let role = if of_kind % 4 == 3 { "origin" } else { "proxy" };
            let measurement = random.random_range(0..(ARMS * options.repeats) as usize);
            let after = Duration::from_millis(random.random_range(0..3_400));
            vec![Disturber::stop(running.id(), StopPlan { role, measurement, after })]
        }
        Kind::Limit => vec![
            Disturber::busy(0, 1.0, seed),
            Disturber::busy(0, 1.0, seed),
            Disturber::move_servers(running.id(), 1),
        ],
    };
    running.wait()?;
    drop(disturbers);
    Ok(claims)
}

fn judged(kind: Kind, trial: u32, claims: &[Claim], verdicts: &[Judged]) -> Result<Vec<Judgement>> {
    let of_claim = |(claim, truth): &Claim| {
        let judged = verdicts.iter().find(|judged| judged.claim == *claim);
        let Judged { verdict, reason, .. } = judged.ok_or_else(|| format!("{claim} has no verdict"))?;
        let outcome = Outcome::of(*truth, *verdict, reason);
        if outcome == Outcome::Wrong {
            eprintln!("WRONG, {}, trial {trial}: {claim} is {}: {reason}", kind.name(), verdict.name());
        }
        Ok(Judgement { kind, truth: *truth, outcome })
    };
    claims.iter().map(of_claim).collect()
}

fn print_table(judgements: &[Judgement]) {
    println!(
        "| disturbance | the claim | right | open | invalid, with a reason | wrong |\n|---|---|---|---|---|---|"
    );
    for kind in Kind::ALL {
        for (truth, name) in
            [(Truth::Holds, "holds"), (Truth::Fails, "fails"), (Truth::Undecidable, "is about equal arms")]
        {
            let of_row = judgements.iter().filter(|one| one.kind == kind && one.truth == truth);
            let counts = Outcome::ALL
                .map(|outcome| of_row.clone().filter(|one| one.outcome == outcome).count().to_string())
                .join(" | ");
            println!("| {} | {name} | {counts} |", kind.name());
        }
    }
}
