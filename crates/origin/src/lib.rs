//! An HTTP origin that misbehaves on schedule.

pub mod recipe;
pub mod stages;
