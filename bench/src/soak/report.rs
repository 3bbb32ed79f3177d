//! The verdict and the report.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::statistics::median;

use super::{
    Result,
    context::Context,
    incident::IncidentKind,
    inject::Ended,
    options::RunOptions,
    plot::plot,
    sampler::{AtRest, Sample},
    schedule::Fault,
    tally::Tally,
    traffic::Role,
};

const MIB: f64 = 1_048_576.0;
/// The largest change of resident memory.
const CHANGE_MAX: f64 = 0.02;
/// Below this the cache is still being filled in the first half.
const MEMORY_RUN_MIN: Duration = Duration::from_mins(30);
/// Descriptors at rest may differ by those of a lazily opened resource.
const DESCRIPTORS_MORE_MAX: u64 = 4;
const MINUTE_SECONDS: u64 = 60;

pub struct Finished<'a> {
    pub options: &'a RunOptions,
    pub lasted: Duration,
    /// Why the run ended early.
    pub reason: Option<String>,
    pub samples: Vec<Sample>,
    pub faults_without_effect: u64,
    pub first_rest: AtRest,
    pub last_rest: Option<AtRest>,
    pub ended: Vec<Ended>,
    pub log_lines: u64,
    pub has_clock: bool,
    pub is_small_disk: bool,
    pub program: PathBuf,
}

/// A statement that has to hold.
struct Check {
    name: &'static str,
    found: String,
    holds: bool,
}

/// Medians of resident memory in the last quarter of the first and of the last hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    pub first_bytes: f64,
    pub last_bytes: f64,
}

impl Memory {
    pub fn change(&self) -> f64 {
        self.last_bytes / self.first_bytes - 1.0
    }
}

/// Memory of the steady proxy. Hours are halves of the run if it is shorter than two hours.
pub fn memory(samples: &[Sample], lasted: Duration) -> Option<Memory> {
    let lasted = lasted.as_secs();
    let hour = (lasted / 2).min(3_600);
    let quarter_until = |end: u64| {
        let steady = samples.iter().filter(|one| one.role == Role::Steady);
        let within = steady.filter(|one| one.seconds >= end - hour / 4 && one.seconds < end);
        let bytes: Vec<f64> = within.map(|one| one.resident_bytes as f64).collect();
        (!bytes.is_empty()).then(|| median(bytes))
    };
    Some(Memory { first_bytes: quarter_until(hour)?, last_bytes: quarter_until(lasted)? })
}

/// Writes the report into the folder and to standard output. Returns whether everything holds.
pub fn write(context: &Context, finished: &Finished<'_>) -> Result<bool> {
    let tally = context.tally();
    let checks = checks(&tally, finished);
    let holds = checks.iter().all(|check| check.holds);
    let faults = faults(&context.out)?;
    let mut text = String::new();
    head(&mut text, finished, holds)?;
    verdict(&mut text, &checks)?;
    requests(&mut text, &tally)?;
    fault_table(&mut text, &faults, finished)?;
    incidents(&mut text, &tally)?;
    processes(&mut text, finished)?;
    fs::write(context.out.join("README.md"), &text)?;
    fs::write(context.out.join("minutes.csv"), minutes(&finished.samples))?;
    fs::write(context.out.join("soak.svg"), plot(&finished.samples, &faults))?;
    println!("{text}");
    Ok(holds)
}

fn checks(tally: &Tally, finished: &Finished<'_>) -> Vec<Check> {
    let zero = |name, kind| {
        let count = tally.of_kind(kind);
        Check { name, found: count.to_string(), holds: count == 0 }
    };
    let hangs = tally.incidents.get(&(IncidentKind::Hang, None)).copied().unwrap_or_default();
    let exits = finished.ended.iter().filter(|ended| ended.exit_code != Some(0)).count();
    let mut checks = vec![
        Check {
            name: "The run lasted as long as asked",
            found: finished.reason.clone().unwrap_or_else(|| format!("{} s", finished.lasted.as_secs())),
            holds: finished.reason.is_none(),
        },
        Check {
            name: "Bodies were compared",
            found: format!("{} whole, {} parts", tally.bodies, tally.unfinished_bodies),
            holds: tally.bodies > 0,
        },
        zero("Wrong bodies", IncidentKind::WrongBody),
        zero("Responses that were too old", IncidentKind::TooStale),
        zero("Responses that had been purged", IncidentKind::Purged),
        zero("Malformed requests that were accepted", IncidentKind::Accepted),
        Check { name: "Hangs outside of full descriptors", found: hangs.to_string(), holds: hangs == 0 },
        Check {
            name: "Incidents that no fault excuses",
            found: tally.unexcused().to_string(),
            holds: tally.unexcused() == 0,
        },
        Check {
            name: "Requests left out, too many in flight",
            found: tally.skipped.to_string(),
            holds: tally.skipped == 0,
        },
        Check {
            name: "Faults without the intended effect",
            found: finished.faults_without_effect.to_string(),
            holds: finished.faults_without_effect == 0,
        },
        Check {
            name: "Proxies that did not exit with 0",
            found: format!("{exits} of {}", finished.ended.len()),
            holds: exits == 0 && finished.ended.len() >= 2,
        },
        rest_check(finished),
    ];
    checks.extend(memory_check(finished));
    checks
}

fn rest_check(finished: &Finished<'_>) -> Check {
    let first = finished.first_rest.descriptors;
    let (found, holds) = match finished.last_rest {
        Some(last) => (
            format!(
                "{first} before, {} after; {} requests in flight",
                last.descriptors, last.requests_in_flight
            ),
            last.descriptors <= first + DESCRIPTORS_MORE_MAX && last.requests_in_flight == 0,
        ),
        None => (format!("{first} before, unknown after"), false),
    };
    Check { name: "Descriptors of the steady proxy without clients", found, holds }
}

fn memory_check(finished: &Finished<'_>) -> Option<Check> {
    if finished.lasted < MEMORY_RUN_MIN {
        return None;
    }
    let memory = memory(&finished.samples, finished.lasted);
    let found = memory.map_or_else(
        || "no samples".to_owned(),
        |memory| {
            format!(
                "{:.1} MiB, then {:.1} MiB: {:+.2} %",
                memory.first_bytes / MIB,
                memory.last_bytes / MIB,
                memory.change() * 100.0
            )
        },
    );
    let holds = memory.is_some_and(|memory| memory.change().abs() <= CHANGE_MAX);
    Some(Check { name: "Resident memory, first and last hour, within 2 %", found, holds })
}

fn head(text: &mut String, finished: &Finished<'_>, holds: bool) -> Result<()> {
    let options = finished.options;
    let version = Command::new(&finished.program).arg("--version").output()?.stdout;
    writeln!(
        text,
        "# Soak\n\n**{}** `soak --duration {}s --seed {} --rate {}`, {}, on {} processors.\n",
        if holds { "Everything holds." } else { "Not everything holds." },
        options.duration.as_secs(),
        options.seed,
        options.rate_per_second,
        String::from_utf8_lossy(&version).trim(),
        std::thread::available_parallelism()?,
    )?;
    Ok(())
}

fn verdict(text: &mut String, checks: &[Check]) -> Result<()> {
    writeln!(text, "| check | found | holds |\n|---|---|---|")?;
    for check in checks {
        writeln!(
            text,
            "| {} | {} | {} |",
            check.name,
            check.found,
            if check.holds { "yes" } else { "**no**" }
        )?;
    }
    writeln!(
        text,
        "\nResident memory is the median of the steady proxy's samples, one a second, in the last quarter of the first \
         and of the last hour (halves of a run below two hours). Runs below 30 minutes have no such check.\n"
    )?;
    Ok(())
}

fn requests(text: &mut String, tally: &Tally) -> Result<()> {
    let total: u64 = tally.requests.values().sum();
    writeln!(text, "## Requests\n\n| kind | requests |\n|---|---|")?;
    for (name, count) in &tally.requests {
        writeln!(text, "| {name} | {count} |")?;
    }
    writeln!(text, "| all | {total} |\n\n| connection | requests |\n|---|---|")?;
    for (name, count) in &tally.transports {
        writeln!(text, "| {name} | {count} |")?;
    }
    writeln!(text, "\n| status | responses |\n|---|---|")?;
    for (status, count) in &tally.statuses {
        writeln!(text, "| {status} | {count} |")?;
    }
    writeln!(text, "\n| outcome in `Cache-Status` | responses |\n|---|---|")?;
    for (detail, count) in &tally.cache {
        writeln!(text, "| {detail} | {count} |")?;
    }
    let times = &tally.response_ms;
    writeln!(
        text,
        "\n{:.1} GiB of bodies were compared. Times of complete GETs, late and paced responses included: p50 {} ms, p99 {} ms, \
         longest {} ms.\n",
        tally.body_bytes as f64 / MIB / 1_024.0,
        times.value_at_quantile(0.5),
        times.value_at_quantile(0.99),
        times.max(),
    )?;
    Ok(())
}

fn fault_table(text: &mut String, faults: &[FaultRecord], finished: &Finished<'_>) -> Result<()> {
    let mut by_kind: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
    for one in faults {
        let entry = by_kind.entry(&one.name).or_default();
        entry.0 += 1;
        entry.1 += u64::from(one.held);
        entry.2 = &one.detail;
    }
    writeln!(text, "## Faults\n\n| fault | times | with effect | the last one |\n|---|---|---|---|")?;
    for (name, (count, held, detail)) in &by_kind {
        writeln!(text, "| {name} | {count} | {held} | {detail} |")?;
    }
    let unplanned: Vec<_> =
        Fault::ALL.iter().map(|fault| fault.name()).filter(|name| !by_kind.contains_key(name)).collect();
    writeln!(text, "\n{} lines of access logs were read; all are JSON.", finished.log_lines)?;
    if !finished.has_clock {
        writeln!(text, "The steps of the clock were left out: libfaketime is not installed.")?;
    }
    if !finished.is_small_disk {
        writeln!(text, "The full disk was `/dev/full`, since a mount takes root.")?;
    }
    if !unplanned.is_empty() {
        writeln!(text, "Did not take place: {}.", unplanned.join(", "))?;
    }
    writeln!(text)?;
    Ok(())
}

fn incidents(text: &mut String, tally: &Tally) -> Result<()> {
    writeln!(text, "## Incidents\n\n`incidents.jsonl` has each with its request.\n")?;
    writeln!(text, "| incident | excused by | times |\n|---|---|---|")?;
    for ((kind, fault), count) in &tally.incidents {
        writeln!(text, "| {} | {} | {count} |", kind.name(), fault.map_or("**nothing**", Fault::name))?;
    }
    writeln!(text)?;
    Ok(())
}

fn processes(text: &mut String, finished: &Finished<'_>) -> Result<()> {
    writeln!(
        text,
        "## Processes\n\n| proxy | lived, s | resident, MiB: after a third, at the end | CPU, s | drain, s | exit code |\n\
         |---|---|---|---|---|---|"
    )?;
    for ended in &finished.ended {
        let own: Vec<_> = finished.samples.iter().filter(|one| one.pid == ended.pid).collect();
        let resident = |at: usize| {
            own.get(at)
                .map_or_else(|| "-".to_owned(), |one| format!("{:.1}", one.resident_bytes as f64 / MIB))
        };
        writeln!(
            text,
            "| {} | {} | {}, {} | {:.0} | {:.1} | {} |",
            ended.role.name(),
            ended.lived.as_secs(),
            resident(own.len() / 3),
            resident(own.len().saturating_sub(1)),
            own.last().map_or(0.0, |one| one.cpu_seconds),
            ended.drained.as_secs_f64(),
            ended.exit_code.map_or_else(|| "signal".to_owned(), |code| code.to_string()),
        )?;
    }
    Ok(())
}

/// A line of `faults.jsonl`.
pub struct FaultRecord {
    pub seconds: f64,
    pub name: String,
    pub held: bool,
    pub detail: String,
}

fn faults(folder: &Path) -> Result<Vec<FaultRecord>> {
    let text = fs::read_to_string(folder.join("faults.jsonl"))?;
    let read = |line: &str| {
        let value: Value = serde_json::from_str(line)?;
        Ok(FaultRecord {
            seconds: value["seconds"].as_f64().unwrap_or_default(),
            name: value["fault"].as_str().unwrap_or_default().to_owned(),
            held: value["held"].as_bool().unwrap_or_default(),
            detail: value["detail"].as_str().unwrap_or_default().to_owned(),
        })
    };
    text.lines().map(read).collect()
}

/// Medians of each minute.
pub fn minutes(samples: &[Sample]) -> String {
    let mut text = String::from("minute,proxy,resident_bytes,descriptors,threads,requests\n");
    for role in Role::ALL {
        let own: Vec<_> = samples.iter().filter(|one| one.role == role).collect();
        for minute in own.chunk_by(|one, next| one.seconds / MINUTE_SECONDS == next.seconds / MINUTE_SECONDS)
        {
            let middle = |of: fn(&Sample) -> u64| median(minute.iter().map(|one| of(one) as f64).collect());
            let (first, last) = (minute[0], minute[minute.len() - 1]);
            let _ = writeln!(
                text,
                "{},{},{:.0},{:.0},{:.0},{}",
                first.seconds / MINUTE_SECONDS,
                role.name(),
                middle(|one| one.resident_bytes),
                middle(|one| one.descriptors),
                middle(|one| one.threads),
                last.finished - first.finished,
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(resident: impl Fn(u64) -> u64, seconds: u64) -> Vec<Sample> {
        let one = |second| Sample {
            seconds: second,
            role: Role::Steady,
            pid: 1,
            resident_bytes: resident(second),
            descriptors: 20,
            threads: 5,
            cpu_seconds: 0.0,
            finished: second * 10,
        };
        (0..seconds).map(one).collect()
    }

    #[test]
    fn memory_compares_the_last_quarters_of_the_first_and_the_last_hour() {
        let growing = samples(|second| 1_000_000 + second, 7_200);
        let memory = memory(&growing, Duration::from_hours(2)).expect("samples");
        // The middles of 45 to 60 and of 105 to 120 minutes.
        assert!((memory.first_bytes - 1_003_150.0).abs() < 2.0, "{memory:?}");
        assert!((memory.last_bytes - 1_006_750.0).abs() < 2.0, "{memory:?}");
        assert!(memory.change() > 0.0);
    }

    #[test]
    fn minutes_have_a_line_each() {
        let text = minutes(&samples(|second| second, 120));
        assert_eq!(
            text,
            "minute,proxy,resident_bytes,descriptors,threads,requests\n\
             0,steady,30,20,5,590\n1,steady,90,20,5,590\n"
        );
    }
}
