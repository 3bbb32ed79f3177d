//! The admin token.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use stockade_http::guard::is_token;

/// Minimum length in bytes, against guessing.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 1_024;

/// The token in force; without a value every request is admitted. `Debug` omits it.
pub(crate) struct Token {
    path: Option<PathBuf>,
    value: RwLock<Option<Box<[u8]>>>,
}

/// A token that was read and is not in force yet.
pub struct NewToken {
    value: Option<Box<[u8]>>,
    /// Other users can read its file. Not an error: Docker and Kubernetes mount secrets so by default, in a file system
    /// that only the container sees.
    pub(super) warning: Option<String>,
}

/// Permissions of other users. The group may read: the proxy's user often gets the file through it.
const READ_BY_OTHERS: u32 = 0o004;
const WRITE_BY_OTHERS: u32 = 0o002;

/// A token file is unusable. The message does not contain the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot read the token in {path}: {error}")]
    Io { path: String, error: io::Error },
    /// The token is too short, too long or not printable ASCII without spaces.
    #[error(
        "{path} holds no token: write 16 to 1,024 letters, digits and signs, as `openssl rand -hex 32` does"
    )]
    Unusable { path: String },
    /// Any user could replace the token.
    #[error(
        "any user can write {path}, whose permissions are {mode:04o}: `chmod 640 {path}`, then choose a new token"
    )]
    Writable { path: String, mode: u32 },
}

impl Token {
    #[cfg(test)]
    fn read(path: Option<&Path>) -> Result<Self, TokenError> {
        Self::read_with_warning(path).map(|(token, _)| token)
    }

    /// The token, and a warning if other users can read its file.
    pub(crate) fn read_with_warning(path: Option<&Path>) -> Result<(Self, Option<String>), TokenError> {
        let token = Self { path: path.map(Path::to_owned), value: RwLock::new(None) };
        let mut new = token.read_again()?;
        let warning = new.warning.take();
        token.put(new);
        Ok((token, warning))
    }

    /// Reads the file without applying it.
    pub(super) fn read_again(&self) -> Result<NewToken, TokenError> {
        let Some(path) = &self.path else { return Ok(NewToken { value: None, warning: None }) };
        let name = || path.display().to_string();
        let mut bytes = Vec::new();
        let mode = File::open(path)
            .and_then(|file| {
                let mode = file.metadata()?.permissions().mode() & 0o7777;
                // Twice the limit, for spaces around the token.
                file.take(2 * LENGTH_MAX as u64).read_to_end(&mut bytes).map(|_| mode)
            })
            .map_err(|error| TokenError::Io { path: name(), error })?;
        if mode & WRITE_BY_OTHERS != 0 {
            return Err(TokenError::Writable { path: name(), mode });
        }
        let value = bytes.trim_ascii();
        let is_fit =
            (LENGTH_MIN..=LENGTH_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
        if !is_fit {
            return Err(TokenError::Unusable { path: name() });
        }
        let warning = (mode & READ_BY_OTHERS != 0).then(|| {
            let path = name();
            format!(
                "any user can read the token in {path}, whose permissions are {mode:04o}: `chmod 640 {path}`"
            )
        });
        Ok(NewToken { value: Some(value.into()), warning })
    }

    pub(super) fn put(&self, NewToken { value, .. }: NewToken) {
        *self.value.write().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// False: every request is admitted.
    pub(crate) fn is_set(&self) -> bool {
        self.value.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// True if this `Authorization` value has the token.
    pub(crate) fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let value = self.value.read().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = value.as_deref() else { return true };
        let shown = authorization.and_then(credential).unwrap_or_default();
        is_token(&shown, token)
    }
}

/// The credential in `Bearer TOKEN`, or the password in `Basic`.
fn credential(authorization: &[u8]) -> Option<Vec<u8>> {
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
    fn bearer_and_basic_credentials_are_compared_with_the_token() {
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

        // A reload replaces the token; an unusable file leaves the old token in force.
        std::fs::write(&path, "another-token-of-ours").expect("written");
        token.put(token.read_again().expect("a token"));
        std::fs::write(&path, "short").expect("written");
        let error = token.read_again().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("holds no token") && !error.contains("short"), "{error}");
        assert!(token.admits(Some(b"Bearer another-token-of-ours")));
        for text in ["", "two words are not a token", "é-is-not-in-the-ascii-set", &"x".repeat(1_025)] {
            std::fs::write(&path, text).expect("written");
            assert!(Token::read(Some(&path)).is_err(), "{text}");
        }
    }

    #[test]
    fn token_file_that_others_can_read_is_reported_and_one_they_can_write_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "open-sesame-open-sesame").expect("written");
        for (mode, expected) in [
            (0o400, ""),
            (0o600, ""),
            (0o640, ""),
            (0o644, "any user can read the token in "),
            (0o604, "any user can read the token in "),
            (0o444, "any user can read the token in "),
            (0o646, "any user can write "),
            (0o602, "any user can write "),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("the own file");
            let (text, is_refused) = match Token::read_with_warning(Some(&path)) {
                Ok((_, warning)) => (warning.unwrap_or_default(), false),
                Err(error) => (error.to_string(), true),
            };
            assert!(text.starts_with(expected) && text.is_empty() == expected.is_empty(), "{mode:o}: {text}");
            assert!(text.is_empty() || text.contains(&format!("{mode:04o}: `chmod 640 ")), "{text}");
            assert!(!text.contains("sesame"), "{text}");
            assert_eq!(is_refused, expected.contains("write"), "{mode:o}: {text}");
        }
    }
}
