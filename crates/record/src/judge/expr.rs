//! The language of expectations: comparisons of metrics.
//!
//! ```text
//! claim      = comparison (("and" | "&&") comparison)*
//! comparison = sum ("<=" | "<" | ">=" | ">" | "==" | "!=") sum
//! sum        = product (("+" | "-") product)*
//! product    = factor (("*" | "/") factor)*
//! factor     = number | duration | "scale" | selector | "(" sum ")"
//! selector   = [TEST "/"] [ARM "."] metric ["(" window ")"]
//! window     = from ".." to | "until first reclaim" | "after first reclaim"
//!                                                all if TEST or ARM is missing;
//!                                                 TEST may be a prefix of test paths
//! ```
//!
//! `scale` is the factor of `--scale`, and 1 in a run of the whole.
//!
//! A window `(10s..50s)` follows its metric without a space: whole seconds since the start of the load, or those until,
//! or after, the second in which the cache first evicted entries to make room.
//!
//! Names may contain `-` and `:`, and paths of tests `/`, so arithmetic operators stand between spaces. Comparisons and `&&` need
//! none.

use std::{iter, ops::Range};

use stockade_model::{
    nearest::{nearest, remedy},
    units::{milliseconds, parse_duration},
};

use crate::{
    histogram::Statistic,
    metrics::{FigureUnit, FigureWindow, METRICS, Metric, names_with_last_part, renamed},
    statistics::{Bounds, Difference, Quantity},
};

/// A validated comparison: every name in it exists and the units of its sides agree.
#[derive(Clone, Debug)]
pub struct Comparison {
    unit: FigureUnit,
    pub(super) left: Expr,
    pub(super) op: Op,
    pub(super) right: Expr,
}

/// An expression is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExprError {
    /// The problem and the remedy.
    pub message: String,
    /// Bytes of the expression.
    pub at: Range<usize>,
}

/// The names that expressions of one experiment may use.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    pub tests: &'a [String],
    pub arms: &'a [String],
}

#[derive(Clone, Debug)]
pub(super) enum Expr {
    Constant(f64),
    /// The factor of `--scale`.
    Scale(f64),
    Figure(Selector),
    Binary(Box<Expr>, Arithmetic, Box<Expr>),
}

/// A metric of selected runs.
#[derive(Clone)]
pub struct Selector {
    /// A prefix of test paths; `None`: all tests.
    pub test: Option<String>,
    /// `None`: all arms.
    pub arm: Option<String>,
    pub metric: &'static Metric,
    /// `None`: the whole run.
    pub window: Option<FigureWindow>,
    /// Bytes of the expression.
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

/// The characters of comparisons and of `&&`: no name has them.
const COMPARISON_SIGNS: [char; 5] = ['<', '>', '=', '!', '&'];

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

    /// The values for which it fails by the least, if it holds for no two values within these bounds, by more than the rounding of
    /// sums.
    pub(super) fn failure(self, left: Bounds, right: Bounds) -> Option<(f64, f64)> {
        let is_above = |low: f64, high: f64| low > high + high.abs() * 1e-9;
        let (above, below) = ((left.low, right.high), (left.high, right.low));
        match self {
            Self::Le | Self::Eq if is_above(left.low, right.high) => Some(above),
            Self::Lt if left.low >= right.high => Some(above),
            Self::Ge | Self::Eq if is_above(right.low, left.high) => Some(below),
            Self::Gt if right.low >= left.high => Some(below),
            _ => None,
        }
    }
}

/// Parses comparisons that are joined by `and` or `&&`: the text of each, and its parsed form.
pub fn parse_all(text: &str, names: Names<'_>) -> Result<Vec<(String, Comparison)>, ExprError> {
    let is_joint = |token: &&Range<usize>| matches!(&text[(*token).clone()], "and" | "&&");
    let all = tokens(text);
    let joints = all.iter().filter(is_joint).cloned().chain(iter::once(text.len()..text.len()));
    let mut start = 0;
    let parts = joints.map(|joint| std::mem::replace(&mut start, joint.end)..joint.start);
    let read = |part: Range<usize>| {
        let (offset, part) = (part.start, &text[part]);
        let at = |error: ExprError| ExprError { at: error.at.start + offset..error.at.end + offset, ..error };
        Ok((part.trim().to_owned(), parse(part, names).map_err(at)?))
    };
    parts.map(read).collect()
}

/// Parses a comparison and checks its names and units.
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
            FigureUnit::Number => {
                "a time is compared with a number without a unit: write `ms` or `s` behind it"
            }
            FigureUnit::Time => "a number is compared with a time",
        };
        return error(message, start..text.len());
    }
    if parser.peek().is_some() {
        return error("one comparison is enough: put another one into a line of its own", parser.here());
    }
    Ok(Comparison { unit, left, op, right })
}

/// Parses a selector: the path of a metric, and an optional window.
pub fn selector(text: &str, names: Names<'_>) -> Result<Selector, String> {
    let Some((path, window)) = text.split_once('(') else { return named(text, names) };
    let selector = named(path, names)?;
    if !selector.metric.has_windows {
        return Err(format!(
            "`{}` has a value for a whole run only: remove its window",
            selector.metric.name
        ));
    }
    let window = window_of(window.strip_suffix(')').unwrap_or(window))?;
    Ok(Selector { window: Some(window), at: 0..text.len(), ..selector })
}

fn window_of(text: &str) -> Result<FigureWindow, String> {
    let written = || {
        format!("`({text})` is not a window: write whole seconds since the load began, such as (10s..50s)")
    };
    let by_reclaim = [FigureWindow::UntilFirstReclaim, FigureWindow::AfterFirstReclaim];
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
        (from, to) if from < to => Ok(FigureWindow::Seconds { from, to }),
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
    // Metrics come first: the name of an arm may be a part of the name of a metric.
    let (arm, metric) = match rest.split_once('.') {
        _ if Metric::named(rest).is_some() => (None, rest),
        Some((arm, metric)) if names.arms.iter().any(|known| known == arm) => (Some(arm), metric),
        _ => (None, rest),
    };
    let Some(metric) = Metric::named(metric) else {
        if let Some(present) = renamed(metric) {
            return Err(format!("the metric `{metric}` is now `{present}`"));
        }
        // An unknown prefix of a known metric is a misspelt arm.
        if let Some((arm, metric)) = rest.split_once('.')
            && Metric::named(metric).is_some()
            && (nearest(arm, names.arms.iter().map(String::as_str)).is_some()
                || nearest(rest, METRICS.parsed_names()).is_none())
        {
            return Err(unknown("arm", arm, names.arms.iter().map(String::as_str)));
        }
        let statistic = metric.split_once('.').map_or(metric, |(_, statistic)| statistic);
        let is_digit = |c: char| c.is_ascii_digit();
        if statistic.strip_prefix('p').is_some_and(|digits| digits.starts_with(is_digit))
            && Statistic::named(statistic).is_none()
        {
            return Err(format!(
                "`{statistic}` is not a percentile: write one above 0 and at most 100, such as p99.9"
            ));
        }
        let family = metric.split('.').next().unwrap_or_default();
        let of_family = METRICS.parsed_names().filter(|name| name.split('.').next() == Some(family));
        let longer = names_with_last_part(metric);
        return Err(match nearest(metric, METRICS.parsed_names()) {
            None if of_family.clone().next().is_some() => unknown("metric", metric, of_family),
            None if longer.clone().next().is_some() => unknown("metric", metric, longer),
            None => format!("unknown metric `{metric}`: docs/reference/metrics.md lists them"),
            Some(_) => unknown("metric", metric, METRICS.parsed_names()),
        });
    };
    let [test, arm] = [test, arm].map(|name| name.map(str::to_owned));
    Ok(Selector { test, arm, metric, window: None, at: 0..text.len() })
}

/// True if a test's path begins with these segments.
#[must_use]
pub fn is_below(path: &str, beginning: &str) -> bool {
    path.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// All prefixes of paths, which a selector may name.
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

/// Words between spaces, and parentheses. The parentheses of a window belong to its metric.
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
        let is_sign = COMPARISON_SIGNS.contains(&c);
        let is_sign_before = word.is_some_and(|start| text[start..].starts_with(COMPARISON_SIGNS));
        if c.is_whitespace() || c == '(' || c == ')' || is_sign != is_sign_before {
            tokens.extend(word.take().map(|start| start..at));
        }
        if c == '(' || c == ')' {
            tokens.push(at..at + 1);
        } else if !c.is_whitespace() {
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

/// The deepest nesting of parentheses: bounds the recursion of the parser.
const NESTING_MAX: usize = 32;

impl<'a> Parser<'a> {
    fn here(&self) -> Range<usize> {
        self.tokens.get(self.next).cloned().unwrap_or(self.text.len()..self.text.len())
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|token| &self.text[token.clone()])
    }

    fn sum(&mut self) -> Result<(Expr, FigureUnit), ExprError> {
        self.chain(&[("+", Arithmetic::Add), ("-", Arithmetic::Sub)], Self::product)
    }

    fn product(&mut self) -> Result<(Expr, FigureUnit), ExprError> {
        self.chain(&[("*", Arithmetic::Mul), ("/", Arithmetic::Div)], Self::factor)
    }

    fn chain(
        &mut self,
        operators: &[(&str, Arithmetic)],
        operand: fn(&mut Self) -> Result<(Expr, FigureUnit), ExprError>,
    ) -> Result<(Expr, FigureUnit), ExprError> {
        let (mut left, mut unit) = operand(self)?;
        while let Some((_, op)) =
            self.peek().and_then(|token| operators.iter().find(|(written, _)| *written == token))
        {
            let at = self.here();
            self.next += 1;
            let (right, right_unit) = operand(self)?;
            unit = match (op, unit, right_unit) {
                (Arithmetic::Add | Arithmetic::Sub, a, b) if a == b => a,
                (Arithmetic::Mul | Arithmetic::Div, a, FigureUnit::Number) => a,
                (Arithmetic::Mul, FigureUnit::Number, b) => b,
                (Arithmetic::Div, FigureUnit::Time, FigureUnit::Time) => FigureUnit::Number,
                _ => return error("a time and a number do not go together like this", at),
            };
            left = Expr::Binary(Box::new(left), *op, Box::new(right));
        }
        Ok((left, unit))
    }

    fn factor(&mut self) -> Result<(Expr, FigureUnit), ExprError> {
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
        if token == "scale" {
            return Ok((Expr::Scale(1.0), FigureUnit::Number));
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

/// A number or a duration; `None`: probably a name that begins with a digit.
fn constant(token: &str) -> Option<Result<(Expr, FigureUnit), String>> {
    if let Ok(number) = token.parse::<f64>() {
        let constant = number.is_finite().then_some((Expr::Constant(number), FigureUnit::Number));
        return Some(constant.ok_or_else(|| format!("`{token}` is too large: write a number below 1e308")));
    }
    if let Some(percent) = token.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok()) {
        return Some(Err(format!("`{token}`: write a share, such as {}", percent / 100.0)));
    }
    if token.contains('/') {
        return None;
    }
    if token.contains(['*', '+', '<', '>', '=', '!']) {
        return Some(Err(format!("`{token}`: put spaces around operators")));
    }
    let time = parse_duration(token).map_err(|error| error.to_string());
    Some(time.map(|time| (Expr::Constant(milliseconds(time)), FigureUnit::Time)))
}

impl Expr {
    pub(super) fn selectors<'a>(&'a self, into: &mut Vec<&'a Selector>) {
        match self {
            Self::Constant(_) | Self::Scale(_) => {}
            Self::Figure(selector) => into.push(selector),
            Self::Binary(left, _, right) => {
                left.selectors(into);
                right.selectors(into);
            }
        }
    }

    /// Replaces the factor of each `scale`.
    fn scale(&mut self, factor: f64) {
        match self {
            Self::Scale(scale) => *scale = factor,
            Self::Constant(_) | Self::Figure(_) => {}
            Self::Binary(left, _, right) => {
                left.scale(factor);
                right.scale(factor);
            }
        }
    }

    fn has_scale(&self) -> bool {
        match self {
            Self::Scale(_) => true,
            Self::Constant(_) | Self::Figure(_) => false,
            Self::Binary(left, _, right) => left.has_scale() || right.has_scale(),
        }
    }

    /// Multiplies the bounds of every window by `factor`.
    fn stretch(&mut self, factor: f64) {
        match self {
            Self::Constant(_) | Self::Scale(_) => {}
            Self::Figure(selector) => {
                selector.window = selector.window.map(|window| window.stretched(factor));
            }
            Self::Binary(left, _, right) => {
                left.stretch(factor);
                right.stretch(factor);
            }
        }
    }

    /// Its value with the figures of its selectors; `None` if one has no figure, or if it is not finite.
    pub(super) fn value(&self, figure: &impl Fn(&Selector) -> Option<f64>) -> Option<f64> {
        let value = match self {
            Self::Constant(value) | Self::Scale(value) => *value,
            Self::Figure(selector) => figure(selector)?,
            Self::Binary(left, op, right) => {
                let (left, right) = (left.value(figure)?, right.value(figure)?);
                match op {
                    Arithmetic::Add => left + right,
                    Arithmetic::Sub => left - right,
                    Arithmetic::Mul => left * right,
                    Arithmetic::Div => left / right,
                }
            }
        };
        value.is_finite().then_some(value)
    }

    /// Its value as a difference of two quantities, so that both are at least 0; `None` if one figure is absent, or a divisor may be 0.
    pub(super) fn difference(&self, figure: &impl Fn(&Selector) -> Option<Quantity>) -> Option<Difference> {
        let of = |added| Difference { added, subtracted: Quantity::default() };
        match self {
            Self::Constant(value) | Self::Scale(value) => Some(of(Quantity::exact(*value))),
            Self::Figure(selector) => figure(selector).map(of),
            Self::Binary(left, op, right) => {
                let (a, b) = (left.difference(figure)?, right.difference(figure)?);
                Some(match op {
                    Arithmetic::Add => {
                        Difference { added: a.added + b.added, subtracted: a.subtracted + b.subtracted }
                    }
                    Arithmetic::Sub => {
                        Difference { added: a.added + b.subtracted, subtracted: a.subtracted + b.added }
                    }
                    Arithmetic::Mul => Difference {
                        added: a.added * b.added + a.subtracted * b.subtracted,
                        subtracted: a.added * b.subtracted + a.subtracted * b.added,
                    },
                    Arithmetic::Div => {
                        // A divisor that is a difference has no sign that is known.
                        let divisor = (b.subtracted == Quantity::default()).then_some(b.added)?;
                        Difference {
                            added: a.added.divided_by(divisor)?,
                            subtracted: a.subtracted.divided_by(divisor)?,
                        }
                    }
                })
            }
        }
    }
}

impl Comparison {
    #[must_use]
    pub fn selectors(&self) -> Vec<&Selector> {
        let mut selectors = Vec::new();
        self.left.selectors(&mut selectors);
        self.right.selectors(&mut selectors);
        selectors
    }

    /// Replaces the factor of each `scale`.
    pub fn scale(&mut self, factor: f64) {
        self.left.scale(factor);
        self.right.scale(factor);
    }

    /// True if it depends on the factor of `--scale`.
    #[must_use]
    pub fn has_scale(&self) -> bool {
        self.left.has_scale() || self.right.has_scale()
    }

    /// Multiplies the bounds of every window by `factor`.
    pub fn stretch(&mut self, factor: f64) {
        self.left.stretch(factor);
        self.right.stretch(factor);
    }

    /// The unit of both sides.
    #[must_use]
    pub fn unit(&self) -> FigureUnit {
        self.unit
    }

    /// Both sides as positive quantities: what one side subtracts is added to the other. `None` if a figure is absent, or a side is not
    /// finite.
    pub(super) fn sides(
        &self,
        figure: &impl Fn(&Selector) -> Option<Quantity>,
    ) -> Option<(Quantity, Quantity)> {
        let (left, right) = (self.left.difference(figure)?, self.right.difference(figure)?);
        let (left, right) = (left.added + right.subtracted, right.added + left.subtracted);
        (left.measured.is_finite() && right.measured.is_finite()).then_some((left, right))
    }

    /// Both sides; `None` if a figure is absent, or a side is not finite.
    pub(super) fn values(&self, figure: &impl Fn(&Selector) -> Option<f64>) -> Option<(f64, f64)> {
        self.left.value(figure).zip(self.right.value(figure))
    }

    /// True if it depends on times; a ratio of times does, too.
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
    fn comparisons_are_joined_and_need_no_spaces() {
        let (tests, arms) = names();
        let all = |text| parse_all(text, Names { tests: &tests, arms: &arms });
        let texts = |text| all(text).unwrap().into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        let three = ["response.p99.9 < 50ms", "success>=0.999", "failed(0s..1s)==0"];
        assert_eq!(texts("response.p99.9 < 50ms and success>=0.999&&failed(0s..1s)==0"), three);
        assert_eq!(texts("none.failed!=1"), ["none.failed!=1"]);
        let wrong = all("success == 1 && faild == 0").unwrap_err();
        assert_eq!(wrong.at, 16..21, "{wrong}");
        for incomplete in ["success == 1 and", "and success == 1", "success == 1 && && failed == 0", "a&b"] {
            assert!(all(incomplete).is_err(), "{incomplete}");
        }
    }

    #[test]
    fn names_may_contain_digits_and_dashes() {
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
    fn window_follows_its_metric() {
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
    fn scale_is_one_until_the_run_is_scaled() {
        let mut comparison = read("failed <= 1.5 * (20 + 300 * scale)").unwrap();
        let right = |comparison: &Comparison| comparison.right.value(&|_| None).unwrap();
        assert!(comparison.has_scale() && !read("failed <= 20").unwrap().has_scale());
        assert!((right(&comparison) - 480.0).abs() < 1e-9);
        comparison.scale(0.1);
        assert!((right(&comparison) - 75.0).abs() < 1e-9);
    }

    #[test]
    fn errors_have_a_message_and_a_place() {
        for (text, message, at) in [
            (
                "none.source_laods == 1",
                "unknown metric `source_laods`: did you mean `source_loads`?",
                "none.source_laods",
            ),
            (
                "none.total <= 60",
                "unknown metric `total`: use one of: bytes_in.total, stores.total",
                "none.total",
            ),
            (
                "audit.after_invalidation == 0",
                "the metric `audit.after_invalidation` is now `audit.after_purge`",
                "audit.after_invalidation",
            ),
            (
                "none.audit.after_invalidation == 0",
                "the metric `audit.after_invalidation` is now `audit.after_purge`",
                "none.audit.after_invalidation",
            ),
            (
                "response.p101 < 1s",
                "`p101` is not a percentile: write one above 0 and at most 100, such as p99.9",
                "response.p101",
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
                "`(10s..5s)` is not a window: write whole seconds since the load began, such as (10s..50s)",
                "failed(10s..5s)",
            ),
            (
                "failed(1.5s..5s) == 0",
                "`(1.5s..5s)` is not a window: write whole seconds since the load began, such as (10s..50s)",
                "failed(1.5s..5s)",
            ),
            ("failed(1..5s) == 0", "`1` has no unit: write `1ms` or `1s`", "failed(1..5s)"),
            (
                "waiters(1s..5s) == 0",
                "`waiters` has a value for a whole run only: remove its window",
                "waiters(1s..5s)",
            ),
            ("failed <= 1e400", "`1e400` is too large: write a number below 1e308", "1e400"),
            ("response.p99 <= 24min", "`min` is not a unit of time: use ns, us, ms, s, m, h or d", "24min"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.message.as_str(), &text[error.at]), (message, at), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[a-z0-9.()+*/<>= -]{0,40}") {
            let _ = read(&text);
        }

        #[test]
        fn deep_nesting_does_not_panic(depth in 0..5_000_usize) {
            let _ = read(&"(".repeat(depth));
        }
    }
}
