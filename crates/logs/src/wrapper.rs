//! The lines that container runtimes put around the lines of a program: Docker's `json-file`, `docker compose logs`, and the log
//! format of Kubernetes' CRI.
//!
//! <https://docs.docker.com/engine/logging/drivers/json-file/>,
//! <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserialize;

use crate::{input::LINE_BYTES_MAX, value::Problem};

/// The lines of a head that decide: a line may be cut off, or of another program.
const LINES: usize = 5;

/// The text of a container runtime around each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapper {
    /// `{"log":"LINE\n","stream":"stdout","time":"2026-01-31T08:00:01.25Z"}`
    Docker,
    /// `2026-01-31T08:00:01.25Z stdout F LINE`
    Cri,
    /// `web-1  | LINE`, or with its time `web-1  | 2026-01-31T08:00:01.25Z LINE`, as `docker compose logs` writes it
    Compose,
}

/// A line of a program, or the part of one.
#[derive(Debug)]
pub(crate) struct Unwrapped<'a> {
    /// Without its end.
    pub text: Cow<'a, [u8]>,
    /// The program wrote it to its standard error.
    pub is_stderr: bool,
    /// The next line goes on with it, since the runtime splits lines of more than 16 KiB.
    pub is_part: bool,
}

/// The field order is Docker's, but any is read.
#[derive(Deserialize)]
struct DockerLine<'a> {
    #[serde(borrow)]
    log: Cow<'a, str>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow, rename = "time")]
    _time: Cow<'a, str>,
}

impl Wrapper {
    /// The wrapper of the lines of a head; `None`: the lines have no wrapper.
    pub fn of(head: &[u8]) -> Option<Self> {
        let lines = head.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
        let lines: Vec<_> = lines.take(LINES).collect();
        let count = |wrapper: &Self| lines.iter().filter(|line| wrapper.unwrap(line).is_some()).count();
        // A program may write a line that looks like one of Compose.
        [(Self::Docker, 1), (Self::Cri, 1), (Self::Compose, lines.len() / 2 + 1)]
            .into_iter()
            .find_map(|(wrapper, least)| (count(&wrapper) >= least).then_some(wrapper))
    }

    fn unwrap(self, line: &[u8]) -> Option<Unwrapped<'_>> {
        match self {
            Self::Docker => unwrap_docker(line),
            Self::Cri => unwrap_cri(line),
            Self::Compose => unwrap_compose(line),
        }
    }

    /// The message about a line without this wrapper.
    fn problem(self) -> &'static str {
        match self {
            Self::Docker => {
                "the line is not one of Docker's, as `{\"log\":\"...\\n\",\"stream\":\"stdout\",\"time\":\"...\"}`"
            }
            Self::Cri => "the line is not one of a container, as `2026-01-31T08:00:01.25Z stdout F ...`",
            Self::Compose => "the line is not one of a container, as `web-1  | ...`",
        }
    }
}

fn unwrap_docker(line: &[u8]) -> Option<Unwrapped<'_>> {
    // A quick look, since most logs are not wrapped.
    if !line.starts_with(b"{") {
        return None;
    }
    let DockerLine { log, stream, .. } = serde_json::from_slice(line).ok()?;
    let is_stderr = stream == "stderr";
    if !is_stderr && stream != "stdout" {
        return None;
    }
    let end = log.trim_end_matches(['\n', '\r']).len();
    let is_part = end == log.len();
    let text = match log {
        Cow::Borrowed(log) => log.as_bytes()[..end].into(),
        Cow::Owned(log) => log.as_bytes()[..end].to_vec().into(),
    };
    Some(Unwrapped { text, is_stderr, is_part })
}

fn unwrap_cri(line: &[u8]) -> Option<Unwrapped<'_>> {
    let (time, rest) = split_word(line)?;
    let is_time = is_time(time);
    let (stream, rest) = split_word(rest)?;
    let is_stderr = stream == b"stderr";
    if !is_time || (!is_stderr && stream != b"stdout") {
        return None;
    }
    // A tag may have more parts, as in `F:x`.
    let (tag, text) = split_word(rest).unwrap_or((rest, &[]));
    let is_part = match tag.split(|byte| *byte == b':').next()? {
        b"P" => true,
        b"F" => false,
        _ => return None,
    };
    Some(Unwrapped { text: text.into(), is_stderr, is_part })
}

fn unwrap_compose(line: &[u8]) -> Option<Unwrapped<'_>> {
    let (name, rest) = split_word(line)?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    if !name.iter().all(is_name) || !name.iter().any(u8::is_ascii_alphabetic) {
        return None;
    }
    let rest = rest.trim_ascii_start().strip_prefix(b"|")?;
    let text = rest.strip_prefix(b" ").unwrap_or(rest);
    let text = split_word(text).filter(|(word, _)| is_time(word)).map_or(text, |(_, text)| text);
    Some(Unwrapped { text: text.into(), is_stderr: false, is_part: false })
}

fn is_time(word: &[u8]) -> bool {
    word.len() >= 20 && word[0].is_ascii_digit() && word[10] == b'T'
}

fn split_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b' ', text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The lines of programs in a head, without those of the standard error if there are others.
pub(crate) fn unwrap_head(head: &[u8], wrapper: Wrapper) -> Vec<u8> {
    let lines = || head.split(|byte| *byte == b'\n').filter_map(|line| wrapper.unwrap(line));
    let is_wanted = |line: &Unwrapped<'_>, stderr: bool| line.is_stderr == stderr;
    let has_stdout = lines().any(|line| is_wanted(&line, false));
    let mut text = Vec::new();
    for line in lines().filter(|line| is_wanted(line, !has_stdout)) {
        text.extend_from_slice(&line.text);
        if !line.is_part {
            text.push(b'\n');
        }
    }
    text
}

/// Takes the wrappers off the lines of a file, and joins the parts of lines.
#[derive(Debug)]
pub(crate) struct Unwrapper {
    wrapper: Wrapper,
    /// The parts of the standard output and of the standard error, which do not have their end yet.
    parts: [Vec<u8>; 2],
}

impl Unwrapper {
    pub fn new(wrapper: Wrapper) -> Self {
        Self { wrapper, parts: [Vec::new(), Vec::new()] }
    }

    /// The line of the program; none: it is a part, and the next line goes on with it.
    pub fn unwrap<'a>(&mut self, line: &'a [u8]) -> Result<Option<Unwrapped<'a>>, Problem> {
        let mut line = self.wrapper.unwrap(line).ok_or_else(|| self.wrapper.problem())?;
        let parts = &mut self.parts[usize::from(line.is_stderr)];
        if parts.is_empty() && !line.is_part {
            return Ok(Some(line));
        }
        let is_too_long = parts.len() + line.text.len() > LINE_BYTES_MAX;
        if !is_too_long {
            parts.extend_from_slice(&line.text);
        }
        if line.is_part {
            return if is_too_long { Err(TOO_LONG.into()) } else { Ok(None) };
        }
        line.text = std::mem::take(parts).into();
        if is_too_long { Err(TOO_LONG.into()) } else { Ok(Some(line)) }
    }
}

pub(crate) const TOO_LONG: &str = "the line has more than 64 KiB";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_known_by_their_lines() {
        for (head, wrapper) in [
            (
                "{\"log\":\"x\\n\",\"stream\":\"stdout\",\"time\":\"2026-01-31T08:00:01Z\"}\n",
                Some(Wrapper::Docker),
            ),
            ("cut\"}\n\n{\"log\":\"x\\n\",\"stream\":\"stderr\",\"time\":\"\"}\n", Some(Wrapper::Docker)),
            ("{\"log\":{\"entries\":[]},\"stream\":\"stdout\",\"time\":\"\"}\n", None),
            ("{\"log\":\"x\",\"stream\":\"other\",\"time\":\"\"}\n", None),
            ("{\"log\":\"x\"}\n", None),
            ("2026-01-31T08:00:01.25Z stdout F x\n", Some(Wrapper::Cri)),
            ("2026-01-31T09:00:01.25+01:00 stderr P \n", Some(Wrapper::Cri)),
            ("2026-01-31T08:00:01.25Z stdout x\n", None),
            ("web-1  | x\n", Some(Wrapper::Compose)),
            ("db-1        | 2026-01-31T08:00:01.25Z \n", Some(Wrapper::Compose)),
            ("192.0.2.7 | https | x\n", None),
            ("web-1 x\n", None),
            ("web-1  | x\na\nb\n", None),
            ("Attaching to web-1\nweb-1  | x\nweb-1  | y\n", Some(Wrapper::Compose)),
            ("2026-01-31T08:00:01.25Z my-loadbalancer 192.0.2.7:1\n", None),
            ("", None),
        ] {
            assert_eq!(Wrapper::of(head.as_bytes()), wrapper, "{head}");
        }
    }

    #[test]
    fn parts_of_a_line_are_joined_within_their_stream() {
        let mut unwrapper = Unwrapper::new(Wrapper::Cri);
        let mut texts = Vec::new();
        for line in ["stdout P a", "stderr F x", "stdout P b", "stdout F c", "stdout F ", "stdout F"] {
            let line = format!("2026-01-31T08:00:01.25Z {line}");
            texts.extend(unwrapper.unwrap(line.as_bytes()).unwrap().map(|line| line.text.into_owned()));
        }
        assert_eq!(texts, ["x", "abc", "", ""].map(|text| text.as_bytes().to_vec()));
        // A line without an end does not grow.
        let part = format!("2026-01-31T08:00:01.25Z stdout P {}", "a".repeat(20_000));
        let results: Vec<_> = (0..9).map(|_| unwrapper.unwrap(part.as_bytes()).is_ok()).collect();
        assert_eq!(results, [true, true, true, false, false, false, false, false, false]);
        assert!(unwrapper.unwrap(part.replace(" P ", " F ").as_bytes()).is_err());
        assert_eq!(unwrapper.unwrap(b"2026-01-31T08:00:01.25Z stdout F x").unwrap().unwrap().text, &b"x"[..]);
    }
}
