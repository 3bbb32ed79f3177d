use proptest::prelude::*;

use super::*;

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn settings() -> FrontendSettings {
    FrontendSettings {
        head_timeout: Duration::from_secs(10),
        keep_alive_timeout: Duration::from_secs(75),
        write_stall_timeout: Duration::from_secs(30),
        total_timeout: Some(Duration::from_mins(2)),
        ..FrontendSettings::default()
    }
}

const NO_WAIT: WaitStarts =
    WaitStarts { idle: None, has_served: false, head: None, write: None, request: None };

#[test]
fn the_earliest_timeout_decides() {
    let at = |second: u64| Some(seconds(second));
    let cases = [
        // Only the handler works.
        (NO_WAIT, Time::NEVER, CloseReason::Idle),
        (WaitStarts { idle: at(5), ..NO_WAIT }, seconds(15), CloseReason::Head),
        (WaitStarts { idle: at(5), head: at(7), ..NO_WAIT }, seconds(17), CloseReason::Head),
        (WaitStarts { idle: at(5), has_served: true, ..NO_WAIT }, seconds(80), CloseReason::Idle),
        (
            WaitStarts { idle: at(5), has_served: true, head: at(70), ..NO_WAIT },
            seconds(80),
            CloseReason::Head,
        ),
        // The head arrived while another request was in flight.
        (
            WaitStarts { idle: at(50), has_served: true, head: at(7), ..NO_WAIT },
            seconds(60),
            CloseReason::Head,
        ),
        (WaitStarts { head: at(7), ..NO_WAIT }, Time::NEVER, CloseReason::Idle),
        (WaitStarts { write: at(7), ..NO_WAIT }, seconds(37), CloseReason::Stall),
        (WaitStarts { request: at(7), ..NO_WAIT }, seconds(127), CloseReason::Total),
        (WaitStarts { request: at(7), write: at(97), ..NO_WAIT }, seconds(127), CloseReason::Stall),
        (WaitStarts { request: at(7), write: at(98), ..NO_WAIT }, seconds(127), CloseReason::Total),
        (
            WaitStarts { idle: at(5), has_served: true, write: at(7), ..NO_WAIT },
            seconds(37),
            CloseReason::Stall,
        ),
    ];
    for (waits, time, reason) in cases {
        assert_eq!(deadline(waits, &settings()), (time, reason), "{waits:?}");
    }
}

proptest! {
    /// A connection checks after its shortest timeout, so that no wait that begins between two checks is missed.
    #[test]
    fn no_deadline_precedes_the_next_check(
        timeouts in prop::array::uniform3(1_u64..100),
        total in prop::option::of(1_u64..100),
        checked_at in 0_u64..1_000,
        later in 0_u64..1_000,
        has_served in any::<bool>(),
        which in 0..4,
    ) {
        let [head_timeout, keep_alive_timeout, write_stall_timeout] = timeouts.map(Duration::from_secs);
        let total_timeout = total.map(Duration::from_secs);
        let settings = FrontendSettings {
            head_timeout,
            keep_alive_timeout,
            write_stall_timeout,
            total_timeout,
            ..FrontendSettings::default()
        };
        let (checked_at, start) = (seconds(checked_at), Some(seconds(checked_at + later)));
        let waits = match which {
            0 => WaitStarts { idle: start, has_served, ..NO_WAIT },
            1 => WaitStarts { idle: Some(checked_at), has_served, head: start, ..NO_WAIT },
            2 => WaitStarts { write: start, ..NO_WAIT },
            _ => WaitStarts { request: start, ..NO_WAIT },
        };
        prop_assert!(deadline(waits, &settings).0 >= checked_at + shortest_timeout(&settings));
    }
}
