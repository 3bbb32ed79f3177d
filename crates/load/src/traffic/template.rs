//! A path that differs from request to request.

/// Path and query in pieces, to be put together again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template {
    pieces: Box<[Piece]>,
    /// Enough for what it is filled to.
    bytes_max: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(Box<str>),
    /// The key, with zeros before it up to so many digits.
    Key(usize),
    /// The request's number.
    Number,
}

/// `u64::MAX` has 20 digits; wider keys there are none.
const DIGITS_MAX: usize = 20;

impl Template {
    /// Cuts a path at its `{key}`s. Else the place that is not written as one.
    pub fn read(path: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = path;
        while let Some(at) = rest.find("{key") {
            let (text, place) = rest.split_at(at);
            let wrong = || place.chars().take(DIGITS_MAX).collect::<String>();
            let (inner, after) = place["{key".len()..].split_once('}').ok_or_else(wrong)?;
            let width = match inner.strip_prefix(":0") {
                _ if inner.is_empty() => 0,
                Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                    digits.parse().ok().filter(|width| (1..=DIGITS_MAX).contains(width)).ok_or_else(wrong)?
                }
                _ => return Err(format!("{{key{inner}}}")),
            };
            pieces.extend([Piece::Text(text.into()), Piece::Key(width)]);
            rest = after;
        }
        pieces.push(Piece::Text(rest.into()));
        Ok(Self::of(pieces))
    }

    fn of(mut pieces: Vec<Piece>) -> Self {
        pieces.retain(|piece| *piece != Piece::Text("".into()));
        let bytes = |piece: &Piece| if let Piece::Text(text) = piece { text.len() } else { DIGITS_MAX };
        let bytes_max = pieces.iter().map(bytes).sum();
        Self { pieces: pieces.into(), bytes_max }
    }

    /// Whether a key stands in it.
    pub fn has_key(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Key(_)))
    }

    /// With one more query parameter at its end: `parameter`, and then the request's number.
    pub fn with_number(self, parameter: &str) -> Self {
        let text = || {
            self.pieces
                .iter()
                .filter_map(|piece| if let Piece::Text(text) = piece { Some(text) } else { None })
        };
        let has_query = text().any(|text| text.contains('?'));
        let is_open = matches!(self.pieces.last(), Some(Piece::Text(text)) if text.ends_with(['?', '&']));
        let joint = match (has_query, is_open) {
            (false, _) => "?",
            (true, false) => "&",
            (true, true) => "",
        };
        let mut pieces = self.pieces.into_vec();
        pieces.extend([Piece::Text(format!("{joint}{parameter}").into()), Piece::Number]);
        Self::of(pieces)
    }

    /// With a key and a number in their places.
    pub fn filled(&self, key: u64, number: u64) -> String {
        let mut text = String::with_capacity(self.bytes_max);
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Key(width) => push::<10>(&mut text, key, *width),
                Piece::Number => push::<16>(&mut text, number, 0),
            }
        }
        text
    }
}

/// Writes a number, with zeros before it up to so many digits. Formatting takes three times as long.
fn push<const BASE: u64>(text: &mut String, mut number: u64, width: usize) {
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
