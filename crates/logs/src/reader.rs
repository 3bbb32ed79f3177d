//! Logs and traces, read from their beginning to their end.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{self, Read},
    ops::ControlFlow,
    path::PathBuf,
};

use memchr::{memchr, memchr2};
use stockade_model::{message::shown, units::format_count};

use crate::{
    format::{FORMATS, Format},
    formats::{HarError, LineParser, Parsed, RECORD_BYTES, access::CLF, parse_oracle_general, read_har},
    guess::{HEAD_BYTES, guess, lines_of},
    input::{InputReader, PEEKED_BYTES_MAX, ReadError},
    logged::{LoggedKey, LoggedRequest, NormalUrl},
    neighbors::TimeNeighbors,
    value::Problem,
    wrapper::{TOO_LONG, Unwrapper, Wrapper, unwrap_head},
};

/// The most bad lines, in percent of the lines that are not blank. A log with more is refused.
pub const BAD_PERCENT_MAX: u64 = 10;

/// A log may be refused before its end after this number of lines, or of bytes.
const EARLY_LINES: u64 = 10_000;
const EARLY_BYTES: u64 = 64 << 20;

/// The lines that a program may write before its first request.
const LINES_BEFORE_REQUESTS: u64 = 1_000;

/// A run of zeros of this length is not the beginning of a binary trace.
const HOLE_BYTES: usize = 1 << 10;

/// The first lines of a file whose times say where the others are.
const FIRST_TIMES_MAX: usize = 100;

const FAR: &str = "the time is more than a year from those of the lines around it";

/// The bad lines that are named.
const NAMED_BAD_LINES: usize = 3;

/// Where a log comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file or a named pipe.
    File(PathBuf),
    /// Standard input.
    StandardInput,
}

/// `-` is standard input.
impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" { Self::StandardInput } else { Self::File(path) }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::StandardInput => f.write_str("standard input"),
        }
    }
}

/// Why a log cannot be read. The message names the place and the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LogError {
    /// There is no input.
    #[error("there is no log: name one, or `-` for standard input")]
    NoInput,
    /// It cannot be opened.
    #[error("{file}: {message}")]
    Open {
        /// The name of the input.
        file: String,
        /// The error and its remedy.
        message: String,
    },
    /// It cannot be read on.
    #[error("{file}:{line}: {message}")]
    Read {
        /// The name of the input.
        file: String,
        /// The line or record, from 1.
        line: u64,
        /// The error and its remedy.
        message: String,
    },
    /// Neither its name nor its first lines tell the format.
    #[error(
        "{file}: its format cannot be told, since {reason}: name it, as one of {}. For a log of nginx with a format of its own, PATTERN is its log_format, \
         such as '$remote_addr [$time_local] \"$request\" $status $body_bytes_sent'",
        FORMATS.parsed_names().collect::<Vec<_>>().join(", ")
    )]
    UnknownFormat {
        /// The name of the input.
        file: String,
        /// The reason, a clause after `since`.
        reason: &'static str,
    },
    /// It has more lines than [`with_lines_max`](LogReader::with_lines_max) allows.
    #[error("{file}:{line}: there are more than {} lines: name a part of the log, such as its first hour", format_count(*max))]
    TooManyLines {
        /// The name of the input.
        file: String,
        /// The first line beyond the limit, from 1.
        line: u64,
        /// The limit.
        max: u64,
    },
    /// More than [`BAD_PERCENT_MAX`] of the lines are bad.
    #[error(
        "{first}; {} of {} lines are not in the format `{format}`, more than {BAD_PERCENT_MAX} %: name another format",
        format_count(*bad), format_count(*lines)
    )]
    TooManyBadLines {
        /// The first bad line.
        first: BadLine,
        /// The number of bad lines.
        bad: u64,
        /// The number of lines read that are not blank.
        lines: u64,
        /// The format that was named or guessed.
        format: String,
    },
}

/// A line that is not in the format of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The name of the input.
    pub file: String,
    /// The line, record or entry, from 1.
    pub line: u64,
    /// The error.
    pub message: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Counts of the lines read, and the first errors.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSummary {
    /// The format, named or guessed.
    pub format: Format,
    /// Lines, records or entries; blank lines, comments and headers are among them.
    pub lines: u64,
    /// Requests visited. One line may have several.
    pub requests: u64,
    /// Lines without a request: `-`, the bytes of a TLS handshake, or a message of the server.
    pub without_request: u64,
    /// Lines in another format, with an impossible value, of more than 64 KiB, or whose time is more than a year from those of the
    /// lines around it.
    pub bad_lines: u64,
    /// The first of them, at most three.
    pub first_bad: Vec<BadLine>,
    /// Requests whose time is before that of the request before them.
    pub time_reversals: u64,
    /// Times without an offset from UTC, which were taken as UTC.
    pub times_without_offset: u64,
    /// Requests that have a time, a status, a size and a service time.
    pub known: KnownValues,
    /// Bytes read, after decompression.
    pub bytes_read: u64,
}

/// Counts of the requests of a log that have a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownValues {
    /// Requests that have a time.
    pub times: u64,
    /// Requests that have a status.
    pub statuses: u64,
    /// Requests that have a size.
    pub sizes: u64,
    /// Requests that have a service time.
    pub service_times: u64,
}

/// Reads logs and traces in order, as one. Its memory is constant.
///
/// ```
/// use stockade_logs::{Format, LogReader, LoggedKey};
///
/// let log = r#"ada - - [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 17
/// bob - - [17/May/2015:10:05:04 +0000] "GET /a?b HTTP/1.1" 200 17
/// eve - - [17/May/2015:10:05:04 +0000] "-" 400 0
/// "#;
/// let reader = LogReader::from_reader("access.log", log.as_bytes(), None)?;
/// assert_eq!(reader.format().to_string(), "clf");
///
/// let mut bytes = 0;
/// let summary = reader.for_each(|request| {
///     assert_eq!(request.key, LoggedKey::Url { method: "GET", host: None, url: "/a?b" });
///     bytes += request.bytes.unwrap_or(0);
/// })?;
/// assert_eq!((bytes, summary.requests, summary.without_request), (34, 2, 1));
/// # Ok::<(), stockade_logs::LogError>(())
/// ```
#[derive(Debug)]
pub struct LogReader<'a> {
    format: Format,
    /// Opened to tell the format.
    opened: VecDeque<(String, InputReader<'a>)>,
    inputs: VecDeque<Input>,
    lines_max: u64,
}

/// Takes requests until it breaks.
type Visit<'v> = dyn FnMut(LoggedRequest<'_>) -> ControlFlow<()> + 'v;

impl<'a> LogReader<'a> {
    /// Opens inputs. Without a format the name and the first lines of the first input that is not empty tell it.
    pub fn open(inputs: &[Input], format: Option<Format>) -> Result<Self, LogError> {
        if inputs.is_empty() {
            return Err(LogError::NoInput);
        }
        inputs.iter().try_for_each(check)?;
        let mut reader = Self {
            format: Format::from(&CLF),
            opened: VecDeque::new(),
            inputs: inputs.iter().cloned().collect(),
            lines_max: u64::MAX,
        };
        match format {
            Some(format) => reader.format = format,
            None => {
                while let Some(input) = reader.inputs.pop_front() {
                    let (name, mut input) = open(&input)?;
                    let guessed = guess_of(&name, &mut input)?;
                    reader.opened.push_back((name, input));
                    if let Some(format) = guessed {
                        reader.format = format;
                        break;
                    }
                }
            }
        }
        Ok(reader)
    }

    /// Reads from anything. `name` is for messages and for telling the format.
    pub fn from_reader(name: &str, from: impl Read + 'a, format: Option<Format>) -> Result<Self, LogError> {
        let mut input = InputReader::new(from).map_err(|error| in_file(name, error))?;
        let format = match format {
            Some(format) => format,
            None => guess_of(name, &mut input)?.unwrap_or(Format::from(&CLF)),
        };
        let opened = [(name.to_owned(), input)].into();
        Ok(Self { format, opened, inputs: VecDeque::new(), lines_max: u64::MAX })
    }

    /// Refuses logs with more lines, blank ones included.
    #[must_use]
    pub fn with_lines_max(self, lines_max: u64) -> Self {
        Self { lines_max, ..self }
    }

    /// The format, named or guessed.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Visits every request, in the order of the lines. Bad lines are counted; more than [`BAD_PERCENT_MAX`] of them are an error,
    /// at the end and, after 10,000 lines or 64 MiB, before it.
    pub fn for_each(self, mut visit: impl FnMut(LoggedRequest<'_>)) -> Result<LogSummary, LogError> {
        self.try_for_each(|request| {
            visit(request);
            Ok(())
        })
    }

    /// The same until `visit` fails.
    pub fn try_for_each<E: From<LogError>>(
        self,
        mut visit: impl FnMut(LoggedRequest<'_>) -> Result<(), E>,
    ) -> Result<LogSummary, E> {
        let mut failure = None;
        let summary = self.read(&mut |request| match visit(request) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        });
        failure.map_or_else(|| summary.map_err(E::from), Err)
    }

    fn read(mut self, visit: &mut Visit<'_>) -> Result<LogSummary, LogError> {
        let is_forward = self.format.is_forward();
        let mut state = ReaderState {
            parser: self.format.line_parser(),
            summary: LogSummary {
                format: self.format,
                lines: 0,
                requests: 0,
                without_request: 0,
                bad_lines: 0,
                first_bad: Vec::new(),
                time_reversals: 0,
                times_without_offset: 0,
                known: KnownValues::default(),
                bytes_read: 0,
            },
            lines_max: self.lines_max,
            blank_lines: 0,
            excused_lines: 0,
            far_lines: 0,
            messages: 0,
            first_message: None,
            last_at_ns: 0,
            neighbors: TimeNeighbors::default(),
            is_far: false,
            is_stopped: false,
            is_forward,
        };
        while !state.is_stopped {
            let (name, input) = match (self.opened.pop_front(), self.inputs.front()) {
                (Some(opened), _) => opened,
                (None, Some(input)) => {
                    let opened = open(input)?;
                    self.inputs.pop_front();
                    opened
                }
                (None, None) => break,
            };
            state.read(&name, input, visit)?;
        }
        state.check()?;
        Ok(state.summary)
    }
}

/// The logs of a reader while they are read.
struct ReaderState {
    /// None: the format has no lines.
    parser: Option<Box<dyn LineParser>>,
    summary: LogSummary,
    lines_max: u64,
    blank_lines: u64,
    /// Bad lines that do not tell another format: those before the first request, and times that are far from the others.
    excused_lines: u64,
    /// Those with far times among them: if they are most of the lines, the format is another one.
    far_lines: u64,
    /// Lines that may be in another format, and the first of them.
    messages: u64,
    first_message: Option<BadLine>,
    last_at_ns: u64,
    neighbors: TimeNeighbors,
    /// The time of the last line is far from those of the lines around it.
    is_far: bool,
    /// The visitor takes no more requests.
    is_stopped: bool,
    /// The absolute URLs of the format stay so.
    is_forward: bool,
}

impl ReaderState {
    fn read(
        &mut self,
        name: &str,
        mut input: InputReader<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<(), LogError> {
        let before = self.summary.bytes_read;
        if self.summary.format.is_document() {
            self.read_document(name, &mut input, visit)?;
        } else if let Some(mut parser) = self.parser.take() {
            parser.start_file();
            let head = head(name, &mut input)?;
            let wrapper = Wrapper::of(head).filter(|wrapper| self.summary.format.may_have(*wrapper));
            self.neighbors.start_file(first_times(head, wrapper, &self.summary.format));
            let mut unwrapper = wrapper.map(Unwrapper::new);
            while let Some(line) = input.next_line().map_err(|error| in_file(name, error))? {
                let parsed = match line.text {
                    Some(text) if text.trim_ascii().is_empty() => {
                        self.blank_lines += 1;
                        self.count_line(name, line.number)?;
                        continue;
                    }
                    Some(text) => match &mut unwrapper {
                        Some(unwrapper) => self.read_wrapped(text, unwrapper, &mut *parser, visit),
                        None => self.read_line(text, &mut *parser, visit),
                    },
                    None => Err(TOO_LONG.into()),
                };
                let number = line.number;
                self.count(name, number, parsed)?;
                if self.is_stopped {
                    return Ok(());
                }
                if self.summary.lines.is_multiple_of(1_024) {
                    self.summary.bytes_read = before + input.bytes_read();
                }
            }
            self.summary.times_without_offset = parser.times_without_offset();
            self.parser = Some(parser);
        } else {
            loop {
                let record = input.next_record(RECORD_BYTES).map_err(|error| in_file(name, error))?;
                if record.is_empty() || self.is_stopped {
                    break;
                }
                let parsed = parse_oracle_general(record).map(|request| {
                    self.visit(request, visit);
                    Parsed::Requests
                });
                self.count(name, input.count(), parsed)?;
            }
        }
        self.summary.bytes_read = before + input.bytes_read();
        Ok(())
    }

    fn read_line(
        &mut self,
        text: &[u8],
        parser: &mut dyn LineParser,
        visit: &mut Visit<'_>,
    ) -> Result<Parsed, Problem> {
        let parsed = parser.parse(text, &mut |request| self.visit(request, visit));
        if parsed.is_err() && text.starts_with(b"#") { Ok(Parsed::Comment) } else { parsed }
    }

    /// True if the program may not have answered a request yet.
    fn is_before_requests(&self) -> bool {
        self.summary.format.is_access_log()
            && self.summary.requests == 0
            && self.summary.lines < LINES_BEFORE_REQUESTS
    }

    /// Reads a line of a container. A program writes other lines than those of requests before the first one, and to its standard
    /// error.
    fn read_wrapped(
        &mut self,
        text: &[u8],
        unwrapper: &mut Unwrapper,
        parser: &mut dyn LineParser,
        visit: &mut Visit<'_>,
    ) -> Result<Parsed, Problem> {
        let Some(line) = unwrapper.unwrap(text)? else { return Ok(Parsed::Comment) };
        if line.text.trim_ascii().is_empty() {
            return Ok(Parsed::Comment);
        }
        match self.read_line(&line.text, parser, visit) {
            Err(problem) if line.is_stderr || self.is_before_requests() => {
                Ok(Parsed::ProgramMessage(problem))
            }
            parsed => parsed,
        }
    }

    fn read_document(
        &mut self,
        name: &str,
        input: &mut InputReader<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<(), LogError> {
        let mut number = 0;
        // The document is bounded, so that its bad entries are judged at the end.
        let read = read_har(input, &mut |entry| {
            number += 1;
            let parsed = entry.map(|request| match request {
                Some(request) => {
                    self.visit(request, visit);
                    Parsed::Requests
                }
                None => Parsed::NoRequest,
            });
            let _ = self.count(name, number, parsed);
        });
        match read {
            Ok(()) => Ok(()),
            Err(HarError::Read(error)) => Err(in_file(name, error)),
            Err(HarError::Document { line, problem }) => self.count(name, line, Err(problem)),
        }
    }

    fn visit(&mut self, request: LoggedRequest<'_>, visit: &mut Visit<'_>) {
        self.is_far = request.at_ns.is_some_and(|at_ns| !self.neighbors.accept(at_ns));
        if self.is_far || self.is_stopped {
            return;
        }
        self.summary.requests += 1;
        if let Some(at_ns) = request.at_ns {
            self.summary.time_reversals += u64::from(at_ns < self.last_at_ns);
            self.last_at_ns = at_ns;
        }
        let known = &mut self.summary.known;
        known.times += u64::from(request.at_ns.is_some());
        known.statuses += u64::from(request.status.is_some());
        known.sizes += u64::from(request.bytes.is_some());
        known.service_times += u64::from(request.service_time.is_some());
        let next = if let LoggedKey::Url { method, host, url } = request.key {
            let normal = NormalUrl::of(host, url, self.is_forward);
            let key = LoggedKey::Url { method, host: normal.host.as_deref(), url: &normal.url };
            visit(LoggedRequest { key, ..request })
        } else {
            visit(request)
        };
        self.is_stopped = next.is_break();
    }

    fn count_line(&mut self, name: &str, line: u64) -> Result<(), LogError> {
        self.summary.lines += 1;
        if self.summary.lines > self.lines_max {
            return Err(LogError::TooManyLines { file: name.to_owned(), line, max: self.lines_max });
        }
        Ok(())
    }

    fn count(&mut self, name: &str, line: u64, parsed: Result<Parsed, Problem>) -> Result<(), LogError> {
        self.count_line(name, line)?;
        let is_far = std::mem::take(&mut self.is_far);
        let parsed = if is_far && parsed.is_ok() { Err(FAR.into()) } else { parsed };
        let bad_line =
            |problem: Problem| BadLine { file: name.to_owned(), line, message: problem.into_owned() };
        match parsed {
            Ok(Parsed::Requests | Parsed::Comment) => return Ok(()),
            Ok(Parsed::NoRequest) => {
                self.summary.without_request += 1;
                return Ok(());
            }
            Ok(Parsed::ProgramMessage(problem)) => {
                self.summary.without_request += 1;
                self.messages += 1;
                self.first_message.get_or_insert_with(|| bad_line(problem));
            }
            Err(problem) => {
                self.summary.bad_lines += 1;
                self.excused_lines += u64::from(is_far || self.is_before_requests());
                self.far_lines += u64::from(is_far);
                if self.summary.first_bad.len() < NAMED_BAD_LINES {
                    self.summary.first_bad.push(bad_line(problem));
                }
            }
        }
        if self.summary.lines >= EARLY_LINES || self.summary.bytes_read >= EARLY_BYTES {
            self.check()?;
        }
        Ok(())
    }

    /// Refuses a log with too many bad lines. If it has no request, its messages are bad, too.
    fn check(&self) -> Result<(), LogError> {
        let summary = &self.summary;
        let lines = summary.lines - self.blank_lines;
        let (first, bad) = if summary.requests == 0 {
            (self.first_message.as_ref().or(summary.first_bad.first()), summary.bad_lines + self.messages)
        } else {
            let far = if self.far_lines * 2 > lines { self.far_lines } else { 0 };
            (summary.first_bad.first(), summary.bad_lines - self.excused_lines + far)
        };
        match first {
            Some(first) if bad * 100 > lines * BAD_PERCENT_MAX => Err(LogError::TooManyBadLines {
                first: first.clone(),
                bad,
                lines,
                format: shown(&self.summary.format.to_string()),
            }),
            _ => Ok(()),
        }
    }
}

/// The first bytes, which decide.
fn head<'a>(name: &str, input: &'a mut InputReader<'_>) -> Result<&'a [u8], LogError> {
    let peeked = input.peek(HEAD_BYTES).map_err(|error| in_file(name, error))?;
    if peeked.len() >= HOLE_BYTES && peeked[..HOLE_BYTES].iter().all(|byte| *byte == 0) {
        input.skip_zeros().map_err(|error| in_file(name, error))?;
    }
    let head = input.peek(HEAD_BYTES).map_err(|error| in_file(name, error))?;
    let head = &head[..head.len().min(HEAD_BYTES)];
    let mut from = 0;
    if head.len() == HEAD_BYTES && memchr2(b'\n', 0, head).is_none() {
        // One line, which may be a bad one: those after it decide.
        let more = input.peek(PEEKED_BYTES_MAX).map_err(|error| in_file(name, error))?;
        from = memchr(b'\n', more).map(|at| at + 1).filter(|from| *from < more.len()).unwrap_or(0);
    }
    let head = &input.peek(HEAD_BYTES).map_err(|error| in_file(name, error))?[from..];
    Ok(&head[..head.len().min(HEAD_BYTES)])
}

/// The times of the lines in a head.
fn first_times(head: &[u8], wrapper: Option<Wrapper>, format: &Format) -> Vec<u64> {
    let mut times = Vec::new();
    let Some(mut parser) = format.line_parser() else { return times };
    let unwrapped = wrapper.map(|wrapper| unwrap_head(head, wrapper));
    for line in lines_of(unwrapped.as_deref().unwrap_or(head)).into_iter().take(FIRST_TIMES_MAX) {
        let mut at_ns = None;
        let _ = parser.parse(line, &mut |request| at_ns = request.at_ns);
        times.extend(at_ns);
    }
    times
}

/// The format of an input; none: the input is empty.
fn guess_of(name: &str, input: &mut InputReader<'_>) -> Result<Option<Format>, LogError> {
    let head = head(name, input)?;
    if head.is_empty() {
        return Ok(None);
    }
    let format = guess(name, head);
    format.map(Some).map_err(|reason| LogError::UnknownFormat { file: name.to_owned(), reason })
}

/// Refuses a missing file before the first one is read.
fn check(input: &Input) -> Result<(), LogError> {
    let Input::File(path) = input else { return Ok(()) };
    let error = |message| Err(LogError::Open { file: input.to_string(), message });
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => error("it is a folder: name a file".to_owned()),
        Ok(_) => Ok(()),
        Err(io) => error(format!("cannot read it: {io}")),
    }
}

fn open(input: &Input) -> Result<(String, InputReader<'static>), LogError> {
    let name = input.to_string();
    let reader = match input {
        Input::StandardInput => InputReader::new(io::stdin()),
        Input::File(path) => match File::open(path) {
            Ok(file) => InputReader::new(file),
            Err(error) => {
                return Err(LogError::Open { file: name, message: format!("cannot read it: {error}") });
            }
        },
    };
    let reader = reader.map_err(|error| in_file(&name, error))?;
    Ok((name, reader))
}

fn in_file(name: &str, error: ReadError) -> LogError {
    LogError::Read { file: name.to_owned(), line: error.line, message: error.message }
}
