//! Counts times a factor.

/// A count times a factor that is not negative, rounded; at most `u64::MAX`.
pub(crate) fn scaled(count: u64, factor: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and a float saturates"
    )]
    let scaled = (count as f64 * factor).round() as u64;
    scaled
}
