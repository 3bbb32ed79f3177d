//! Whether there is room for what a cache is to hold.

use std::path::Path;

use serde_json::Value;
use stockade_model::units::parse_size;

use super::{Http, Served};

/// More of a machine's memory than this is not for a run to take.
pub(super) const SHARE_MAX: f64 = 0.6;
/// Where a proxy is told of no limit.
const LIMIT_BYTES: u64 = 256 << 20;
/// What random content packed by gzip takes of its size.
const PACKED: f64 = 0.77;

/// A cache would hold more than the machine has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its cache would hold about {needed_mib} MiB, more than 60 % of this machine's {memory_mib} MiB: write a smaller limit, or let \
     it take less time (--scale)"
)]
pub struct TooMuch {
    /// What it would hold.
    pub needed_mib: u64,
    /// What there is.
    pub memory_mib: u64,
}

impl Http {
    /// Refuses what would not fit, as far as that can be known. The recipe is below `files`; a machine with no memory did
    /// not tell.
    pub fn check_memory(&self, files: &Path, memory_mib: u64) -> Result<(), TooMuch> {
        let needed_mib = self.held_bytes(files).unwrap_or_default() >> 20;
        let too_much = TooMuch { needed_mib, memory_mib };
        if memory_mib > 0 && needed_mib as f64 > memory_mib as f64 * SHARE_MAX {
            Err(too_much)
        } else {
            Ok(())
        }
    }

    /// What its cache comes to hold, where each request is for something new.
    fn held_bytes(&self, files: &Path) -> Option<u64> {
        let Served::Proxy(settings) = &self.served else { return None };
        if !self.traffic.cache_bust {
            return None;
        }
        let limit = settings.get("cache").and_then(|cache| cache.get("limit"));
        let entries_max = limit.and_then(|limit| limit.get("entries")?.as_u64());
        let bytes_max = limit.and_then(|limit| parse_size(limit.get("bytes")?.as_str()?).ok());
        let recipe = self.origin.as_ref()?.text(files).ok()?;
        let body = body_bytes(&serde_json::from_str(&recipe).ok()?)?;
        let held = self.traffic.requests()?.min(entries_max.unwrap_or(u64::MAX)).saturating_mul(body);
        let without = if entries_max.is_some() { u64::MAX } else { LIMIT_BYTES };
        Some(held.min(bytes_max.unwrap_or(without)))
    }
}

/// The largest body of a recipe, as it is sent.
fn body_bytes(recipe: &Value) -> Option<u64> {
    if let Value::Array(recipes) = recipe {
        return recipes.iter().filter_map(body_bytes).max();
    }
    let headers = recipe.get("headers").map(Value::to_string).unwrap_or_default();
    if let Some(body) = recipe.get("body").and_then(Value::as_str) {
        return Some(written_bytes(body));
    }
    let bytes = content_bytes(recipe.get("random_content")?.as_str()?)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of it")]
    let packed = (bytes as f64 * PACKED) as u64;
    Some(if headers.contains("gzip") { packed } else { bytes })
}

/// A size as recipes have them: `428kb`.
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

/// A body that is written out, with random content wherever it has `<<300kb>>`.
fn written_bytes(body: &str) -> u64 {
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
    fn a_body_is_as_large_as_its_recipe_has_it() {
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
