//! Eviction policies: which entry is evicted when room is needed.
//!
//! `policies!` is the registry. A new policy is one file that implements `EvictionPolicy`, and one line there.
//! Names, parsing, the JSON schema and the tests follow from that line. `auto` chooses among them: see `shadow/choice.rs`.

mod eviction;
mod fifo;
mod switch;

use stockade_model::{
    named,
    registry::{Registry, UnknownName},
};

use self::eviction::EvictionPolicy;
pub(crate) use self::eviction::{Listed, PolicyData, PolicyEntries, Slot};

/// A policy by its name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The name in configuration files.
    pub name: &'static str,
    /// The entry that is evicted first, with the source.
    pub summary: &'static str,
    /// Bytes that the policy stores for each entry, in addition to those that every entry has.
    pub entry_bytes: usize,
    start: fn() -> PolicyInstance,
}

named!(Policy, "policy");

/// Defines [`POLICIES`], the constants of [`Policy`] and [`PolicyInstance`]. Each line has the module, the constant,
/// the variant and its type.
macro_rules! policies {
    ($(mod $module:ident, $CONSTANT:ident, $Variant:ident($policy:ty);)*) => {
        $(mod $module;)*

        /// Every policy.
        pub static POLICIES: Registry<Policy> = {
            const ALL: &[Policy] = &[$(*Policy::$CONSTANT,)* *Policy::AUTO];
            Registry::new(ALL)
        };

        impl Policy {$(
            #[doc = concat!("The policy `", stringify!($module), "`. [`summary`](Self::summary) says what it does.")]
            pub const $CONSTANT: &'static Self = &Self {
                name: <$policy>::NAME,
                summary: <$policy>::SUMMARY,
                entry_bytes: <$policy>::ENTRY_BYTES,
                start: || PolicyInstance::$Variant(<$policy>::default()),
            };
        )*}

        /// A policy over the entries of one shard. An enum and not a trait object: every hit calls it. Its methods are inlined
        /// always: a call costs a hit eight instructions, and the compiler makes one where there are many policies.
        #[derive(Debug)]
        pub(crate) enum PolicyInstance {
            /// Without a limit nothing is evicted.
            Unlimited,
            $($Variant($policy),)*
            /// Between two policies.
            Switching(Box<switch::Switch>),
        }

        impl PolicyInstance {
            #[inline(always)]
            pub(crate) fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_insert(entries, slot),)*
                    Self::Switching(switch) => {
                        if switch.on_insert(entries, slot) {
                            self.end_switch();
                        }
                    }
                }
            }

            /// Forgets the entry that is next in the policy's order. Returns it with its hits.
            pub(crate) fn take_next(&mut self, entries: &mut impl PolicyEntries) -> Option<(Slot, u32)> {
                match self {
                    Self::Unlimited => None,
                    $(Self::$Variant(policy) => policy.take_next(entries),)*
                    Self::Switching(switch) => switch.take_next(entries),
                }
            }

            /// The policy, or the one that it changes to.
            pub(crate) fn policy(&self) -> Option<&'static Policy> {
                match self {
                    Self::Unlimited => None,
                    $(Self::$Variant(_) => Some(Policy::$CONSTANT),)*
                    Self::Switching(switch) => switch.target().policy(),
                }
            }

            #[inline(always)]
            pub(crate) fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_remove(entries, slot),)*
                    Self::Switching(switch) => switch.on_remove(entries, slot),
                }
            }

            #[inline(always)]
            pub(crate) fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
                match self {
                    Self::Unlimited => None,
                    $(Self::$Variant(policy) => policy.evict(entries),)*
                    Self::Switching(switch) => switch.evict(entries),
                }
            }

            #[inline(always)]
            pub(crate) fn on_hit(&self, slot: Slot, data: &PolicyData) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_hit(slot, data),)*
                    Self::Switching(switch) => switch.on_hit(slot, data),
                }
            }

            #[inline]
            pub(crate) fn on_update(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_update(entries, slot),)*
                    Self::Switching(switch) => switch.on_update(entries, slot),
                }
            }

            /// Adds all entries to `list`; none without a limit, where they have no order.
            pub(crate) fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.list(entries, list),)*
                    Self::Switching(switch) => switch.list(entries, list),
                }
            }
        }
    };
}

policies! {
    mod sieve, SIEVE, Sieve(sieve::Sieve);
    mod lrw, LRW, Lrw(lrw::Lrw);
    mod lru, LRU, Lru(Box<lru::Lru>);
    mod s3_fifo, S3_FIFO, S3Fifo(Box<s3_fifo::S3Fifo>);
    mod lfu, LFU, Lfu(Box<lfu::Lfu>);
    mod gdsf, GDSF, Gdsf(Box<gdsf::Gdsf>);
}

impl PolicyInstance {
    /// Starts the change to another policy; later stores move the entries. Does nothing if it is the same one.
    pub(crate) fn switch_to(&mut self, policy: &'static Policy, entries: &mut impl PolicyEntries) {
        if self.policy().is_none_or(|active| active == policy) {
            return;
        }
        let mut old = std::mem::replace(self, Self::Unlimited);
        // Three policies would be two too many.
        if let Self::Switching(switch) = old {
            old = switch.finish(entries);
        }
        *self = Self::Switching(Box::new(switch::Switch::new(old, policy.start())));
    }

    #[cold]
    fn end_switch(&mut self) {
        if let Self::Switching(switch) = std::mem::replace(self, Self::Unlimited) {
            *self = switch.into_new();
        }
    }
}

impl Policy {
    /// The policy `auto`: sampled [ghosts](crate::Builder::shadow) of some other policies choose among them. A cache starts with the first
    /// candidate of `shadow/choice.rs`, which also changes to others.
    pub const AUTO: &'static Self = &Self {
        name: "auto",
        summary: "as sieve, s3-fifo, lru, lfu, lrw or gdsf: sampled ghosts choose one of them",
        // Of the two largest candidates, while one is replaced by the other.
        entry_bytes: <gdsf::Gdsf as EvictionPolicy>::ENTRY_BYTES
            + <s3_fifo::S3Fifo as EvictionPolicy>::ENTRY_BYTES,
        start: || PolicyInstance::Sieve(sieve::Sieve::default()),
    };

    /// The policy with this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownName> {
        POLICIES.named(name)
    }

    /// True for [`AUTO`](Self::AUTO), which is not a policy itself.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        self == Self::AUTO
    }

    /// An instance for an empty shard.
    pub(crate) fn start(&self) -> PolicyInstance {
        (self.start)()
    }
}

/// Policies are equal if their names are.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Policy {}

#[cfg(test)]
mod tests;
