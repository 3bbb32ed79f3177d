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

/// Outcomes in the order of the rows and of the caches. Caches run at the same time, each in front of an origin of its own.
pub fn measure(stack: Stack) -> Vec<Outcome> {
    let mut outcomes: Vec<_> = thread::scope(|scope| {
        let run = |cache: Cache| {
            measure_one(stack, cache)
                .unwrap_or_else(|error| panic!("{} in front of {}: {error}", cache.name(), stack.name))
        };
        let runs = Cache::ALL.map(|cache| scope.spawn(move || run(cache)));
        runs.into_iter().flat_map(|run| run.join().expect("it says why it failed")).collect()
    });
    let place = |row: &Row| ROWS.iter().position(|other| other.name == row.name);
    outcomes.sort_by_key(|outcome| (place(&outcome.row), outcome.cache));
    outcomes
}

fn measure_one(stack: Stack, cache: Cache) -> Result<Vec<Outcome>, ServiceError> {
    // Another program may have taken the port meanwhile.
    let origin = stack.start().or_else(|_| stack.start()).or_else(|_| stack.start())?;
    warm_up(&origin);
    let tap = if cache == Cache::StockadeH2 { None } else { Some(Tap::start(origin.address())?) };
    let address = match (&tap, origin.h2_address()) {
        (Some(tap), _) => tap.address,
        (None, Some(address)) => address,
        (None, None) => return Ok(Vec::new()),
    };
    let start = |running: &ProgramServer, row: Row| {
        (row, Clients::new(([127, 0, 0, 1], running.port()).into(), row.name.to_owned()))
    };
    let run = |(row, clients): &(Row, Clients)| (row.run)(clients, &origin);
    let one_after_another = |rows: &mut dyn Iterator<Item = Row>| -> Result<Vec<_>, ServiceError> {
        let (mut running, mut measured) = (cache.start(address)?, Vec::new());
        for row in rows {
            // Its breaker would remember the row before. The others have none.
            if cache.is_ours() && !measured.is_empty() {
                running = cache.start(address)?;
            }
            let one = start(&running, row);
            run(&one);
            measured.push(one);
        }
        Ok(measured)
    };
    let together = cache.start(address)?;
    let together: Vec<_> =
        ROWS.into_iter().filter(|row| !row.is_alone).map(|row| (start(&together, row), &together)).collect();
    let alone = thread::scope(|scope| {
        together.iter().for_each(|(one, _)| drop(scope.spawn(move || run(one))));
        one_after_another(&mut ROWS.into_iter().filter(|row| row.is_alone && !row.needs_reload))
    })?;
    // When no other test uses the origin.
    let reloads = ROWS.into_iter().filter(|row| row.needs_reload && origin.can_reload());
    let reloading = one_after_another(&mut reloads.into_iter())?;
    let measured = together.into_iter().map(|(one, _)| one).chain(alone).chain(reloading);
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
    Ok(measured.map(outcome).collect())
}

/// Requests every kind of page once, since frameworks load on first use.
fn warm_up(origin: &StackServer) {
    let clients = Clients::new(origin.address(), "warm_up".to_owned());
    for target in [
        "/page",
        "/article",
        "/language",
        "/account",
        "/form",
        "/slow?seconds=0",
        "/missing",
        "/static/style.css",
    ] {
        // Whether it is right is a row's matter.
        let _ = clients.get(target).gzip().send();
    }
    let _ = clients.request("POST", "/echo").send();
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
