//! A mutex that ignores poison: no code panics while the guarded state is inconsistent.
//!
//! In a test that explores schedules, other tasks may run before each lock and after each unlock.

use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[cfg(not(any(test, feature = "testing")))]
    pub fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn lock(&self) -> Guard<'_, T> {
        explored::before_lock(&self.0);
        Guard { guard: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn is_free(&self) -> bool {
        self.0.try_lock().is_ok()
    }
}

#[cfg(not(any(test, feature = "testing")))]
pub type Guard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(any(test, feature = "testing"))]
pub use explored::Guard;

#[cfg(any(test, feature = "testing"))]
pub mod explored {
    //! Schedules of tasks on one thread, chosen by shuttle.

    use std::{
        cell::Cell,
        ops::{Deref, DerefMut},
        sync::{Mutex, MutexGuard, TryLockError, atomic::Ordering},
        thread::panicking,
    };

    thread_local! {
        static IS_EXPLORING: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs a test in 2,000 random schedules, and in 2,000 that prefer one task over the others.
    pub fn explore(test: impl Fn() + Copy + Send + Sync + 'static) {
        IS_EXPLORING.set(true);
        shuttle::check_random(test, 2_000);
        shuttle::check_pct(test, 2_000, 3);
        IS_EXPLORING.set(false);
    }

    /// Lets other tasks run until the mutex is free.
    pub(super) fn before_lock<T>(mutex: &Mutex<T>) {
        switch();
        while IS_EXPLORING.get() && matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)) {
            shuttle::thread::yield_now();
        }
    }

    fn switch() {
        if IS_EXPLORING.get() && !panicking() {
            // Every atomic operation of shuttle is a point where it may choose another task.
            shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
        }
    }

    pub struct Guard<'a, T> {
        /// `None` only within `drop`.
        pub(super) guard: Option<MutexGuard<'a, T>>,
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.guard.as_ref().expect("it is not dropped")
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.guard.as_mut().expect("it is not dropped")
        }
    }

    impl<T> Drop for Guard<'_, T> {
        fn drop(&mut self) {
            drop(self.guard.take());
            switch();
        }
    }
}
