//! The nth request, a pure function of seed and n.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::content::{BIG, CLASSES, MEDIUM, Resource};

/// The two proxies of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// One process for the whole run.
    Steady,
    /// A process that is replaced from time to time.
    Rolled,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::Steady, Self::Rolled];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Rolled => "rolled",
        }
    }
}

/// The connection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A kept HTTP/1.1 connection.
    Kept,
    /// A new HTTP/1.1 connection, closed after the request.
    New,
    /// A stream of a shared HTTP/2 connection, with prior knowledge.
    Http2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Get,
    Head,
    /// Bytes of a body, in thousandths of its length: first, and last.
    Range(u64, u64),
    /// `If-None-Match` with the current `ETag`.
    Conditional,
    /// An upload of this many bytes, in parts with pauses or at once.
    Post {
        bytes: u64,
        is_slow: bool,
        is_chunked: bool,
    },
    /// Eight requests at once for the same URL.
    Burst,
    /// The body takes this long.
    SlowReader {
        seconds: u64,
    },
    /// The connection or stream is closed after this share of the body, in thousandths.
    CutReader(u64),
    /// The connection is closed within the upload.
    CutUpload,
    /// A head that arrives byte by byte and is never complete.
    SlowHead,
    /// A connection without a request.
    Idle,
    /// Bytes that are not a request, by number.
    Malformed(usize),
}

impl Action {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Range(..) => "range",
            Self::Conditional => "conditional",
            Self::Post { is_slow: false, .. } => "POST",
            Self::Post { is_slow: true, .. } => "POST, slow upload",
            Self::Burst => "burst of 8 streams",
            Self::SlowReader { .. } => "slow reader",
            Self::CutReader(_) => "reader that cuts",
            Self::CutUpload => "upload that is cut",
            Self::SlowHead => "head that stays incomplete",
            Self::Idle => "idle connection",
            Self::Malformed(_) => "malformed bytes",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub number: u64,
    pub role: Role,
    pub transport: Transport,
    pub action: Action,
    pub resource: Resource,
}

type DrawAction = fn(&mut Pcg64Mcg) -> Action;

/// How many requests of a thousand have a form other than GET.
const ACTIONS: [(u32, DrawAction); 12] = [
    (50, |_| Action::Head),
    (80, |random| {
        let first = random.random_range(0..900);
        Action::Range(first, random.random_range(first..1_000))
    }),
    (70, |_| Action::Conditional),
    (30, |random| Action::Post {
        bytes: random.random_range(0..100_000),
        is_slow: false,
        is_chunked: random.random_bool(0.3),
    }),
    (3, |random| Action::Post {
        bytes: random.random_range(100_000..300_000),
        is_slow: true,
        is_chunked: random.random_bool(0.5),
    }),
    (5, |_| Action::Burst),
    (6, |random| Action::SlowReader { seconds: random.random_range(5..20) }),
    (15, |random| Action::CutReader(random.random_range(0..900))),
    (5, |_| Action::CutUpload),
    (4, |_| Action::SlowHead),
    (4, |_| Action::Idle),
    (10, |random| Action::Malformed(random.random_range(0..super::abuse::MALFORMED.len()))),
];

/// The nth request of a run. Even ones go to the steady proxy.
#[must_use]
pub fn nth(seed: u64, number: u64) -> Planned {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let role = if number.is_multiple_of(2) { Role::Steady } else { Role::Rolled };
    let mut transport = match random.random_range(0..100) {
        0..62 => Transport::Kept,
        62..75 => Transport::New,
        _ => Transport::Http2,
    };
    let mut drawn = random.random_range(0..1_000);
    let action = ACTIONS.iter().find_map(|(weight, action)| {
        if drawn < *weight {
            return Some(action(&mut random));
        }
        drawn -= weight;
        None
    });
    let action = action.unwrap_or(Action::Get);
    let mut resource = resource(&mut random, number);
    match action {
        // A kernel that buffers the whole body would hide the slow reader.
        Action::SlowReader { .. } => {
            transport = Transport::New;
            resource = Resource { class: &MEDIUM, id: random.random_range(0..MEDIUM.count), variant: 0 };
        }
        Action::CutReader(_) if random.random_bool(0.5) => {
            resource = Resource { class: &BIG, id: random.random_range(0..BIG.count), variant: 0 };
        }
        Action::Burst => transport = Transport::Http2,
        Action::CutUpload | Action::SlowHead | Action::Idle | Action::Malformed(_) => {
            transport = Transport::New;
        }
        _ => {}
    }
    Planned { number, role, transport, action, resource }
}

fn resource(random: &mut Pcg64Mcg, number: u64) -> Resource {
    let mut drawn = random.random_range(0..1_000);
    let class = CLASSES.iter().find(|class| {
        let is_drawn = drawn < class.weight;
        drawn = drawn.saturating_sub(class.weight);
        is_drawn
    });
    let class = class.unwrap_or(&BIG);
    let id = if class.count == u32::MAX {
        u32::try_from(number % u64::from(u32::MAX)).unwrap_or(0)
    } else {
        // The smaller of two: some resources are requested more often than others.
        random.random_range(0..class.count).min(random.random_range(0..class.count))
    };
    Resource { class, id, variant: random.random_range(0..class.variants) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_seed_and_number_give_the_same_request() {
        for number in 0..1_000 {
            assert_eq!(format!("{:?}", nth(3, number)), format!("{:?}", nth(3, number)));
        }
        assert_ne!(format!("{:?}", nth(3, 1)), format!("{:?}", nth(4, 1)));
    }

    #[test]
    fn ten_thousand_requests_have_every_action_and_class() {
        let all: Vec<_> = (0..10_000).map(|number| nth(1, number)).collect();
        let actions: BTreeSet<_> = all.iter().map(|one| one.action.name()).collect();
        assert_eq!(actions.len(), ACTIONS.len() + 1);
        let classes: BTreeSet<_> = all.iter().map(|one| one.resource.class.name).collect();
        assert_eq!(classes.len(), CLASSES.len() + 2);
    }
}
