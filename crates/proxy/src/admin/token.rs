//! What whoever runs the proxy shows.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use subtle::ConstantTimeEq;

/// A shorter one could be guessed.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 1_024;

/// A token, or none: nobody needs one. It is never shown.
pub(super) struct Token {
    path: Option<PathBuf>,
    value: RwLock<Option<Box<[u8]>>>,
}

/// A token that is not in force yet. It is never shown.
pub struct Fresh(Option<Box<[u8]>>);

/// A token cannot be used. The message does not show it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Its file could not be read.
    #[error("cannot read the token in {path}: {error}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// It is too short, too long or not of one word.
    #[error(
        "{path} holds no token: write 16 to 1,024 letters, digits and signs, as `openssl rand -hex 32` does"
    )]
    Unusable {
        /// Its file.
        path: String,
    },
}

impl Token {
    pub(super) fn read(path: Option<&Path>) -> Result<Self, TokenError> {
        let token = Self { path: path.map(Path::to_owned), value: RwLock::new(None) };
        token.put(token.read_again()?);
        Ok(token)
    }

    /// What its file says now.
    pub(super) fn read_again(&self) -> Result<Fresh, TokenError> {
        let Some(path) = &self.path else { return Ok(Fresh(None)) };
        let name = || path.display().to_string();
        let mut bytes = Vec::new();
        File::open(path)
            // And the spaces around it.
            .and_then(|file| file.take(2 * LENGTH_MAX as u64).read_to_end(&mut bytes))
            .map_err(|error| TokenError::Io { path: name(), error })?;
        let value = bytes.trim_ascii();
        let is_fit =
            (LENGTH_MIN..=LENGTH_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
        if !is_fit {
            return Err(TokenError::Unusable { path: name() });
        }
        Ok(Fresh(Some(value.into())))
    }

    /// From now on it is this.
    pub(super) fn put(&self, Fresh(value): Fresh) {
        *self.value.write().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Whether somebody may who shows this `Authorization`.
    pub(super) fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let value = self.value.read().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = value.as_deref() else { return true };
        let shown = authorization.and_then(shown).unwrap_or_default();
        // How long the token is may be found out by trying; nothing else.
        shown.ct_eq(token).into()
    }
}

/// `Bearer TOKEN`, or `Basic` with the token for a password.
fn shown(authorization: &[u8]) -> Option<Vec<u8>> {
    let at = authorization.iter().position(|byte| *byte == b' ')?;
    let (scheme, value) = (&authorization[..at], authorization[at..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(value.to_vec());
    }
    let pair = scheme.eq_ignore_ascii_case(b"basic").then(|| STANDARD.decode(value).ok())??;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_in_one_of_two_ways() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "open-sesame-open-sesame\n").expect("written");
        let token = Token::read(Some(&path)).expect("a token");
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for (shown, is_admitted) in [
            ("Bearer open-sesame-open-sesame".to_owned(), true),
            ("bearer  open-sesame-open-sesame".to_owned(), true),
            (basic("anybody:open-sesame-open-sesame"), true),
            (basic(":open-sesame-open-sesame"), true),
            ("Bearer open-sesame-open-sesam".to_owned(), false),
            ("Bearer open-sesame-open-sesameX".to_owned(), false),
            ("Bearer".to_owned(), false),
            ("Bearer ".to_owned(), false),
            ("open-sesame-open-sesame".to_owned(), false),
            ("Digest open-sesame-open-sesame".to_owned(), false),
            (basic("open-sesame-open-sesame"), false),
            ("Basic %%%".to_owned(), false),
        ] {
            assert_eq!(token.admits(Some(shown.as_bytes())), is_admitted, "{shown}");
        }
        assert!(!token.admits(None));
        assert!(Token::read(None).expect("none").admits(None));
        assert!(!format!("{token:?}").contains("sesame"));

        // Another one; one that cannot be used leaves that in force.
        std::fs::write(&path, "another-token-of-ours").expect("written");
        token.put(token.read_again().expect("a token"));
        std::fs::write(&path, "short").expect("written");
        let error = token.read_again().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("holds no token") && !error.contains("short"), "{error}");
        assert!(token.admits(Some(b"Bearer another-token-of-ours")));
        for text in ["", "two words are no token", "é-is-not-in-the-ascii-set", &"x".repeat(1_025)] {
            std::fs::write(&path, text).expect("written");
            assert!(Token::read(Some(&path)).is_err(), "{text}");
        }
    }
}
