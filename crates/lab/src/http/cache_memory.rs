//! Estimates the memory of a cache from the recipe and the limit.

use serde_json::Value;
use stockade_record::server::MEMORY_SHARE_MAX;

/// The proxy's default limit.
pub(super) const LIMIT_BYTES: u64 = 256 << 20;
/// The size of random content after gzip, as a share.
const GZIP_RATIO: f64 = 0.77;

/// The cache exceeds the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its cache would hold about {needed_mib} MiB, more than 60 % of its machine's {memory_mib} MiB: write a smaller limit, or let \
     it take less time (--scale)"
)]
pub struct CacheMemoryError {
    pub needed_mib: u64,
    pub memory_mib: u64,
}

/// Refuses a cache that exceeds the share of a run (0 MiB: unknown).
pub(super) fn check(bytes: u64, memory_mib: u64) -> Result<(), CacheMemoryError> {
    let needed_mib = bytes >> 20;
    if memory_mib > 0 && needed_mib as f64 > memory_mib as f64 * MEMORY_SHARE_MAX {
        return Err(CacheMemoryError { needed_mib, memory_mib });
    }
    Ok(())
}

/// The largest body of a recipe in bytes, as sent.
pub(super) fn body_bytes(recipe: &Value) -> Option<u64> {
    if let Value::Array(recipes) = recipe {
        return recipes.iter().filter_map(body_bytes).max();
    }
    let headers = recipe.get("headers").map(Value::to_string).unwrap_or_default();
    if let Some(body) = recipe.get("body").and_then(Value::as_str) {
        return Some(template_bytes(body));
    }
    let bytes = content_bytes(recipe.get("random_content")?.as_str()?)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a number that fits"
    )]
    let packed = (bytes as f64 * GZIP_RATIO) as u64;
    Some(if headers.contains("gzip") { packed } else { bytes })
}

/// A size as in recipes: `428kb`.
fn content_bytes(size: &str) -> Option<u64> {
    let (number, unit) = size.trim().split_at(size.trim().bytes().take_while(u8::is_ascii_digit).count());
    let unit = match unit.trim_start() {
        "b" => 1,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The size of a body template, in which `<<300kb>>` stands for random content.
fn template_bytes(body: &str) -> u64 {
    let (before, rest) = body.split_once("<<").unwrap_or((body, ""));
    let parts = rest.split("<<").map(|part| {
        let (size, after) = part.split_once(">>").unwrap_or((part, ""));
        content_bytes(size).unwrap_or(size.len() as u64).saturating_add(after.len() as u64)
    });
    parts.fold(before.len() as u64, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn body_bytes_follow_the_recipe() {
        for (recipe, bytes) in [
            (json!({ "random_content": "512b" }), Some(512)),
            (json!({ "random_content": "10 kb" }), Some(10 << 10)),
            (json!([{ "random_content": "1kb" }, { "random_content": "3mb" }]), Some(3 << 20)),
            (json!({ "random_content": "99999999999999999mb" }), None),
            (json!({ "random_content": "1kb", "headers": { "content-encoding": "gzip" } }), Some(788)),
            (json!({ "body": "as it is" }), Some(8)),
            (json!({ "body": "{\"a\":\"<<300kb>>\",\"b\":\"<<1b>>\"}" }), Some((300 << 10) + 1 + 15)),
        ] {
            assert_eq!(body_bytes(&recipe), bytes, "{recipe}");
        }
    }
}
