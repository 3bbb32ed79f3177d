//! All rows on all caches in front of a stack.

use std::{thread, time::Duration};

use stockade_services::{ProgramServer, ServiceError, Stack, StackServer};

use crate::{
    caches::Cache,
    client::{Clients, Tally, now, sleep},
    rows::{ROWS, Row},
    tap::{Exchange, Tap},
};

/// What a row showed on a cache.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub cache: Cache,
    pub row: Row,
    pub tally: Tally,
    /// Requests in the access log of the origin, without logins.
    pub loads: u32,
    /// Those of them that the origin answered with 304.
    pub not_modified: u32,
    /// What the cache and the origin sent, if it was not HTTP/2.
    pub exchanges: Vec<Exchange>,
}

/// Outcomes in the order of the rows and of the caches. Caches run at the same time, each in front of a stack of its own.
pub fn measure(stack: Stack) -> Vec<Outcome> {
    let mut outcomes: Vec<_> = thread::scope(|scope| {
        let runs: Vec<_> = Cache::ALL
            .into_iter()
            .flat_map(|cache| [false, true].map(|is_alone| (cache, is_alone)))
            .map(|(cache, is_alone)| {
                scope.spawn(move || {
                    measure_one(stack, cache, is_alone).unwrap_or_else(|error| {
                        panic!("{} in front of {}: {error}", cache.name(), stack.name)
                    })
                })
            })
            .collect();
        runs.into_iter().flat_map(|run| run.join().expect("it says why it failed")).collect()
    });
    let place = |row: &Row| ROWS.iter().position(|other| other.name == row.name);
    outcomes.sort_by_key(|outcome| (place(&outcome.row), outcome.cache));
    outcomes
}

/// The rows that run alone, each on a cache that was just started, or the others at the same time.
fn measure_one(stack: Stack, cache: Cache, is_alone: bool) -> Result<Vec<Outcome>, ServiceError> {
    let origin = stack.start()?;
    let tap = if cache == Cache::StockadeH2 { None } else { Some(Tap::start(origin.address())?) };
    let address = match (&tap, origin.h2_address()) {
        (Some(tap), _) => tap.address,
        (None, Some(address)) => address,
        (None, None) => return Ok(Vec::new()),
    };
    let rows = ROWS.into_iter().filter(|row| row.is_alone == is_alone);
    let rows = rows.filter(|row| !row.needs_reload || origin.can_reload());
    let start = |running: &ProgramServer, row: Row| {
        (row, Clients::new(([127, 0, 0, 1], running.port()).into(), row.name.to_owned()))
    };
    let run = |(row, clients): &(Row, Clients)| (row.run)(clients, &origin);
    let mut measured = Vec::new();
    if is_alone {
        let mut running = cache.start(address)?;
        for row in rows {
            // Its breaker would remember the row before. The others have none.
            if cache.is_ours() && !measured.is_empty() {
                running = cache.start(address)?;
            }
            let one = start(&running, row);
            run(&one);
            measured.push(one);
        }
    } else {
        let running = cache.start(address)?;
        measured.extend(rows.map(|row| start(&running, row)));
        thread::scope(|scope| measured.iter().for_each(|one| drop(scope.spawn(move || run(one)))));
    }
    let log = settled_log(&origin)?;
    let exchanges = tap.map(|tap| tap.exchanges()).unwrap_or_default();
    let outcome = |(row, clients): (Row, Clients)| {
        let statuses = statuses_of_row(&log, row.name);
        let count =
            |statuses: &mut dyn Iterator<Item = u16>| u32::try_from(statuses.count()).unwrap_or(u32::MAX);
        Outcome {
            cache,
            row,
            tally: clients.tally().clone(),
            loads: count(&mut statuses.iter().copied()),
            not_modified: count(&mut statuses.iter().copied().filter(|&status| status == 304)),
            exchanges: of_row(&exchanges, row.name),
        }
    };
    Ok(measured.into_iter().map(outcome).collect())
}

/// The access log after it has not grown for a while: servers write to it after they have answered.
fn settled_log(origin: &StackServer) -> Result<Vec<String>, ServiceError> {
    let began = now();
    let mut log = origin.access_log()?;
    loop {
        sleep(Duration::from_millis(300));
        let next = origin.access_log()?;
        if next.len() == log.len() || began.elapsed() > Duration::from_secs(5) {
            return Ok(next);
        }
        log = next;
    }
}

/// True if a target carries the name of the row, and is not a login.
fn is_of_row(target: &str, row: &str) -> bool {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    !target.starts_with("/login") && query.split('&').any(|pair| pair.strip_prefix("row=") == Some(row))
}

fn of_row(exchanges: &[Exchange], row: &str) -> Vec<Exchange> {
    let target = |one: &Exchange| one.request.split(' ').nth(1).unwrap_or_default().to_owned();
    exchanges.iter().filter(|one| is_of_row(&target(one), row)).cloned().collect()
}

fn statuses_of_row(log: &[String], row: &str) -> Vec<u16> {
    let words = log.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let of_row = words.filter(|words| words.get(1).is_some_and(|target| is_of_row(target, row)));
    of_row.map(|words| words.get(2).and_then(|status| status.parse().ok()).unwrap_or(0)).collect()
}
