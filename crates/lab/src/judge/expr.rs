//! What a hypothesis expects: comparisons of metrics.
//!
//! ```text
//! comparison = sum ("<=" | "<" | ">=" | ">" | "==" | "!=") sum
//! sum        = product (("+" | "-") product)*
//! product    = factor (("*" | "/") factor)*
//! factor     = number | duration | selector | "(" sum ")"
//! selector   = [TEST "/"] [ARM "."] metric ["(" window ")"]
//! window     = from ".." to | "until first reclaim" | "after first reclaim"
//!                                                 all where TEST or ARM is not named;
//!                                                 TEST may be the beginning of a path of tests
//! ```
//!
//! A window `(10s..50s)` stands behind its metric without a space: whole seconds since the load began, or those until, or
//! after, the one in which the cache first cleared room.
//!
//! Names may hold `-` and `:`, and paths of tests `/`, so operators stand between spaces.

use std::ops::Range;

use stockade_model::{
    nearest::{nearest, remedy},
    units::{milliseconds, parse_duration},
};

use crate::metrics::{Metric, Unit, Window, metrics};

/// A comparison, checked: every name in it exists and the units of its sides agree.
#[derive(Clone, Debug)]
pub struct Comparison {
    unit: Unit,
    pub(super) left: Expr,
    pub(super) op: Op,
    pub(super) right: Expr,
}

/// An expression could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExprError {
    /// What is wrong, and what to write instead.
    pub message: String,
    /// Where, in bytes of the expression.
    pub at: Range<usize>,
}

/// The names that expressions of one experiment may use.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Paths of tests.
    pub tests: &'a [String],
    /// Names of arms.
    pub arms: &'a [String],
}

#[derive(Clone, Debug)]
pub(super) enum Expr {
    Constant(f64),
    Figure(Selector),
    Binary(Box<Expr>, Arithmetic, Box<Expr>),
}

/// A metric of some runs.
#[derive(Clone)]
pub struct Selector {
    /// The beginning of the paths of the tests that are meant; `None`: all.
    pub test: Option<String>,
    /// The arm that is meant; `None`: all.
    pub arm: Option<String>,
    /// What is looked at.
    pub metric: &'static Metric,
    /// In which seconds; `None`: in all.
    pub window: Option<Window>,
    /// Where it stands in its expression, in bytes.
    pub at: Range<usize>,
}

impl std::fmt::Debug for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}/{:?}.{}({:?})", self.test, self.arm, self.metric.name, self.window)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Le,
    Lt,
    Ge,
    Gt,
    Eq,
    Ne,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

const COMPARISONS: [(&str, Op); 6] =
    [("<=", Op::Le), ("<", Op::Lt), (">=", Op::Ge), (">", Op::Gt), ("==", Op::Eq), ("!=", Op::Ne)];

impl Op {
    #[expect(clippy::float_cmp, reason = "counts are whole numbers, and exact")]
    pub(super) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Le => left <= right,
            Self::Lt => left < right,
            Self::Ge => left >= right,
            Self::Gt => left > right,
            Self::Eq => left == right,
            Self::Ne => left != right,
        }
    }
}

/// Reads a comparison and checks its names and units.
pub fn parse(text: &str, names: Names<'_>) -> Result<Comparison, ExprError> {
    let mut parser = Parser { text, tokens: tokens(text), next: 0, names };
    let (left, unit) = parser.sum()?;
    let at = parser.here();
    let op = match parser.peek().and_then(|token| COMPARISONS.iter().find(|(written, _)| *written == token)) {
        Some((_, op)) => *op,
        None => return error("a comparison is missing: write <=, <, >=, >, == or !=, between spaces", at),
    };
    parser.next += 1;
    let start = parser.here().start;
    let (right, right_unit) = parser.sum()?;
    if unit != right_unit {
        let message = match right_unit {
            Unit::Number => "a time is compared with a number without a unit: write `ms` or `s` behind it",
            Unit::Time => "a number is compared with a time",
        };
        return error(message, start..text.len());
    }
    if parser.peek().is_some() {
        return error("one comparison is enough: put another one into a line of its own", parser.here());
    }
    Ok(Comparison { unit, left, op, right })
}

/// Reads a selector: the path of a metric, and perhaps a window of it.
pub fn selector(text: &str, names: Names<'_>) -> Result<Selector, String> {
    let Some((path, window)) = text.split_once('(') else { return named(text, names) };
    let selector = named(path, names)?;
    if !selector.metric.has_windows {
        return Err(format!("`{}` is told of a whole run only: leave its window out", selector.metric.name));
    }
    let window = window_of(window.strip_suffix(')').unwrap_or(window))?;
    Ok(Selector { window: Some(window), at: 0..text.len(), ..selector })
}

fn window_of(text: &str) -> Result<Window, String> {
    let written =
        || format!("`({text})` is no window: write whole seconds since the load began, such as (10s..50s)");
    let by_reclaim = [Window::UntilFirstReclaim, Window::AfterFirstReclaim];
    if let Some(window) = by_reclaim.into_iter().find(|window| window.to_string() == text) {
        return Ok(window);
    }
    let (from, to) = text.split_once("..").ok_or_else(written)?;
    let second = |text: &str| match parse_duration(text) {
        Ok(time) if time.subsec_nanos() == 0 => Ok(time.as_secs()),
        Ok(_) => Err(written()),
        Err(error) => Err(error.to_string()),
    };
    match (second(from)?, second(to)?) {
        (from, to) if from < to => Ok(Window::Seconds { from, to }),
        _ => Err(written()),
    }
}

fn named(text: &str, names: Names<'_>) -> Result<Selector, String> {
    let (test, rest) = match text.rsplit_once('/') {
        Some((test, rest)) => (Some(test), rest),
        None => (None, text),
    };
    if let Some(test) = test
        && !names.tests.iter().any(|path| is_below(path, test))
    {
        let known = beginnings(names.tests);
        if known.iter().all(String::is_empty) {
            return Err(format!(
                "there is no test `{test}`: this experiment has none, so leave `{test}/` out"
            ));
        }
        return Err(unknown("test", test, known.iter().map(String::as_str)));
    }
    // A metric first: an arm may be called like a part of one.
    let (arm, metric) = match rest.split_once('.') {
        _ if Metric::named(rest).is_some() => (None, rest),
        Some((arm, metric)) if names.arms.iter().any(|known| known == arm) => (Some(arm), metric),
        _ => (None, rest),
    };
    let Some(metric) = Metric::named(metric) else {
        // What looks like an arm in front of a metric is a misspelt arm.
        if let Some((arm, metric)) = rest.split_once('.')
            && Metric::named(metric).is_some()
        {
            return Err(unknown("arm", arm, names.arms.iter().map(String::as_str)));
        }
        let family = metric.split('.').next().unwrap_or_default();
        let of_family =
            metrics().map(|metric| metric.name).filter(|name| name.split('.').next() == Some(family));
        return Err(match nearest(metric, metrics().map(|metric| metric.name)) {
            None if of_family.clone().next().is_some() => unknown("metric", metric, of_family),
            None => format!("unknown metric `{metric}`: docs/experiments.md lists them"),
            Some(_) => unknown("metric", metric, metrics().map(|metric| metric.name)),
        });
    };
    let [test, arm] = [test, arm].map(|name| name.map(str::to_owned));
    Ok(Selector { test, arm, metric, window: None, at: 0..text.len() })
}

/// Whether a test's path begins with these segments.
#[must_use]
pub fn is_below(path: &str, beginning: &str) -> bool {
    path.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// All beginnings of paths: what a selector may name.
fn beginnings(paths: &[String]) -> std::collections::BTreeSet<String> {
    let of = |path: &String| {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.map(|end| path[..end].to_owned()).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

fn unknown<'a>(what: &str, typed: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    format!("unknown {what} `{typed}`: {}", remedy(typed, known))
}

fn error<T>(message: impl Into<String>, at: Range<usize>) -> Result<T, ExprError> {
    Err(ExprError { message: message.into(), at })
}

/// Words between spaces, and parentheses. Those of a window belong to the word that they follow.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let mut tokens = Vec::new();
    let mut word: Option<usize> = None;
    let mut is_in_window = false;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if word.is_some() && (is_in_window || c == '(') && at < text.len() {
            is_in_window = c != ')';
            continue;
        }
        is_in_window = false;
        if c.is_whitespace() || c == '(' || c == ')' {
            tokens.extend(word.take().map(|start| start..at));
            if !c.is_whitespace() {
                tokens.push(at..at + 1);
            }
        } else {
            word.get_or_insert(at);
        }
    }
    tokens
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Range<usize>>,
    next: usize,
    names: Names<'a>,
}

/// How deep parentheses may nest: enough for anybody, and the stack is safe.
const NESTING_MAX: usize = 32;

impl<'a> Parser<'a> {
    fn here(&self) -> Range<usize> {
        self.tokens.get(self.next).cloned().unwrap_or(self.text.len()..self.text.len())
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|token| &self.text[token.clone()])
    }

    fn sum(&mut self) -> Result<(Expr, Unit), ExprError> {
        self.chain(&[("+", Arithmetic::Add), ("-", Arithmetic::Sub)], Self::product)
    }

    fn product(&mut self) -> Result<(Expr, Unit), ExprError> {
        self.chain(&[("*", Arithmetic::Mul), ("/", Arithmetic::Div)], Self::factor)
    }

    fn chain(
        &mut self,
        operators: &[(&str, Arithmetic)],
        operand: fn(&mut Self) -> Result<(Expr, Unit), ExprError>,
    ) -> Result<(Expr, Unit), ExprError> {
        let (mut left, mut unit) = operand(self)?;
        while let Some((_, op)) =
            self.peek().and_then(|token| operators.iter().find(|(written, _)| *written == token))
        {
            let at = self.here();
            self.next += 1;
            let (right, right_unit) = operand(self)?;
            unit = match (op, unit, right_unit) {
                (Arithmetic::Add | Arithmetic::Sub, a, b) if a == b => a,
                (Arithmetic::Mul | Arithmetic::Div, a, Unit::Number) => a,
                (Arithmetic::Mul, Unit::Number, b) => b,
                (Arithmetic::Div, Unit::Time, Unit::Time) => Unit::Number,
                _ => return error("a time and a number do not go together like this", at),
            };
            left = Expr::Binary(Box::new(left), *op, Box::new(right));
        }
        Ok((left, unit))
    }

    fn factor(&mut self) -> Result<(Expr, Unit), ExprError> {
        let at = self.here();
        let Some(token) = self.peek() else {
            return error("a metric or a number is missing here", at);
        };
        self.next += 1;
        if token == "(" {
            let open =
                self.tokens[..self.next].iter().filter(|token| &self.text[(*token).clone()] == "(").count();
            if open > NESTING_MAX {
                return error("too many parentheses", at);
            }
            let inner = self.sum()?;
            if self.peek() != Some(")") {
                return error("a `)` is missing", self.here());
            }
            self.next += 1;
            return Ok(inner);
        }
        if token.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && let Some(constant) = constant(token)
        {
            return constant.map_err(|message| ExprError { message, at });
        }
        match selector(token, self.names) {
            Ok(selector) => {
                let unit = selector.metric.unit;
                Ok((Expr::Figure(Selector { at, ..selector }), unit))
            }
            Err(message) => error(message, at),
        }
    }
}

/// A number or a duration; `None` if it is more likely a name that begins with a digit.
fn constant(token: &str) -> Option<Result<(Expr, Unit), String>> {
    if let Ok(number) = token.parse::<f64>() {
        return Some(Ok((Expr::Constant(number), Unit::Number)));
    }
    if token.contains('/') {
        return None;
    }
    if token.contains(['*', '+', '<', '>', '=', '!']) {
        return Some(Err(format!("`{token}`: put spaces around operators")));
    }
    let time = parse_duration(token).map_err(|error| error.to_string());
    Some(time.map(|time| (Expr::Constant(milliseconds(time)), Unit::Time)))
}

impl Expr {
    /// Every metric in it.
    pub(super) fn selectors<'a>(&'a self, into: &mut Vec<&'a Selector>) {
        match self {
            Self::Constant(_) => {}
            Self::Figure(selector) => into.push(selector),
            Self::Binary(left, _, right) => {
                left.selectors(into);
                right.selectors(into);
            }
        }
    }

    /// Every window in it takes `factor` times as long.
    fn stretch(&mut self, factor: f64) {
        match self {
            Self::Constant(_) => {}
            Self::Figure(selector) => {
                selector.window = selector.window.map(|window| window.stretched(factor));
            }
            Self::Binary(left, _, right) => {
                left.stretch(factor);
                right.stretch(factor);
            }
        }
    }

    /// Its value where `figure` tells those of the selectors; `None` if one has none.
    pub(super) fn value(&self, figure: &impl Fn(&Selector) -> Option<f64>) -> Option<f64> {
        match self {
            Self::Constant(value) => Some(*value),
            Self::Figure(selector) => figure(selector),
            Self::Binary(left, op, right) => {
                let (left, right) = (left.value(figure)?, right.value(figure)?);
                match op {
                    Arithmetic::Add => Some(left + right),
                    Arithmetic::Sub => Some(left - right),
                    Arithmetic::Mul => Some(left * right),
                    Arithmetic::Div => (right != 0.0).then(|| left / right),
                }
            }
        }
    }
}

impl Comparison {
    /// Every metric on either side.
    #[must_use]
    pub fn selectors(&self) -> Vec<&Selector> {
        let mut selectors = Vec::new();
        self.left.selectors(&mut selectors);
        self.right.selectors(&mut selectors);
        selectors
    }

    /// Looks at the same parts of runs that take `factor` times as long.
    pub fn stretch(&mut self, factor: f64) {
        self.left.stretch(factor);
        self.right.stretch(factor);
    }

    /// What its sides are.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Whether it depends on times, even if it compares their ratio with a number.
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.selectors().iter().any(|selector| selector.metric.is_timing)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> (Vec<String>, Vec<String>) {
        let tests = ["scaled/10", "scaled/1000", "100k"].map(str::to_owned).to_vec();
        (tests, ["none", "stampede", "no-limit"].map(str::to_owned).to_vec())
    }

    fn read(text: &str) -> Result<Comparison, ExprError> {
        let (tests, arms) = names();
        parse(text, Names { tests: &tests, arms: &arms })
    }

    fn value(text: &str) -> f64 {
        let read = read(&format!("{text} == 0")).or_else(|_| read(&format!("{text} == 0ms"))).unwrap();
        read.left.value(&|selector| Some(selector.metric.name.len() as f64)).unwrap()
    }

    #[test]
    fn arithmetic_has_its_usual_order() {
        for (text, expected) in [
            ("1 + 2 * 3", 7.0),
            ("( 1 + 2 ) * 3", 9.0),
            ("(1 + 2) * 3", 9.0),
            ("10 - 2 - 3", 5.0),
            ("8 / 2 / 2", 2.0),
            ("1.5s", 1500.0),
            ("2 * 1.5ms + 1us", 3.001),
            ("1s / 500ms", 2.0),
            ("failed * 2", 12.0),
        ] {
            assert!((value(text) - expected).abs() < 1e-9, "{text}");
        }
    }

    #[test]
    fn names_may_begin_with_digits_and_hold_dashes() {
        let comparison = read("100k/no-limit.response.p99 <= 1.1 * scaled/none.response.p99").unwrap();
        let selectors: Vec<_> =
            comparison.selectors().iter().map(|s| (s.test.as_deref(), s.arm.as_deref())).collect();
        assert_eq!(selectors, [(Some("100k"), Some("no-limit")), (Some("scaled"), Some("none"))]);
        assert!(comparison.is_timing());
        let all = read("success == 1").unwrap();
        assert_eq!((all.selectors()[0].test.as_deref(), all.selectors()[0].arm.as_deref()), (None, None));
        assert!(!all.is_timing());
    }

    #[test]
    fn a_window_stands_behind_its_metric() {
        let mut comparison = read("(none.failed(10s..50s) + 1) * 2 <= 100k/failed(0s..1m) + failed").unwrap();
        let windows = |comparison: &Comparison| -> Vec<_> {
            comparison.selectors().iter().map(|s| s.window.map(|w| w.to_string())).collect()
        };
        let written = [Some("10s..50s".to_owned()), Some("0s..60s".to_owned()), None];
        assert_eq!(windows(&comparison), written);
        comparison.stretch(0.5);
        assert_eq!(windows(&comparison), [Some("5s..25s".to_owned()), Some("0s..30s".to_owned()), None]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, message, at) in [
            (
                "none.source_laods == 1",
                "unknown metric `source_laods`: did you mean `source_loads`?",
                "none.source_laods",
            ),
            ("nnoe.failed == 1", "unknown arm `nnoe`: did you mean `none`?", "nnoe.failed"),
            ("scald/none.failed == 1", "unknown test `scald`: did you mean `scaled`?", "scald/none.failed"),
            (
                "response.p99 <= 24",
                "a time is compared with a number without a unit: write `ms` or `s` behind it",
                "24",
            ),
            ("failed <= 24ms", "a number is compared with a time", "24ms"),
            ("0.5* failed < 1", "`0.5*`: put spaces around operators", "0.5*"),
            ("failed", "a comparison is missing: write <=, <, >=, >, == or !=, between spaces", ""),
            ("failed == ", "a metric or a number is missing here", ""),
            ("failed == 1 == 1", "one comparison is enough: put another one into a line of its own", "=="),
            ("(failed == 1", "a `)` is missing", "=="),
            ("failed + 1ms == 1", "a time and a number do not go together like this", "+"),
            (
                "failed(10s..5s) == 0",
                "`(10s..5s)` is no window: write whole seconds since the load began, such as (10s..50s)",
                "failed(10s..5s)",
            ),
            (
                "failed(1.5s..5s) == 0",
                "`(1.5s..5s)` is no window: write whole seconds since the load began, such as (10s..50s)",
                "failed(1.5s..5s)",
            ),
            ("failed(1..5s) == 0", "`1` has no unit: write `1ms` or `1s`", "failed(1..5s)"),
            (
                "waiters(1s..5s) == 0",
                "`waiters` is told of a whole run only: leave its window out",
                "waiters(1s..5s)",
            ),
            ("response.p99 <= 24min", "`min` is no unit of time: use ns, us, ms, s, m, h or d", "24min"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.message.as_str(), &text[error.at]), (message, at), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[a-z0-9.()+*/<>= -]{0,40}") {
            let _ = read(&text);
        }

        #[test]
        fn not_even_deep_nesting(depth in 0..5_000_usize) {
            let _ = read(&"(".repeat(depth));
        }
    }
}
