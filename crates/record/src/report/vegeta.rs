//! The text of `vegeta report`, byte for byte. Response times are Vegeta's latencies.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use super::go_format;

/// The figures in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct VegetaReport {
    /// The number of requests.
    pub requests: u64,
    /// Requests a second, and successes a second.
    pub rates: [f64; 2],
    /// From the first to the last due time.
    pub attack: Duration,
    /// From the last due time to the end of the last request.
    pub wait: Duration,
    /// Minimum, mean, p50, p90, p95, p99, maximum.
    pub latencies: [Duration; 7],
    /// Received bytes: total, and mean per request.
    pub bytes_in: (u64, f64),
    /// Sent bytes: total, and mean per request.
    pub bytes_out: (u64, f64),
    /// 0 to 1.
    pub success: f64,
    /// Requests by status; 0 stands for no response.
    pub status_codes: BTreeMap<u16, u64>,
    /// Different errors, in order of occurrence.
    pub errors: Vec<String>,
}

/// Seven lines, then the errors.
impl fmt::Display for VegetaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times =
            |times: &[Duration]| times.iter().copied().map(go_format::rounded).collect::<Vec<_>>().join(", ");
        // Vegeta sorts the codes as text. All have three digits, except 0, which is first in both orders.
        let mut codes = String::new();
        for (code, count) in &self.status_codes {
            write!(codes, "{code}:{count}  ")?;
        }
        let [rate, throughput] = self.rates;
        let bytes = |(total, mean): (u64, f64)| format!("{total}, {mean:.2}");
        let rows = [
            [
                "Requests",
                "[total, rate, throughput]",
                &format!("{}, {rate:.2}, {throughput:.2}", self.requests),
            ],
            ["Duration", "[total, attack, wait]", &times(&[self.attack + self.wait, self.attack, self.wait])],
            ["Latencies", "[min, mean, 50, 90, 95, 99, max]", &times(&self.latencies)],
            ["Bytes In", "[total, mean]", &bytes(self.bytes_in)],
            ["Bytes Out", "[total, mean]", &bytes(self.bytes_out)],
            ["Success", "[ratio]", &format!("{:.2}%", self.success * 100.0)],
            ["Status Codes", "[code:count]", &codes],
        ];
        f.write_str(&go_format::columns(&rows.map(|row| row.map(str::to_owned))))?;
        f.write_str("Error Set:\n")?;
        self.errors.iter().try_for_each(|error| writeln!(f, "{error}"))
    }
}
