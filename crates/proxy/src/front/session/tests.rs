use proptest::prelude::*;

use super::*;

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn settings() -> Settings {
    Settings {
        head_timeout: Duration::from_secs(10),
        keep_alive: Duration::from_secs(75),
        write_stall_timeout: Duration::from_secs(30),
        total_timeout: Some(Duration::from_mins(2)),
        ..Settings::default()
    }
}

const NOTHING: Moments =
    Moments { waiting: None, has_answered: false, head: None, blocked: None, began: None };

#[test]
fn which_bound_is_met_first() {
    let at = |second: u64| Some(seconds(second));
    let cases = [
        // A handler takes its time.
        (NOTHING, Time::NEVER, Cut::Idle),
        (Moments { waiting: at(5), ..NOTHING }, seconds(15), Cut::Head),
        (Moments { waiting: at(5), head: at(7), ..NOTHING }, seconds(17), Cut::Head),
        (Moments { waiting: at(5), has_answered: true, ..NOTHING }, seconds(80), Cut::Idle),
        (Moments { waiting: at(5), has_answered: true, head: at(70), ..NOTHING }, seconds(80), Cut::Head),
        // It came while another was being answered.
        (Moments { waiting: at(50), has_answered: true, head: at(7), ..NOTHING }, seconds(60), Cut::Head),
        (Moments { head: at(7), ..NOTHING }, Time::NEVER, Cut::Idle),
        (Moments { blocked: at(7), ..NOTHING }, seconds(37), Cut::Stall),
        (Moments { began: at(7), ..NOTHING }, seconds(127), Cut::Total),
        (Moments { began: at(7), blocked: at(97), ..NOTHING }, seconds(127), Cut::Stall),
        (Moments { began: at(7), blocked: at(98), ..NOTHING }, seconds(127), Cut::Total),
        (Moments { waiting: at(5), has_answered: true, blocked: at(7), ..NOTHING }, seconds(37), Cut::Stall),
    ];
    for (moments, when, cut) in cases {
        assert_eq!(deadline(moments, &settings()), (when, cut), "{moments:?}");
    }
}

proptest! {
    /// A connection looks when the shortest bound may have passed: whatever begins between two looks is not missed.
    #[test]
    fn no_deadline_comes_before_the_next_look(
        timeouts in prop::array::uniform3(1_u64..100),
        total in prop::option::of(1_u64..100),
        looked_at in 0_u64..1_000,
        later in 0_u64..1_000,
        has_answered in any::<bool>(),
        which in 0..4,
    ) {
        let [head_timeout, keep_alive, write_stall_timeout] = timeouts.map(Duration::from_secs);
        let total_timeout = total.map(Duration::from_secs);
        let settings = Settings { head_timeout, keep_alive, write_stall_timeout, total_timeout, ..Settings::default() };
        let (looked_at, began) = (seconds(looked_at), Some(seconds(looked_at + later)));
        let moments = match which {
            0 => Moments { waiting: began, has_answered, ..NOTHING },
            1 => Moments { waiting: Some(looked_at), has_answered, head: began, ..NOTHING },
            2 => Moments { blocked: began, ..NOTHING },
            _ => Moments { began, ..NOTHING },
        };
        prop_assert!(deadline(moments, &settings).0 >= looked_at + shortest(&settings));
    }
}
