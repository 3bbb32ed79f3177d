//! The switches of the cache: each breaks one rule.

/// Declares the faults, and the two lists of them.
macro_rules! faults {
    (ALL { $($name:ident: $text:literal,)* } FRESH { $($fresh:ident: $fresh_text:literal,)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $text] $name,)*
            $(#[doc = $fresh_text] $fresh,)*
        }

        impl Fault {
            pub const ALL: [Self; 24] = [$(Self::$name),*];
            /// Faults that were chosen without a look at any question of the audit.
            pub const FRESH: [Self; 12] = [$(Self::$fresh),*];
        }
    };
}

faults! {
    ALL {
        ServesPastLimit: "A page is fresh for 10 s longer than it may be.",
        IgnoresVary: "Requests with other values of the fields in `Vary` get the same page.",
        CrossUserCoalescing: "Waiters get the leader's response, although only the leader may have it.",
        LatePurge: "A purge takes effect 2 s after its answer.",
        PurgeLostDuringLoad: "A load that began before the purge is stored.",
        StoresTruncated: "A body that broke off is stored with its short length.",
        StoresErrors: "A 500 or 503 without a lifetime is stored for 60 s.",
        IgnoresNoStore: "`no-store` and `private` are ignored: the page lives for its max-age, or 10 s.",
        MergesNotModifiedWrongly: "A 304 starts the old lifetime anew; its fields are ignored.",
        DropsFields: "A hit lacks `ETag`, `Link` and all `X-` fields.",
        CutsKeys: "The key has the first 512 bytes of the path and query.",
        WrongAge: "A hit has no `Age`.",
        SerialisesUncacheable: "Waiters for a page that they cannot share load it one after the other.",
        RefreshesWithoutCoalescing: "Each request for a stale page starts its own refresh.",
        ForgetsAfterReload: "A reload empties the store.",
        RevalidatesWithAnotherTag: "A revalidation sends the tag of the URL's first variant.",
        MixesRanges: "`If-Range` is ignored: a client with an old part gets a part of the new page.",
        HeadWithOtherLength: "A HEAD from the store has `Content-Length: 0`.",
        LeaksMemory: "The body of each answer from the store is kept forever.",
        BreakerForAll: "After five errors of any pages, all pages get a 503 for 5 s.",
        RetriesPost: "A POST is sent again if its connection closes without an answer.",
        NothingAfterReset: "A connection that breaks makes all loads of the next 5 s fail.",
        UnkeyedField: "The client's `X-Forwarded-Host` reaches the origin, and the key lacks it.",
        StaleAfterGone: "A 404 or 410 does not replace the stale page.",
    }
    FRESH {
        StoresAuthorized: "A response to a request with `Authorization` is stored, although it does not permit it.",
        StoresPartAsWhole: "A 206 is stored and served as the whole page.",
        ForgetsOriginAge: "The origin's `Age` and `Date` do not shorten the lifetime.",
        StaleDespiteMustRevalidate: "A stale page hides errors despite `must-revalidate`.",
        KeyWithoutHost: "Two hosts share their pages.",
        DecodesKeys: "The key is decoded: `/a%2Fb` and `/a/b` are one page.",
        PurgesOneVariant: "A purge removes only the variant that its own fields select.",
        SharesLeadersVariant: "Waiters get the leader's variant.",
        ReadsOneCacheControlLine: "Only the first line of `Cache-Control` counts.",
        StoresHeadAsPage: "The answer to a HEAD is stored as a page with an empty body.",
        DefaultLifetime: "A page without a lifetime is stored for 60 s.",
        EndsWithLeader: "A load ends when the leader's client gives up, and its waiters get a 502.",
    }
}

/// The faults of one cache.
pub struct Faults(Vec<Fault>);

impl Faults {
    pub fn new(faults: &[Fault]) -> Self {
        Self(faults.to_vec())
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }
}
