//! The locks of this crate, in std's or in shuttle's form.

#[cfg(shuttle)]
use shuttle::sync as imp;
#[cfg(not(shuttle))]
use std::sync as imp;
use std::sync::PoisonError;

pub(crate) use imp::{
    MutexGuard, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// A mutex that shrugs at poison: what it guards is consistent at every point where a user's code
/// (a hash, a clone) could panic.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(imp::Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that many readers share, or one writer has. It shrugs at poison, as [`Lock`] does.
#[derive(Debug, Default)]
pub(crate) struct SharedLock<T>(imp::RwLock<T>);

impl<T> SharedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
