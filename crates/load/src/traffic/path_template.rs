//! Paths that vary from request to request.

/// Path and query, split at placeholders.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PathTemplate {
    parts: Box<[PathPart]>,
    /// An upper bound on the filled path.
    bytes_max: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum PathPart {
    Text(Box<str>),
    /// The key, padded with zeros to this width.
    Key(usize),
    /// The cache-bust number, in hex.
    CacheBust,
}

/// `u64::MAX` has 20 digits.
const DIGITS_MAX: usize = 20;

impl PathTemplate {
    /// Splits a path at its placeholders. The error is a malformed one.
    pub fn parse(path: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = path;
        while let Some(at) = rest.find("{key") {
            let (text, placeholder) = rest.split_at(at);
            let malformed = || placeholder.chars().take(DIGITS_MAX).collect::<String>();
            let (inner, after) = placeholder["{key".len()..].split_once('}').ok_or_else(malformed)?;
            let width = match inner.strip_prefix(":0") {
                _ if inner.is_empty() => 0,
                Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                    .parse()
                    .ok()
                    .filter(|width| (1..=DIGITS_MAX).contains(width))
                    .ok_or_else(malformed)?,
                _ => return Err(format!("{{key{inner}}}")),
            };
            parts.extend([PathPart::Text(text.into()), PathPart::Key(width)]);
            rest = after;
        }
        parts.push(PathPart::Text(rest.into()));
        Ok(Self::from_parts(parts))
    }

    fn from_parts(mut parts: Vec<PathPart>) -> Self {
        parts.retain(|part| *part != PathPart::Text("".into()));
        let bytes = |part: &PathPart| if let PathPart::Text(text) = part { text.len() } else { DIGITS_MAX };
        let bytes_max = parts.iter().map(bytes).sum();
        Self { parts: parts.into(), bytes_max }
    }

    /// True if it has a placeholder.
    pub fn has_key(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, PathPart::Key(_)))
    }

    /// Appends a query parameter that ends with the cache-bust number: `prefix` may be `id=`.
    pub fn with_cache_bust(self, prefix: &str) -> Self {
        let text = || {
            self.parts
                .iter()
                .filter_map(|part| if let PathPart::Text(text) = part { Some(text) } else { None })
        };
        let has_query = text().any(|text| text.contains('?'));
        let is_open = matches!(self.parts.last(), Some(PathPart::Text(text)) if text.ends_with(['?', '&']));
        let separator = match (has_query, is_open) {
            (false, _) => "?",
            (true, false) => "&",
            (true, true) => "",
        };
        let mut parts = self.parts.into_vec();
        parts.extend([PathPart::Text(format!("{separator}{prefix}").into()), PathPart::CacheBust]);
        Self::from_parts(parts)
    }

    /// Replaces the placeholders.
    pub fn fill(&self, key: u64, number: u64) -> String {
        let mut text = String::with_capacity(self.bytes_max);
        for part in &self.parts {
            match part {
                PathPart::Text(part) => text.push_str(part),
                PathPart::Key(width) => push_number::<10>(&mut text, key, *width),
                PathPart::CacheBust => push_number::<16>(&mut text, number, 0),
            }
        }
        text
    }
}

/// Appends a number, padded with zeros to `width`. Three times as fast as `format!`.
fn push_number<const BASE: u64>(text: &mut String, mut number: u64, width: usize) {
    let mut digits = [b'0'; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[usize::try_from(number % BASE).unwrap_or_default()];
        number /= BASE;
        if number == 0 {
            break;
        }
    }
    let from = at.min(DIGITS_MAX - width.min(DIGITS_MAX));
    text.push_str(str::from_utf8(&digits[from..]).unwrap_or_default());
}
