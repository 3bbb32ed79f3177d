//! A run: start, traffic with faults and samples, stop, verdict.

use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Resource as Limit, Rlimit, getrlimit, setrlimit};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use crate::generators::stockade;

use super::{
    Result,
    child::{OriginProcess, ProxySettings, clock_library},
    context::Context,
    exchange::perform,
    inject::{Ended, Injector, mount_small_disk, random, unmount},
    options::RunOptions,
    report::{Finished, write},
    sampler::{AtRest, Sample, at_rest, sample},
    schedule::schedule,
    traffic::{Role, nth},
};

/// Requests in flight beyond which further ones are left out, and counted.
const IN_FLIGHT_MAX: usize = 3_000;

/// Runs the test and writes the report. Returns whether everything holds.
pub fn run(options: &RunOptions) -> Result<bool> {
    // The clients need more descriptors than the usual limit of 1,024.
    let limit = getrlimit(Limit::Nofile);
    setrlimit(Limit::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    fs::create_dir_all(&options.out)?;
    // One thread: the tool shares the processor with the proxies.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_all(options))
}

async fn run_all(options: &RunOptions) -> Result<bool> {
    let program = stockade().map_err(|error| error.to_string())?;
    let folder = fs::canonicalize(&options.out)?;
    let shift = folder.join("clock-shift");
    fs::write(&shift, "+0\n")?;
    let origin = OriginProcess::start(options.seed).await?;
    let settings = Role::ALL.map(|role| ProxySettings {
        role,
        program: program.clone(),
        folder: folder.clone(),
        origin: origin.address,
        clock: clock_library().filter(|_| role == Role::Rolled).map(|library| (library, shift.clone())),
    });
    let reloadable = settings.each_ref().map(ProxySettings::reloadable);
    let proxies = [settings[0].start(&reloadable[0]).await?, settings[1].start(&reloadable[1]).await?];
    let first_rest = at_rest(proxies[0].pid, proxies[0].admin).await?;
    let addresses = proxies.each_ref().map(|proxy| proxy.address);
    let pids = proxies.each_ref().map(|proxy| proxy.pid);
    let context = Arc::new(Context::new(options.seed, folder.clone(), addresses, pids)?);
    let mut injector = Injector {
        context: Arc::clone(&context),
        settings,
        reloadable,
        proxies,
        origin,
        ended: Vec::new(),
        rolls: JoinSet::new(),
        small_disk: mount_small_disk(&folder),
        log_lines: 0,
        random: random(options.seed),
    };
    let outcome = Box::pin(measure(options, &context, &mut injector, first_rest)).await;
    if let Some(folder) = &injector.small_disk {
        unmount(folder);
    }
    outcome
}

async fn measure(
    options: &RunOptions,
    context: &Arc<Context>,
    injector: &mut Injector,
    first_rest: AtRest,
) -> Result<bool> {
    let samples = Arc::new(Mutex::new(Vec::<Sample>::new()));
    let sampler = tokio::spawn(sample(Arc::clone(context), Arc::clone(&samples)));
    let traffic = tokio::spawn(send_all(Arc::clone(context), options.clone()));
    let all = schedule(options.seed, options.duration);
    let mut stopped = context.stopped();
    let faults_without_effect = tokio::select! {
        (missed, _) = async { tokio::join!(injector.run(&all), traffic) } => missed,
        _ = stopped.wait_for(Option::is_some) => 0,
        _ = tokio::signal::ctrl_c() => {
            context.stop("interrupted".to_owned());
            0
        }
    };
    let lasted = context.elapsed();
    // If the run was stopped, the traffic ends within its deadline.
    let reason = context.stopped().borrow().clone();
    sampler.abort();
    Role::ALL.iter().for_each(|role| context.target(*role).clear());
    let (last_rest, ended) = match stop(context, injector).await {
        Ok(stopped) => stopped,
        Err(error) => {
            context.stop(format!("the proxies cannot be stopped: {error}"));
            (None, injector.ended.clone())
        }
    };
    let samples = samples.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_small_disk = injector.small_disk.is_some();
    let finished = Finished {
        options,
        lasted,
        reason,
        samples,
        faults_without_effect,
        first_rest,
        last_rest,
        ended,
        log_lines: injector.log_lines,
        has_clock: injector.settings[1].clock.is_some(),
        is_small_disk,
        program: injector.settings[0].program.clone(),
    };
    write(context, &finished)
}

/// Waits until the steady proxy is at rest, then stops both.
async fn stop(context: &Context, injector: &mut Injector) -> Result<(Option<AtRest>, Vec<Ended>)> {
    let rest = at_rest(injector.proxies[0].pid, injector.proxies[0].admin).await;
    let rest = rest.map_err(|error| context.stop(format!("steady: {error}"))).ok();
    while let Some(Ok(Ok(ended))) = injector.rolls.join_next().await {
        injector.ended.push(ended);
    }
    for role in Role::ALL {
        let proxy = &mut injector.proxies[role as usize];
        let (status, drained) = proxy.terminate().await?;
        injector.ended.push(Ended {
            role,
            pid: proxy.pid,
            lived: proxy.started.elapsed(),
            drained,
            exit_code: status.code(),
        });
    }
    Ok((rest, injector.ended.clone()))
}

/// Sends each request at its due time, and waits for the last one.
async fn send_all(context: Arc<Context>, options: RunOptions) {
    let pause = Duration::from_secs(1) / options.rate_per_second;
    let mut in_flight = JoinSet::new();
    let mut stopped = context.stopped();
    for number in 0.. {
        let due = pause.mul_f64(number as f64);
        if due >= options.duration || stopped.borrow_and_update().is_some() {
            break;
        }
        sleep_until(context.started + due).await;
        while in_flight.try_join_next().is_some() {}
        if in_flight.len() >= IN_FLIGHT_MAX {
            context.tally().skipped += 1;
        } else {
            in_flight.spawn(perform(Arc::clone(&context), nth(options.seed, number)));
        }
    }
    // Each has a deadline of its own.
    let rest = async { while in_flight.join_next().await.is_some() {} };
    let began = Instant::now();
    if timeout(Duration::from_secs(90), rest).await.is_err() {
        context.stop(format!("requests are in flight {:.0?} after the end of the traffic", began.elapsed()));
    }
}
