//! Locks and atomics, of std or of shuttle.

#[cfg(shuttle)]
use shuttle::sync as imp;
#[cfg(not(shuttle))]
use std::sync as imp;
use std::sync::PoisonError;

pub(crate) use imp::{
    MutexGuard, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

/// A mutex that ignores poison: the guarded data is consistent wherever a user's code (a hash, a clone) can panic.
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

/// A reader-writer lock that ignores poison, as [`Lock`] does.
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
