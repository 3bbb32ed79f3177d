//! Eviction policies: which entry is evicted when room is needed.
//!
//! `policies!` is the registry. A new policy is one file that implements `EvictionPolicy`, and one line there.
//! Names, parsing, the JSON schema and the tests follow from that line.

mod eviction;
mod evictor;
mod fifo;

use stockade_model::nearest::remedy;

use self::eviction::EvictionPolicy;
pub(crate) use self::eviction::{Listed, PolicyData, PolicyEntries, Slot};
pub use self::evictor::Evictor;

/// A policy by its name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The name in configuration files.
    pub name: &'static str,
    /// The entry that is evicted first, with the source.
    pub summary: &'static str,
    /// Bytes that the policy stores for each entry, beside those that every entry has.
    pub entry_bytes: usize,
    start: fn() -> PolicyInstance,
}

/// Defines [`POLICIES`], the constants of [`Policy`] and [`PolicyInstance`]. Each line has the module, the constant,
/// the variant and its type.
macro_rules! policies {
    ($(mod $module:ident, $CONSTANT:ident, $Variant:ident($policy:ty);)*) => {
        $(mod $module;)*

        enum Position {
            $($Variant,)*
        }

        /// Every policy.
        pub static POLICIES: [Policy; [$(Position::$Variant),*].len()] = [$(
            Policy {
                name: <$policy>::NAME,
                summary: <$policy>::SUMMARY,
                entry_bytes: <$policy>::ENTRY_BYTES,
                start: || PolicyInstance::$Variant(<$policy>::default()),
            },
        )*];

        impl Policy {$(
            #[doc = concat!("The policy `", stringify!($module), "`. [`summary`](Self::summary) says what it does.")]
            pub const $CONSTANT: &'static Self = &POLICIES[Position::$Variant as usize];
        )*}

        /// A policy over the entries of one shard. An enum and not a trait object: every hit calls it.
        #[derive(Debug)]
        pub(crate) enum PolicyInstance {
            /// Without a limit nothing is evicted.
            Unlimited,
            $($Variant($policy),)*
        }

        impl PolicyInstance {
            #[inline]
            pub(crate) fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_insert(entries, slot),)*
                }
            }

            #[inline]
            pub(crate) fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_remove(entries, slot),)*
                }
            }

            #[inline]
            pub(crate) fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
                match self {
                    Self::Unlimited => None,
                    $(Self::$Variant(policy) => policy.evict(entries),)*
                }
            }

            #[inline]
            pub(crate) fn on_hit(&self, slot: Slot, data: &PolicyData) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_hit(slot, data),)*
                }
            }

            #[inline]
            pub(crate) fn on_update(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.on_update(entries, slot),)*
                }
            }

            /// Adds all entries to `list`; none without a limit, where they have no order.
            pub(crate) fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
                match self {
                    Self::Unlimited => {}
                    $(Self::$Variant(policy) => policy.list(entries, list),)*
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

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}`: {remedy}")]
pub struct UnknownPolicy {
    /// The unknown name.
    pub name: String,
    remedy: String,
}

impl Policy {
    /// The policy with this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownPolicy> {
        POLICIES.iter().find(|policy| policy.name == name).ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
            remedy: remedy(name, POLICIES.iter().map(|policy| policy.name)),
        })
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
