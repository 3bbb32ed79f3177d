//! From the figures of a record to rows: ratios, intervals and verdicts.

use stockade_record::ratios::{Aim, JudgedRatio, RatioClaim, judge};

use crate::{
    command::record::{Record, SittingRecord},
    statistics::median,
    suite::{Bench, Better, Figure, Metric, OURS},
};

/// A comparison of one of our contenders with a peer in a case.
pub struct Row {
    pub case: String,
    pub metric: &'static Metric,
    /// Our contender and its figure, the median of the sittings.
    pub ours: (String, f64),
    pub peer: (String, f64),
    /// Ours / theirs, one for each sitting.
    pub ratios: Vec<f64>,
    pub aim: Option<Aim>,
    pub judged: JudgedRatio,
}

/// The rows of a bench in the order of its metrics and cases. All of them are judged together.
#[must_use]
pub fn rows(bench: &Bench, record: &Record) -> Vec<Row> {
    let pairs: Vec<_> = bench.metrics.iter().flat_map(|metric| pairs_of(bench, metric, record)).collect();
    let claims: Vec<_> =
        pairs.iter().map(|pair| RatioClaim { repeats: pair.ratios.clone(), aim: pair.aim }).collect();
    let row = |(pair, judged): (Pair, JudgedRatio)| Row {
        case: pair.case,
        metric: pair.metric,
        ours: pair.ours,
        peer: pair.peer,
        ratios: pair.ratios,
        aim: pair.aim,
        judged,
    };
    pairs.into_iter().zip(judge(&claims)).map(row).collect()
}

/// A row before its verdict.
struct Pair {
    case: String,
    metric: &'static Metric,
    ours: (String, f64),
    peer: (String, f64),
    ratios: Vec<f64>,
    aim: Option<Aim>,
}

fn pairs_of(bench: &Bench, metric: &'static Metric, record: &Record) -> Vec<Pair> {
    let cells = Cells { record, metric };
    let mut pairs = Vec::new();
    for case in cells.names(|figure| &figure.case, |_| true) {
        let contenders = cells.names(|figure| &figure.contender, |figure| figure.case == case);
        let (ours, peers): (Vec<_>, Vec<_>) = contenders.iter().partition(|name| family(name) == OURS);
        let peers = fastest_settings(&cells, &case, &peers, metric.better);
        for (own, peer) in ours.iter().flat_map(|own| peers.iter().map(move |peer| (own, peer))) {
            let ratios = cells.ratios(&case, own, peer);
            if ratios.is_empty() {
                continue;
            }
            let bound = metric.aim.filter(|_| !bench.limits.contains(&family(peer)));
            pairs.push(Pair {
                case: case.clone(),
                metric,
                ours: ((*own).clone(), cells.middle(&case, own)),
                peer: (peer.clone(), cells.middle(&case, peer)),
                ratios,
                aim: bound.map(if metric.better == Better::Higher { Aim::AtLeast } else { Aim::AtMost }),
            });
        }
    }
    pairs
}

/// The name without its setting.
fn family(contender: &str) -> &str {
    contender.split(", ").next().unwrap_or(contender)
}

/// Of each peer the setting with the best figure, in the order of the peers.
fn fastest_settings(cells: &Cells<'_>, case: &str, peers: &[&String], better: Better) -> Vec<String> {
    let mut best: Vec<String> = Vec::new();
    for peer in peers {
        let is_better = |than: &str| {
            let (figure, other) = (cells.middle(case, peer), cells.middle(case, than));
            if better == Better::Higher { figure > other } else { figure < other }
        };
        match best.iter_mut().find(|name| family(name) == family(peer)) {
            Some(name) if is_better(name) => (*peer).clone_into(name),
            Some(_) => {}
            None => best.push((*peer).clone()),
        }
    }
    best
}

/// The figures of one metric.
struct Cells<'r> {
    record: &'r Record,
    metric: &'static Metric,
}

impl<'r> Cells<'r> {
    /// Different names of the figures, in the order of their first appearance.
    fn names(&self, of: impl Fn(&Figure) -> &String, is_wanted: impl Fn(&Figure) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for figure in self.record.sittings.iter().flat_map(|sitting| &sitting.figures) {
            if figure.metric == self.metric.name && is_wanted(figure) && !names.contains(of(figure)) {
                names.push(of(figure).clone());
            }
        }
        names
    }

    fn figure(&self, sitting: &'r SittingRecord, case: &str, contender: &str) -> Option<&'r Figure> {
        sitting.figures.iter().find(|figure| {
            figure.metric == self.metric.name && figure.case == case && figure.contender == contender
        })
    }

    /// The median of the medians of the sittings; 0 of none.
    fn middle(&self, case: &str, contender: &str) -> f64 {
        let figures = self.record.sittings.iter().filter_map(|sitting| self.figure(sitting, case, contender));
        let medians: Vec<f64> = figures
            .filter(|figure| !figure.rounds.is_empty())
            .map(|figure| median(figure.rounds.clone()))
            .collect();
        if medians.is_empty() { 0.0 } else { median(medians) }
    }

    /// For each sitting the median of the ratios of its rounds.
    fn ratios(&self, case: &str, own: &str, peer: &str) -> Vec<f64> {
        let ratio = |sitting| {
            let (own, peer) = (self.figure(sitting, case, own)?, self.figure(sitting, case, peer)?);
            let ratios: Vec<f64> = own
                .rounds
                .iter()
                .zip(&peer.rounds)
                .map(|(own, peer)| own / peer)
                .filter(|ratio| ratio.is_finite() && *ratio >= 0.0)
                .collect();
            (!ratios.is_empty()).then(|| median(ratios))
        };
        self.record.sittings.iter().filter_map(ratio).collect()
    }
}

#[cfg(test)]
mod tests {
    use stockade_record::ratios::RatioVerdict;

    use super::*;
    use crate::{command::machine::Machine, suite};

    fn figure(contender: &str, rounds: &[f64]) -> Figure {
        Figure {
            case: "1 KiB".to_owned(),
            metric: "hits".to_owned(),
            contender: contender.to_owned(),
            rounds: rounds.to_vec(),
        }
    }

    fn record(sittings: Vec<Vec<Figure>>) -> Record {
        let sitting = |figures| SittingRecord { seed: 1, seconds: 1.0, busy_before: 0.0, figures };
        Record {
            began: "2026-01-01T00:00:00Z".to_owned(),
            commit: "abc".to_owned(),
            machine: Machine {
                cpu: "A CPU".to_owned(),
                cores: 2,
                memory_mib: 1_024,
                os: "Linux 6.1".to_owned(),
                virtualised: "no".to_owned(),
            },
            peers: Vec::new(),
            missing: Vec::new(),
            sittings: sittings.into_iter().map(sitting).collect(),
        }
    }

    #[test]
    fn ratios_are_of_the_same_round_and_of_the_fastest_setting() {
        let sitting = |scale: f64| {
            vec![
                figure("stockade", &[12.0 * scale, 24.0 * scale, 12.0 * scale]),
                figure("nginx, sendfile on", &[5.0 * scale, 10.0 * scale, 5.0 * scale]),
                figure("nginx, sendfile off", &[10.0 * scale, 20.0 * scale, 10.0 * scale]),
                figure("Varnish", &[6.0 * scale, 12.0 * scale, 6.0 * scale]),
            ]
        };
        let record = record([1.0, 1.3, 0.7, 2.0, 1.0].map(sitting).to_vec());
        let rows = rows(suite::find("proxy").unwrap(), &record);
        let found: Vec<_> = rows.iter().map(|row| (row.peer.0.as_str(), row.judged.verdict)).collect();
        let met = Some(RatioVerdict::Met);
        assert_eq!(found, [("nginx, sendfile off", met), ("Varnish", met)]);
        assert!((rows[0].judged.mean - 1.2).abs() < 1e-9 && (rows[1].judged.mean - 2.0).abs() < 1e-9);
        assert!((rows[0].ours.1 - 12.0).abs() < 1e-9);
    }

    #[test]
    fn limits_have_no_aim_and_lower_figures_are_at_most_the_aim() {
        let bytes = |contender: &str, value: f64| Figure {
            metric: "bytes an entry".to_owned(),
            ..figure(contender, &[value])
        };
        let sitting = vec![bytes("stockade", 70.0), bytes("moka", 300.0), bytes("papaya", 40.0)];
        let rows = rows(suite::find("bytes").unwrap(), &record(vec![sitting; 5]));
        assert_eq!((rows[0].aim, rows[0].judged.verdict), (Some(Aim::AtMost(1.0)), Some(RatioVerdict::Met)));
        assert_eq!((rows[1].aim, rows[1].judged.verdict), (None, None));
    }
}
