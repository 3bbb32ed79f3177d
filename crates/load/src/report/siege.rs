//! What siege prints at its end, to the byte, as it did until version 4.1.6.

use std::time::Duration;

use super::{Options, arm::ratio};
use crate::summary::Summary;

/// What comes before each figure, and after it.
const LINES: [(&str, &str); 12] = [
    ("Transactions:\t\t", " hits"),
    ("Availability:\t\t", " %"),
    ("Elapsed time:\t\t", " secs"),
    ("Data transferred:\t", " MB"),
    ("Response time:\t\t", " secs"),
    ("Transaction rate:\t", " trans/sec"),
    ("Throughput:\t\t", " MB/sec"),
    ("Concurrency:\t\t", ""),
    ("Successful transactions:", ""),
    ("Failed transactions:\t", ""),
    ("Longest transaction:\t", ""),
    ("Shortest transaction:\t", ""),
];

/// Twelve figures.
#[must_use]
pub fn render(summary: &Summary, _: &Options) -> String {
    let mut text = "Lifting the server siege...\n".to_owned();
    for ((label, unit), figure) in LINES.iter().zip(figures(summary)) {
        text.extend([label, figure.as_str(), unit, "\n"]);
    }
    text + " \n"
}

/// The figures that siege computes, as it computes and writes them. A transaction is an answer, other than one that
/// tells of a server that failed; what is below 400 or wants a login is a success. Times are those of answers, from
/// when they were due, and bytes are counted as they came.
pub(super) fn figures(summary: &Summary) -> [String; 12] {
    let tally = &summary.measured;
    let count = |of: fn(u16) -> bool| {
        tally.status_codes.iter().filter(|(code, _)| of(**code)).map(|(_, count)| count).sum::<u64>()
    };
    let failed = count(|code| matches!(code, 0 | 408 | 500..=509));
    let successful = count(|code| matches!(code, 1..=399 | 401 | 407));
    let transactions = tally.requests() - failed;
    let elapsed_s = (summary.attack() + summary.wait()).as_secs_f64();
    let by_time = |figure: f64| if elapsed_s > 0.0 { figure / elapsed_s } else { 0.0 };
    let answered = &tally.times.response;
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    let all_s = seconds(answered.mean()) * answered.count() as f64;
    let megabytes = tally.wire_bytes_in as f64 / 1_048_576.0;
    let whole = |count: u64| format!("{count:12}");
    let broken = |figure: f64| format!("{figure:12.2}");
    [
        whole(transactions),
        broken(100.0 * ratio(transactions, tally.requests()).unwrap_or_default()),
        broken(elapsed_s),
        broken(megabytes),
        broken(if transactions > 0 { all_s / transactions as f64 } else { 0.0 }),
        broken(by_time(transactions as f64)),
        broken(by_time(megabytes)),
        broken(by_time(all_s)),
        whole(successful),
        whole(failed),
        broken(seconds(answered.max())),
        broken(if successful > 0 { seconds(answered.min()) } else { 0.0 }),
    ]
}
