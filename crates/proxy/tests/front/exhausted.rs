//! No file descriptors left: in a process of its own, whose limit is lowered.

mod support;

use std::{
    fs::File,
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stockade_proxy::front::Settings;
use support::{PATIENCE, connect, one, rest, start, status, talk, until};

const DESCRIPTORS: u64 = 80;
/// So many are certain to be taken in.
const SERVED: usize = 20;

#[test]
fn it_waits_and_goes_on() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum }).expect("less is allowed");
    let (front, guide) = start(Settings::default());
    let address = front.addresses()[0];
    // Busy ones, which nobody can ask to leave, until this process has no descriptor left on either side.
    let hold = || {
        let mut tcp = TcpStream::connect(address).ok()?;
        tcp.set_read_timeout(Some(PATIENCE)).expect("an option");
        tcp.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
        Some(tcp)
    };
    let spare = File::open("/dev/null").expect("there are some left");
    let mut busy = Vec::new();
    while let Some(tcp) = hold() {
        busy.push(tcp);
        // Some are taken in before this side has all the descriptors.
        let taken_in = busy.len().min(SERVED) as u64;
        until(&front, |counts| counts.in_flight >= taken_in);
    }
    #[expect(clippy::disallowed_methods, reason = "how often something is tried takes real time")]
    let began = Instant::now();
    until(&front, |counts| counts.exhausted >= 5);
    let tries = u128::from(front.counts().exhausted);
    let most = (began.elapsed() + Duration::from_secs(1)).as_millis() / 10;
    assert!(tries <= most, "{tries} in {:?}: it does not breathe", began.elapsed());
    let mut spare = Some(spare);
    if front.counts().open == busy.len() as u64 {
        // They have shared all that there were: the last one is for somebody who has to wait.
        until(&front, |counts| counts.in_flight == busy.len() as u64);
        drop(spare.take());
        busy.push(at_last(hold));
    }
    let served = front.counts().open;
    assert!(served < busy.len() as u64, "{served} of {} were taken in", busy.len());
    // Everybody is answered in the end, those who waited at the door when others have left; but for those who had not
    // said anything when they were taken in, and had to leave.
    guide.gate.add_permits(busy.len());
    let all = busy.len() as u64;
    let answered = busy.into_iter().filter_map(|mut tcp| is_heard(&tcp).then(|| one(&mut tcp).1));
    let answered = answered.inspect(|answer| assert_eq!(answer, "held")).count() as u64;
    assert!(answered >= served.min(SERVED as u64));
    until(&front, |counts| counts.in_flight == 0 && counts.open == 0 && answered + counts.evicted >= all);

    // Idle ones leave for the sake of those who wait, until the last has been answered.
    drop(spare);
    let (asked, evicted) = (front.counts().requests, front.counts().evicted);
    let mut idle = Vec::new();
    let ask = || {
        let mut tcp = TcpStream::connect(address).ok()?;
        tcp.set_read_timeout(Some(PATIENCE)).expect("an option");
        tcp.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
        Some(tcp)
    };
    let spare = File::open("/dev/null").expect("there are some left");
    while let Some(tcp) = ask() {
        idle.push(tcp);
        let answered = asked + idle.len().min(SERVED) as u64;
        until(&front, |counts| counts.requests >= answered);
    }
    until(&front, |counts| counts.evicted > evicted || counts.open == idle.len() as u64);
    if front.counts().evicted == evicted {
        drop(spare);
        idle.push(at_last(ask));
    }
    assert_eq!(one(idle.last_mut().expect("there are some")).1, "hello");
    until(&front, |counts| counts.evicted > evicted);
    drop(idle);
    let answer = talk(address, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&answer), "200");
    let mut again = connect(address);
    again.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("the kernel takes it");
    assert_eq!(status(&rest(&mut again)), "200");
}

/// What only whoever looks whether somebody waits at the door keeps us from, for a moment each.
fn at_last<T>(tried: impl Fn() -> Option<T>) -> T {
    const TRIES: u32 = 1_000_000;
    (0..TRIES).find_map(|_| tried()).expect("nobody else wants it")
}

/// Whether there is an answer, and not the end.
fn is_heard(tcp: &TcpStream) -> bool {
    tcp.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
}
