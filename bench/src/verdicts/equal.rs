//! Two equal arms (A/A): how often they get a verdict, and how often the interval contains the ratio 1.

use std::time::Duration;

use super::{
    Result, experiment,
    options::Trials,
    program::{Folder, RunPlan, run as run_program},
    record::{Judged, Verdict, verdicts},
};

pub fn run(options: &Trials) -> Result<bool> {
    let (experiment, _) = experiment::equal();
    let (mut judged, mut wrong_pairs): (Vec<Judged>, u32) = (Vec::new(), 0);
    for pair in 0..options.count {
        let folder = Folder::create(&options.out, &format!("equal-{}-{pair}", options.repeats))?;
        let plan = RunPlan {
            program: &options.program,
            experiment: &experiment,
            repeats: options.repeats,
            seed: options.seed + u64::from(pair),
            load: Duration::from_secs(2) * options.repeats,
            core: None,
        };
        run_program(&plan, &folder)?;
        let of_pair = verdicts(&folder.record())?;
        let wrong: Vec<_> = of_pair.iter().filter(|judged| is_wrong(judged)).collect();
        for Judged { claim, verdict, reason, .. } in &wrong {
            eprintln!("WRONG, pair {pair}: {claim} is {}: {reason}", verdict.name());
        }
        let is_wrong = !wrong.is_empty();
        wrong_pairs += u32::from(is_wrong);
        folder.close(is_wrong)?;
        judged.extend(of_pair);
    }
    let head = Verdict::ALL.map(Verdict::name).join(" | ");
    println!(
        "| pairs | repeats | {head} | pairs with a false verdict | intervals with 1 |\n|---|---|---|---|---|---|---|---|"
    );
    let counts = Verdict::ALL
        .map(|verdict| judged.iter().filter(|judged| judged.verdict == verdict).count().to_string())
        .join(" | ");
    let intervals: Vec<_> = judged.iter().filter_map(|judged| judged.interval).collect();
    let with_one = intervals.iter().filter(|(low, high)| (*low..=*high).contains(&1.0)).count();
    println!(
        "| {} | {} | {counts} | {wrong_pairs} | {with_one} of {} |",
        options.count,
        options.repeats,
        intervals.len()
    );
    Ok(wrong_pairs == 0)
}

fn is_wrong(judged: &Judged) -> bool {
    matches!(judged.verdict, Verdict::Supported | Verdict::Refuted)
}
