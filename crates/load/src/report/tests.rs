mod fixture;

use base64::{Engine, prelude::BASE64_STANDARD};
use hdrhistogram::{
    Histogram as Hdr,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogHistogram, IntervalLogIterator, LogEntry},
    },
};

use stockade_model::{outcome::Outcomes, time::Time};
use stockade_record::record::{Expectation, Verdict};

use super::*;
use crate::{sample::Sample, summary::Summary};
use fixture::{head, large, nothing, only_failures, samples, small};

fn fold(name: &str, summary: &Summary) -> String {
    let Render::Fold(render) = FORMATS.named(name).expect("a format").render else {
        panic!("{name} is written during the load")
    };
    render(summary, &ReportOptions::default())
}

fn streamed(stream: Box<dyn SampleEncoder>, samples: &[Sample]) -> String {
    let mut output = SampleWriter::new(stream, Vec::new());
    samples.iter().for_each(|sample| output.write(sample).unwrap());
    String::from_utf8(output.finish().unwrap()).unwrap()
}

#[test]
fn vegeta() {
    insta::assert_snapshot!(fold("vegeta", &small()), @r#"
    Requests      [total, rate, throughput]         5, 2.50, 0.92
    Duration      [total, attack, wait]             3.25s, 2s, 1.25s
    Latencies     [min, mean, 50, 90, 95, 99, max]  89.984µs, 280.818ms, 1ms, 1.251s, 1.251s, 1.251s, 1.251s
    Bytes In      [total, mean]                     2012, 402.40
    Bytes Out     [total, mean]                     4, 0.80
    Success       [ratio]                           60.00%
    Status Codes  [code:count]                      0:1  200:2  304:1  503:1  
    Error Set:
    503 Service Unavailable
    connection refused: 127.0.0.1:8080, "<nobody>"
    "#);
}

#[test]
fn vegeta_json() {
    insta::assert_snapshot!(fold("json", &small()), @r#"
    {"latencies":{"total":1404090000,"mean":280818000,"50th":1000447,"90th":1250951167,"95th":1250951167,"99th":1250951167,"max":1250951167,"min":89984},"bytes_in":{"total":2012,"mean":402.4},"bytes_out":{"total":4,"mean":0.8},"earliest":"2026-03-09T07:25:03.5Z","latest":"2026-03-09T07:25:05.5Z","end":"2026-03-09T07:25:06.75Z","duration":2000000000,"wait":1250000000,"requests":5,"rate":2.5,"throughput":0.9230769230769231,"success":0.6,"status_codes":{"0":1,"200":2,"304":1,"503":1},"errors":["503 Service Unavailable","connection refused: 127.0.0.1:8080, \"\u003cnobody\u003e\""],"stockade":{"requests":5,"failed":2,"achieved_rate_per_s":1.6666666666666667,"concurrency":0.4312492307692307,"success":0.6,"response":{"min_ms":0.089984,"p50_ms":1.000447,"p90_ms":1250.951167,"p95_ms":1250.951167,"p99_ms":1250.951167,"p999_ms":1250.951167,"max_ms":1250.951167,"mean_ms":351.00484},"service":{"min_ms":0.089984,"p50_ms":0.990207,"p90_ms":1250.951167,"p95_ms":1250.951167,"p99_ms":1250.951167,"p999_ms":1250.951167,"max_ms":1250.951167,"mean_ms":350.379688},"send_lag":{"min_ms":0,"p50_ms":0.010007,"p90_ms":2.500607,"p95_ms":2.500607,"p99_ms":2.500607,"p999_ms":2.500607,"max_ms":2.500607,"mean_ms":0.505919},"status_codes":{"0":1,"200":2,"304":1,"503":1},"outcomes":{"hit":2,"stale":0,"miss":1,"coalesced":0,"fallback":0,"negative":0,"error":1,"bypass":0},"hit_ratio":0.5,"failures":{"refused":1},"retries":0,"resent":0,"bytes_in":{"total":2012,"mean":402.4},"wire_bytes_in":{"total":1006,"mean":201.2},"rss_mib":{"load":{"max":3,"last":2}},"cpu":{"load":{"mean":0.125,"max":0.5}},"schema":"stockade.load/1","id":"run-1","schedule":"3s at 2/s","achieved_rate_per_s_each":[2,2,1],"dropped":0,"in_flight_at_end":1,"in_flight_max":3,"connections":4,"warmup":{"requests":2,"failed":0,"concurrency":0.002159611269971405,"success":1,"response":{"min_ms":0.089984,"p50_ms":0.090047,"p90_ms":1.000447,"p95_ms":1.000447,"p99_ms":1.000447,"p999_ms":1.000447,"max_ms":1.000447,"mean_ms":0.545104},"service":{"min_ms":0.089984,"p50_ms":0.090047,"p90_ms":0.990207,"p95_ms":0.990207,"p99_ms":0.990207,"p999_ms":0.990207,"max_ms":0.990207,"mean_ms":0.539984},"send_lag":{"min_ms":0,"p50_ms":0,"p90_ms":0.010007,"p95_ms":0.010007,"p99_ms":0.010007,"p999_ms":0.010007,"max_ms":0.010007,"mean_ms":0.005002},"status_codes":{"200":2},"outcomes":{"hit":1,"stale":0,"miss":1,"coalesced":0,"fallback":0,"negative":0,"error":0,"bypass":0},"hit_ratio":0.5,"failures":{},"retries":0,"resent":0,"bytes_in":{"total":2000,"mean":1000},"wire_bytes_in":{"total":1000,"mean":500}},"generator":{"cpu":0.125,"valid":true,"reasons":[]}}}
    "#);
}

#[test]
fn openmetrics() {
    let text = fold("openmetrics", &small());
    // Of each histogram the buckets that differ from the ones before them.
    let mut last = String::new();
    let shown = text.lines().filter(|line| {
        let value = line.rsplit(' ').next().unwrap_or_default().to_owned();
        let is_new = !line.contains("_bucket") || value != last;
        last = value;
        is_new && !line.starts_with("# HELP")
    });
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r#"
    # TYPE stockade_load_requests counter
    stockade_load_requests_total 5
    # TYPE stockade_load_failed_requests counter
    stockade_load_failed_requests_total 2
    # TYPE stockade_load_retries counter
    stockade_load_retries_total 0
    # TYPE stockade_load_dropped_requests counter
    stockade_load_dropped_requests_total 0
    # TYPE stockade_load_response_body_bytes counter
    # UNIT stockade_load_response_body_bytes bytes
    stockade_load_response_body_bytes_total 2012
    # TYPE stockade_load_request_body_bytes counter
    # UNIT stockade_load_request_body_bytes bytes
    stockade_load_request_body_bytes_total 4
    # TYPE stockade_load_opened_connections counter
    stockade_load_opened_connections_total 4
    # TYPE stockade_load_in_flight_requests_max gauge
    stockade_load_in_flight_requests_max 3
    # TYPE stockade_load_valid_measurements gauge
    stockade_load_valid_measurements 1
    # TYPE stockade_load_outcomes counter
    stockade_load_outcomes_total{outcome="hit"} 2
    stockade_load_outcomes_total{outcome="stale"} 0
    stockade_load_outcomes_total{outcome="miss"} 1
    stockade_load_outcomes_total{outcome="coalesced"} 0
    stockade_load_outcomes_total{outcome="fallback"} 0
    stockade_load_outcomes_total{outcome="negative"} 0
    stockade_load_outcomes_total{outcome="error"} 1
    stockade_load_outcomes_total{outcome="bypass"} 0
    # TYPE stockade_load_responses counter
    stockade_load_responses_total{http_response_status_code="200"} 2
    stockade_load_responses_total{http_response_status_code="304"} 1
    stockade_load_responses_total{http_response_status_code="503"} 1
    # TYPE stockade_load_failures counter
    stockade_load_failures_total{error_type="refused"} 1
    # TYPE http_client_request_duration_seconds histogram
    # UNIT http_client_request_duration_seconds seconds
    http_client_request_duration_seconds_bucket{le="5e-5"} 0
    http_client_request_duration_seconds_bucket{le="0.0001"} 1
    http_client_request_duration_seconds_bucket{le="0.001"} 2
    http_client_request_duration_seconds_bucket{le="0.25"} 3
    http_client_request_duration_seconds_bucket{le="2.5"} 4
    http_client_request_duration_seconds_sum 1.401518752
    http_client_request_duration_seconds_count 4
    # TYPE stockade_load_response_time_seconds histogram
    # UNIT stockade_load_response_time_seconds seconds
    stockade_load_response_time_seconds_bucket{le="5e-5"} 0
    stockade_load_response_time_seconds_bucket{le="0.0001"} 1
    stockade_load_response_time_seconds_bucket{le="0.001"} 2
    stockade_load_response_time_seconds_bucket{le="0.25"} 3
    stockade_load_response_time_seconds_bucket{le="2.5"} 4
    stockade_load_response_time_seconds_sum 1.40401936
    stockade_load_response_time_seconds_count 4
    # TYPE stockade_load_send_lag_seconds histogram
    # UNIT stockade_load_send_lag_seconds seconds
    stockade_load_send_lag_seconds_bucket{le="5e-5"} 4
    stockade_load_send_lag_seconds_bucket{le="0.0025"} 5
    stockade_load_send_lag_seconds_sum 0.002529595
    stockade_load_send_lag_seconds_count 5
    # TYPE process_cpu_time_seconds counter
    # UNIT process_cpu_time_seconds seconds
    process_cpu_time_seconds_total{role="load"} 0.375
    # TYPE process_memory_usage_bytes gauge
    # UNIT process_memory_usage_bytes bytes
    process_memory_usage_bytes{role="load"} 2097152
    # EOF
    "#);
}

#[test]
fn vegeta_hist() {
    insta::assert_snapshot!(fold("vegeta-hist", &small()), @"
    Bucket           #  %       Histogram
    [0s,     1ms]    2  40.00%  ##############################
    [1ms,    2ms]    1  20.00%  ###############
    [2ms,    5ms]    0  0.00%   
    [5ms,    10ms]   0  0.00%   
    [10ms,   20ms]   0  0.00%   
    [20ms,   50ms]   0  0.00%   
    [50ms,   100ms]  0  0.00%   
    [100ms,  200ms]  1  20.00%  ###############
    [200ms,  500ms]  0  0.00%   
    [500ms,  1s]     0  0.00%   
    [1s,     2s]     1  20.00%  ###############
    [2s,     5s]     0  0.00%   
    [5s,     +Inf]   0  0.00%
    ");
}

#[test]
fn json_has_buckets_only_on_request() {
    let options = ReportOptions { buckets: Some("[10ms,1s]".parse().unwrap()), ..ReportOptions::default() };
    let json = json::render(&small(), &options);
    assert!(json.contains(r#","buckets":{"0":3,"10000000":1,"1000000000":1},"bytes_in""#), "{json}");
}

#[test]
fn hdrplot() {
    let plot = fold("hdrplot", &large());
    let lines: Vec<&str> = plot.lines().collect();
    assert_eq!(lines.len(), 95);
    insta::assert_snapshot!([&lines[..7], &lines[92..]].concat().join("\n"), @"
    Value(ms)   Percentile  TotalCount  1/(1-Percentile)
    0.080000    0.000000    0           1.000000
    0.141055    0.100000    10000       1.111111
    0.202111    0.200000    20000       1.250000
    0.344063    0.300000    30000       1.428571
    0.717311    0.400000    40000       1.666667
    1.658879    0.500000    50000       2.000000
    262.275071  0.999998    100000      500000.000013
    262.275071  0.999999    100000      999999.999971
    262.275071  1.000000    100000      10000000.000000
    ");
}

#[test]
fn hgrm() {
    insta::assert_snapshot!(fold("hgrm", &small()), @"
           Value     Percentile TotalCount 1/(1-Percentile)

           0.090 0.000000000000          1           1.00
           0.090 0.100000000000          1           1.11
           0.090 0.200000000000          1           1.25
           0.500 0.300000000000          2           1.43
           0.500 0.400000000000          2           1.67
           1.000 0.500000000000          3           2.00
           1.000 0.550000000000          3           2.22
           1.000 0.600000000000          3           2.50
         152.568 0.650000000000          4           2.86
         152.568 0.700000000000          4           3.33
         152.568 0.750000000000          4           4.00
         152.568 0.775000000000          4           4.44
         152.568 0.800000000000          4           5.00
        1250.951 0.825000000000          5           5.71
        1250.951 1.000000000000          5
    #[Mean    =      280.904, StdDeviation   =      488.322]
    #[Max     =     1250.951, Total count    =            5]
    #[Buckets =           21, SubBuckets     =         2048]
    ");
}

#[test]
fn siege() {
    assert!(fold("siege", &small()).ends_with("Shortest transaction:\t        0.00\n \n"));
    insta::assert_snapshot!(fold("siege", &small()).replace('\t', "~"), @"
    Lifting the server siege...
    Transactions:~~           3 hits
    Availability:~~       60.00 %
    Elapsed time:~~        3.25 secs
    Data transferred:~        0.00 MB
    Response time:~~        0.47 secs
    Transaction rate:~        0.92 trans/sec
    Throughput:~~        0.00 MB/sec
    Concurrency:~~        0.43
    Successful transactions:           3
    Failed transactions:~           2
    Longest transaction:~        1.25
    Shortest transaction:~        0.00
    ");
}

#[test]
fn siege_json() {
    insta::assert_snapshot!(fold("siege-json", &small()).replace('\t', "~"), @r#"
    {~"transactions":~~~           3,
    ~"availability":~~~       60.00,
    ~"elapsed_time":~~~        3.25,
    ~"data_transferred":~~        0.00,
    ~"response_time":~~        0.47,
    ~"transaction_rate":~~        0.92,
    ~"throughput":~~~        0.00,
    ~"concurrency":~~~        0.43,
    ~"successful_transactions":~           3,
    ~"failed_transactions":~~           2,
    ~"longest_transaction":~~        1.25,
    ~"shortest_transaction":~~        0.00
    }
    "#);
}

#[test]
fn text() {
    insta::assert_snapshot!(fold("text", &small()), @r#"
    asked       3s at 2/s
    achieved    5 requests, 1.7/s; the last was done after 3.25s
    warm-up     2 requests before, not counted here; their p99 1ms

                   min    mean     p50     p90     p95     p99   p99.9     max
    response      90us   351ms     1ms   1.25s   1.25s   1.25s   1.25s   1.25s
    service       90us   350ms   990us   1.25s   1.25s   1.25s   1.25s   1.25s
    send lag         0   506us    10us   2.5ms   2.5ms   2.5ms   2.5ms   2.5ms
    no answer    500us   500us   500us   500us   500us   500us   500us   500us
                response: since due; service: on the wire; send lag: sent late; no
                answer: until given up

    success     60.0 % answered with 200 to 399
    answers     none: 1, 200: 2, 304: 1, 503: 1
    bodies      1006 B received, 201 B per request, 310 B/s; 1.96 KiB decompressed;
                4 B sent
    cache       hit: 2, miss: 1, error: 1 (50.0 % of all lookups hit)
    failed      2 (status 503: 1, connection refused: 1)
    errors      503 Service Unavailable
                connection refused: 127.0.0.1:8080, "<nobody>"
    of these    1 under way when the schedule ended
    per second  ██▅  1 to 2
    generator   0.12 cores on average, 0.50 at most
                4 connections, 3 requests under way at most

    valid
    "#);
}

#[test]
fn verdicts_follow_the_text_and_are_part_of_json() {
    let claims: stockade_record::judge::LoadClaims = "p50 < 1s && failed == 0".parse().unwrap();
    let options = ReportOptions { expectations: small().judge(&claims, false), ..ReportOptions::default() };
    let text = text::render(&small(), &options);
    let (_, verdicts) = text.split_once("valid\n\n").unwrap();
    assert_eq!(verdicts, "supported     p50 < 1s: it was 153ms\nrefuted       failed == 0: it was 2\n");
    let json: serde_json::Value = serde_json::from_str(&json::render(&small(), &options)).unwrap();
    assert_eq!(
        json["stockade"]["expect"][1],
        serde_json::json!({"expr": "failed == 0", "left": 2, "right": 0, "verdict": "refuted", "reason": "it was 2"})
    );
    assert!(!fold("json", &small()).contains("expect"), "absent without claims");
}

#[test]
fn text_of_a_long_invalid_run() {
    insta::assert_snapshot!(fold("text", &large()), @"
    asked       200s at 500/s
    achieved    100,000 requests, 500.0/s; the last was done after 3m20s

                   min    mean     p50     p90     p95     p99   p99.9     max
    response      80us  20.3ms  1.66ms  63.3ms   118ms   229ms   258ms   262ms
    service       80us  20.3ms  1.64ms  63.3ms   118ms   229ms   258ms   262ms
    send lag         0  19.5us    19us    36us    38us    39us    39us    39us
    no answer     85us  19.7ms  1.41ms  63.1ms   110ms   223ms   261ms   261ms
                response: since due; service: on the wire; send lag: sent late; no
                answer: until given up

    success     98.5 % answered with 200 to 399
    answers     none: 500, 200: 98,000, 304: 500, 404: 500, 503: 500
    bodies      164 MiB received, 1.68 KiB per request, 837 KiB/s; 327 MiB
                decompressed; 97.7 KiB sent
    failed      1,500 (status 404: 500, status 503: 500, no complete response in
                time: 500)
    errors      503 Service Unavailable
                404 Not Found
                no complete response in time
    besides     250 due and never sent
    per second  ████████████████████████████████████████  500 to 500 (a bar: 5 s)
    generator   0.92 cores on average, 1.00 at most
                4 connections, 3 requests under way at most

    INVALID: 92 % of a core were busy; 250 requests were never sent
    ");
}

/// URLs, hosts, addresses and names of others are as long as they like, and contain what they like.
#[test]
fn text_fits_eighty_columns_and_obeys_nobody() {
    let hostile = "a\u{1b}[2J\u{7}b\r\u{9b}31m\u{202e}c\u{2066}d\u{85}\u{7f}";
    let long = format!("http://{}.example/{}?{hostile}", "h".repeat(60), "p".repeat(200));
    let mut summary = small();
    summary.schedule = format!("{hostile} {long}");
    summary.measured.errors = vec![format!("connection refused: {long}"), hostile.repeat(20)];
    summary.measured.status_codes = (100..160).map(|status| (status, u64::from(status) << 30)).collect();
    summary.generator.invalid_reasons = vec![format!("92 % of a core were busy, {long}"), hostile.to_owned()];
    let expectations = vec![Expectation {
        expr: format!("p50 < 1s and {hostile}"),
        left: None,
        right: None,
        effect: None,
        verdict: Verdict::Refuted,
        reason: long,
    }];
    let text = text::render(&summary, &ReportOptions { expectations, ..ReportOptions::default() });
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
        assert!(!line.contains(stockade_model::message::is_unprintable), "{line:?}");
    }
    // Nothing is lost: a long word goes on in the next line.
    let joined: String = text.split_whitespace().collect();
    assert!(joined.contains(&"p".repeat(200)), "{text}");
}

/// Varnish without `X-Cache` tells hits by their `Age`, and nothing else.
#[test]
fn answers_without_an_outcome_are_not_counted_as_one() {
    let mut summary = small();
    summary.measured.outcomes = Outcomes { hit: 300, unreported: 1_200, ..Outcomes::default() };
    summary.measured.hits_of_unknown_freshness = 300;
    let text = fold("text", &summary);
    let (_, cache) = text.split_once("cache       ").unwrap();
    insta::assert_snapshot!(cache.lines().take(5).collect::<Vec<_>>().join("\n"), @"
    hit: 300 (cannot tell whether 300 of the hits are fresh)
                1,200 answers do not state what a cache did; to know it, write
                `add_header X-Cache-Status $upstream_cache_status always;` in nginx,
                and set `resp.http.X-Cache` to HIT or MISS in vcl_deliver of Varnish
    failed      2 (status 503: 1, connection refused: 1)
    ");
    let json: serde_json::Value = serde_json::from_str(&fold("json", &summary)).unwrap();
    let outcomes = &json["stockade"]["outcomes"];
    assert_eq!((&outcomes["unreported"], &outcomes["bypass"]), (&1_200.into(), &0.into()));
    assert_eq!(json["stockade"]["hit_ratio"], serde_json::Value::Null);
    // A server without a cache says nothing, and the report neither.
    summary.measured.outcomes.hit = 0;
    assert!(!fold("text", &summary).contains("cache  "));
    let json: serde_json::Value = serde_json::from_str(&fold("json", &summary)).unwrap();
    assert_eq!(json["stockade"]["outcomes"], serde_json::Value::Null);
}

#[test]
fn results_as_json() {
    let lines = streamed(Box::new(results::JsonEncoder::new(&head())), &samples(0));
    insta::assert_snapshot!(lines, @r#"
    {"attack":"run-1","seq":0,"code":200,"timestamp":"2026-03-09T07:25:03.5Z","latency":1000000,"bytes_out":0,"bytes_in":1000,"error":"","body":"","method":"GET","url":"http://127.0.0.1:8080/news?a=1\u0026b=%22","headers":null}
    {"attack":"run-1","seq":1,"code":200,"timestamp":"2026-03-09T07:25:04Z","latency":90000,"bytes_out":1,"bytes_in":1000,"error":"","body":"","method":"GET","url":"http://127.0.0.1:8080/news?a=1\u0026b=%22","headers":null}
    {"attack":"run-1","seq":2,"code":503,"timestamp":"2026-03-09T07:25:04.5Z","latency":152500000,"bytes_out":2,"bytes_in":12,"error":"503 Service Unavailable","body":"","method":"GET","url":"http://127.0.0.1:8080/news?a=1\u0026b=%22","headers":null}
    {"attack":"run-1","seq":3,"code":0,"timestamp":"2026-03-09T07:25:05Z","latency":500000,"bytes_out":0,"bytes_in":0,"error":"connection refused: 127.0.0.1:8080, \"\u003cnobody\u003e\"","body":"","method":"GET","url":"http://127.0.0.1:8080/news?a=1\u0026b=%22","headers":null}
    {"attack":"run-1","seq":4,"code":304,"timestamp":"2026-03-09T07:25:05.5Z","latency":1250000000,"bytes_out":1,"bytes_in":0,"error":"","body":"","method":"GET","url":"http://127.0.0.1:8080/news?a=1\u0026b=%22","headers":null}
    "#);
}

#[test]
fn results_as_csv() {
    let lines = streamed(Box::new(results::CsvEncoder::new(&head())), &samples(0));
    insta::assert_snapshot!(lines, @r#"
    1773041103500000000,200,1000000,0,1000,,,run-1,0,GET,http://127.0.0.1:8080/news?a=1&b=%22,
    1773041104000000000,200,90000,1,1000,,,run-1,1,GET,http://127.0.0.1:8080/news?a=1&b=%22,
    1773041104500000000,503,152500000,2,12,503 Service Unavailable,,run-1,2,GET,http://127.0.0.1:8080/news?a=1&b=%22,
    1773041105000000000,0,500000,0,0,"connection refused: 127.0.0.1:8080, ""<nobody>""",,run-1,3,GET,http://127.0.0.1:8080/news?a=1&b=%22,
    1773041105500000000,304,1250000000,1,0,,,run-1,4,GET,http://127.0.0.1:8080/news?a=1&b=%22,
    "#);
}

#[test]
fn results_are_quoted_as_in_go() {
    let head = RunHeader { id: " \"a,b\"\n".to_owned(), ..head() };
    let sample = &samples(0)[..1];
    let csv = streamed(Box::new(results::CsvEncoder::new(&head)), sample);
    assert!(csv.contains(",,\" \"\"a,b\"\"\n\",0,GET,"), "{csv}");
    let json = streamed(Box::new(results::JsonEncoder::new(&head)), sample);
    assert!(json.starts_with(r#"{"attack":" \"a,b\"\n","seq":0,"#), "{json}");
}

fn histogram(interval: &IntervalLogHistogram<'_>) -> Hdr<u64> {
    let bytes = BASE64_STANDARD.decode(interval.encoded_histogram()).unwrap();
    Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
}

#[test]
fn hlog_is_readable_by_hdrhistogram() {
    let samples = samples(10_000);
    let log = streamed(Box::new(HistogramLog::new(&head())), &samples);
    insta::assert_snapshot!(log.lines().take(3).collect::<Vec<_>>().join("\n"), @r#"
    #[Histogram log format version 1.3]
    #[StartTime: 1773041103.500 (seconds since epoch), 2026-03-09T07:25:03.5Z]
    "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
    "#);
    let mut all = Hdr::<u64>::new(3).unwrap();
    all.auto(true);
    let (mut lines, mut begins) = (0, None);
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        match entry.unwrap() {
            LogEntry::StartTime(since) => begins = Some(since),
            LogEntry::BaseTime(_) => panic!("no base"),
            LogEntry::Interval(interval) => {
                assert_eq!(interval.start_timestamp().as_secs(), lines);
                let times = histogram(&interval);
                assert!((times.max() as f64 / 1e6 - interval.max()).abs() < 0.001);
                all.add(times).unwrap();
                lines += 1;
            }
        }
    }
    assert_eq!(begins.unwrap().as_millis(), 1_773_041_103_500);
    assert_eq!((lines, all.len()), (21, 10_000));
    let longest = samples.iter().map(|sample| sample.timing.response_time()).max().unwrap().as_nanos() as f64;
    assert!((all.max() as f64 / longest - 1.0).abs() < 0.001);
}

#[test]
fn hlog_counts_late_samples_and_has_a_line_per_second() {
    let at = |finished_s: u64| {
        let mut sample = samples(1)[0].clone();
        sample.timing.finished = Time::from_nanos(finished_s * 1_000_000_000);
        sample
    };
    let log = streamed(Box::new(HistogramLog::new(&head())), &[at(1), at(4), at(3), at(1), at(7)]);
    let counts: Vec<u64> = IntervalLogIterator::new(log.as_bytes())
        .filter_map(|entry| match entry.unwrap() {
            LogEntry::Interval(interval) => Some(histogram(&interval).len()),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [0, 1, 0, 2, 1, 0, 0, 1]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a snapshot for each format")]
fn formats_handle_runs_without_responses() {
    for (what, summary, samples) in
        [("nothing", nothing(), Vec::new()), ("failures", only_failures(), fixture::failures())]
    {
        for format in &FORMATS {
            let report = match format.render {
                Render::Fold(render) => render(&summary, &ReportOptions::default()),
                Render::Stream(stream) => streamed(stream(&head()), &samples),
            };
            let name = format.name;
            for word in ["NaN", "inf", "null"] {
                assert!(!report.contains(word), "{what}, {name}: {report}");
            }
            assert!(report.is_empty() || report.ends_with('\n'), "{what}, {name}: {report}");
            if name.contains("json") {
                let json: serde_json::Value = serde_json::from_str(&report).unwrap();
                assert!(json.is_object(), "{what}, {name}");
            }
        }
    }
    insta::assert_snapshot!(fold("text", &nothing()), @"
    asked       10s at 1/d
    achieved    no requests

                   min    mean     p50     p90     p95     p99   p99.9     max
    response         -       -       -       -       -       -       -       -
    service          -       -       -       -       -       -       -       -
    send lag         -       -       -       -       -       -       -       -
                response: since due; service: on the wire; send lag: sent late

    success     -
    answers     -
    per second  ▁▁▁▁▁▁▁▁▁▁  0 to 0
    generator   0.12 cores on average, 0.50 at most
                0 connections, 0 requests under way at most

    valid
    ");
    insta::assert_snapshot!(fold("text", &only_failures()), @"
    asked       2s at 10/s
    achieved    20 requests, 10.0/s; the last was done after 1.9s

                   min    mean     p50     p90     p95     p99   p99.9     max
    response         -       -       -       -       -       -       -       -
    service          -       -       -       -       -       -       -       -
    send lag      30us    30us    30us    30us    30us    30us    30us    30us
    no answer    230us   230us   230us   230us   230us   230us   230us   230us
                response: since due; service: on the wire; send lag: sent late; no
                answer: until given up

    success     0.0 % answered with 200 to 399
    answers     none: 20
    bodies      0 B received, 0 B per request, 0 B/s; 19 B sent
    failed      20 (connection refused: 20)
    errors      connection refused
    per second  ██  10 to 10
    generator   0.12 cores on average, 0.50 at most
                0 connections, 3 requests under way at most

    valid, and no request succeeded
    ");
    insta::assert_snapshot!(fold("vegeta", &nothing()), @"
    Requests      [total, rate, throughput]         0, 0.00, 0.00
    Duration      [total, attack, wait]             0s, 0s, 0s
    Latencies     [min, mean, 50, 90, 95, 99, max]  0s, 0s, 0s, 0s, 0s, 0s, 0s
    Bytes In      [total, mean]                     0, 0.00
    Bytes Out     [total, mean]                     0, 0.00
    Success       [ratio]                           0.00%
    Status Codes  [code:count]                      
    Error Set:
    ");
    insta::assert_snapshot!(fold("vegeta", &only_failures()), @"
    Requests      [total, rate, throughput]         20, 10.53, 0.00
    Duration      [total, attack, wait]             1.9s, 1.9s, 230µs
    Latencies     [min, mean, 50, 90, 95, 99, max]  229.888µs, 230µs, 230.015µs, 230.015µs, 230.015µs, 230.015µs, 230.015µs
    Bytes In      [total, mean]                     0, 0.00
    Bytes Out     [total, mean]                     19, 0.95
    Success       [ratio]                           0.00%
    Status Codes  [code:count]                      0:20  
    Error Set:
    connection refused
    ");
    insta::assert_snapshot!(fold("json", &nothing()), @r#"
    {"latencies":{"total":0,"mean":0,"50th":0,"90th":0,"95th":0,"99th":0,"max":0,"min":0},"bytes_in":{"total":0,"mean":0},"bytes_out":{"total":0,"mean":0},"earliest":"0001-01-01T00:00:00Z","latest":"0001-01-01T00:00:00Z","end":"0001-01-01T00:00:00Z","duration":0,"wait":0,"requests":0,"rate":0,"throughput":0,"success":0,"status_codes":{},"errors":[],"stockade":{"requests":0,"failed":0,"achieved_rate_per_s":0,"status_codes":{},"failures":{},"retries":0,"resent":0,"bytes_in":{"total":0},"wire_bytes_in":{"total":0},"rss_mib":{"load":{"max":3,"last":2}},"cpu":{"load":{"mean":0.125,"max":0.5}},"schema":"stockade.load/1","id":"run-1","schedule":"10s at 1/d","achieved_rate_per_s_each":[0,0,0,0,0,0,0,0,0,0],"dropped":0,"in_flight_at_end":0,"in_flight_max":0,"connections":0,"generator":{"cpu":0.125,"valid":true,"reasons":[]}}}
    "#);
    insta::assert_snapshot!(fold("vegeta-hist", &nothing()), @"
    Bucket    #  %  Histogram
    ");
    insta::assert_snapshot!(fold("hgrm", &nothing()), @"
           Value     Percentile TotalCount 1/(1-Percentile)

    #[Mean    =        0.000, StdDeviation   =        0.000]
    #[Max     =        0.000, Total count    =            0]
    #[Buckets =            1, SubBuckets     =         2048]
    ");
    insta::assert_snapshot!(fold("siege", &only_failures()).replace('\t', "~"), @"
    Lifting the server siege...
    Transactions:~~           0 hits
    Availability:~~        0.00 %
    Elapsed time:~~        1.90 secs
    Data transferred:~        0.00 MB
    Response time:~~        0.00 secs
    Transaction rate:~        0.00 trans/sec
    Throughput:~~        0.00 MB/sec
    Concurrency:~~        0.00
    Successful transactions:           0
    Failed transactions:~          20
    Longest transaction:~        0.00
    Shortest transaction:~        0.00
    ");
}

#[test]
fn formats_have_unique_names_and_descriptions() {
    for found in &FORMATS {
        assert_eq!(FORMATS.named(found.name).unwrap().summary, found.summary);
        assert!(!found.summary.is_empty() && !found.summary.contains('\n'), "{}", found.name);
    }
    assert!(FORMATS.named("xml").is_err());
}
