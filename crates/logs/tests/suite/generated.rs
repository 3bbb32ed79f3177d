//! Generated requests, written in each format and read back.

use std::fmt::Write;

use proptest::prelude::*;

use super::{compressed, read, try_read};

/// A request: its time in milliseconds since 1970, its key, its size, and whether it is a write.
type Made = (u64, u32, u32, bool);

fn made() -> impl Strategy<Value = Vec<Made>> {
    let time = 1_431_857_100_000..1_431_857_260_000_u64;
    prop::collection::vec((time, 0..100_u32, 1..1_000_000_u32, any::<bool>()), 1..40)
}

/// Writes a line for each request.
fn lines(made: &[Made], line: impl Fn(&mut String, &Made)) -> String {
    let mut text = String::new();
    for request in made {
        line(&mut text, request);
        text.push('\n');
    }
    text
}

fn at(millis: u64) -> String {
    let nanos = format!("@{}.{:09}", millis / 1_000, millis % 1_000 * 1_000_000);
    nanos.trim_end_matches(".000000000").to_owned()
}

fn date(millis: u64, format: &str) -> String {
    jiff::Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap().strftime(format).to_string()
}

fn method(is_write: bool) -> &'static str {
    if is_write { "POST" } else { "GET" }
}

fn operation(is_write: bool) -> &'static str {
    if is_write { "write" } else { "read" }
}

proptest! {
    #[test]
    fn access_logs_are_read_as_written(made in made()) {
        let whole: Vec<Made> = made.iter().map(|(at, key, size, is_write)| (at / 1_000 * 1_000, *key, *size, *is_write)).collect();
        let expected = |made: &[Made]| -> Vec<String> {
            let request = |(time, key, size, is_write): &Made| {
                let (at, operation, method) = (at(*time), operation(*is_write), method(*is_write));
                format!("{at} {operation} {method}||/{key}?q 200 {size}B")
            };
            made.iter().map(request).collect()
        };
        let common = lines(&whole, |text, (time, key, size, is_write)| {
            let time = date(*time, "%d/%b/%Y:%H:%M:%S +0000");
            write!(text, "h - - [{time}] \"{} /{key}?q HTTP/1.1\" 200 {size} \"-\" \"x\"", method(*is_write)).unwrap();
        });
        prop_assert_eq!(read(&common, "combined"), expected(&whole));
        prop_assert_eq!(read(&common, "%h %l %u %t \"%r\" %s %b \"%{Referer}i\" \"%{User-agent}i\""), expected(&whole));
        prop_assert_eq!(read(compressed::gzip(common.as_bytes()), "clf"), expected(&whole));
        prop_assert_eq!(read(compressed::zstd(common.as_bytes()), "clf"), expected(&whole));

        let json = lines(&made, |text, (time, key, size, is_write)| {
            let time = date(*time, "%Y-%m-%dT%H:%M:%S%.fZ");
            write!(text, r#"{{"time":"{time}","method":"{}","url":"/{key}?q","status":200,"size":{size}}}"#, method(*is_write)).unwrap();
        });
        prop_assert_eq!(read(json, "json"), expected(&made));

        let nginx = lines(&made, |text, (time, key, size, is_write)| {
            write!(text, "{}.{:03} {} /{key}?q 200 {size}", time / 1_000, time % 1_000, method(*is_write)).unwrap();
        });
        prop_assert_eq!(read(nginx, "$msec $request_method $request_uri $status $body_bytes_sent"), expected(&made));

        let entries: Vec<_> = made.iter().map(|(time, key, size, is_write)| {
            let time = date(*time, "%Y-%m-%dT%H:%M:%S%.fZ");
            let request = format!(r#"{{"method":"{}","url":"/{key}?q"}}"#, method(*is_write));
            format!(r#"{{"startedDateTime":"{time}","request":{request},"response":{{"status":200,"bodySize":{size}}}}}"#)
        }).collect();
        let har = format!(r#"{{"log":{{"entries":[{}]}}}}"#, entries.join(","));
        prop_assert_eq!(read(har, "har"), expected(&made));
    }

    #[test]
    fn traces_are_read_as_written(made in made()) {
        let expected = |request: fn(&Made) -> String| made.iter().map(request).collect::<Vec<_>>();

        let twitter = lines(&made, |text, (time, key, size, is_write)| {
            write!(text, "{},k{key},3,{size},1,{},0", time / 1_000, if *is_write { "set" } else { "get" }).unwrap();
        });
        let requests = expected(|(time, key, size, is_write)| format!("{} {} k{key} {size}B", at(time / 1_000 * 1_000), operation(*is_write)));
        prop_assert_eq!(read(twitter, "twitter"), requests);

        let meta = lines(&made, |text, (_, key, size, is_write)| {
            write!(text, "{key},{},{size},1,4", if *is_write { "SET" } else { "GET" }).unwrap();
        });
        let requests = expected(|(_, key, size, is_write)| format!("{} {key} {size}B", operation(*is_write)));
        prop_assert_eq!(read(format!("key,op,size,op_count,key_size\n{meta}"), "meta"), requests);

        let record = |(time, key, size, _): &Made| {
            let seconds = u32::try_from(time / 1_000).unwrap();
            [&seconds.to_le_bytes()[..], &u64::from(*key).to_le_bytes(), &size.to_le_bytes(), &[0xff; 8]].concat()
        };
        let requests = expected(|(time, key, size, _)| format!("{} read #{key} {size}B", at(time / 1_000 * 1_000)));
        prop_assert_eq!(read(made.iter().flat_map(record).collect::<Vec<_>>(), "oracle-general"), requests);

        let table = lines(&made, |text, (time, key, size, is_write)| {
            write!(text, "{},\"k,{key}\",{time},{size}", if *is_write { "set" } else { "get" }).unwrap();
        });
        let requests = expected(|(time, key, size, is_write)| format!("{} {} k,{key} {size}B", at(*time), operation(*is_write)));
        prop_assert_eq!(read(table, "csv:operation=0,key=1,time_ms=2,size=3"), requests);

        let blocks = lines(&made, |text, (_, key, ..)| write!(text, "{key}").unwrap());
        prop_assert_eq!(read(&blocks, "lirs"), expected(|(_, key, ..)| format!("read #{key}")));
        prop_assert_eq!(read(&blocks, "keys"), expected(|(_, key, ..)| format!("read {key}")));
        let ranges = lines(&made, |text, (_, key, ..)| write!(text, "{key} 2 0 1").unwrap());
        let requests: Vec<_> = made.iter().flat_map(|(_, key, ..)| [format!("read #{key}"), format!("read #{}", key + 1)]).collect();
        prop_assert_eq!(read(ranges, "arc"), requests);
    }

    /// nginx's formats with any text between the variables.
    #[test]
    fn patterns_with_any_text_are_read(
        texts in prop::collection::vec("[ |;\"\\[\\]<>-]{1,3}", 4), key in "/[a-z]{0,8}", status in 100..600_u16, bytes in 0..1_000_u32,
    ) {
        let [first, second, third, last] = &texts[..] else { unreachable!() };
        let pattern = format!("{first}$request_uri{second}$status{third}$body_bytes_sent{last}");
        let line = format!("{first}{key}{second}{status}{third}{bytes}{last}");
        prop_assert_eq!(read(line, &pattern), [format!("read GET||{key} {status} {bytes}B")]);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,80}") {
        for format in ["clf", "har", "oracle-general", "twitter", "meta", "keys", "lirs", "arc", "csv:key=0,time=1", "csv:key=k", "%t %r", "$request_uri-$upstream_response_time "] {
            let _ = (try_read(&bytes, Some(format)), try_read(&text, Some(format)));
        }
        let _ = (try_read(&bytes, None), try_read(&text, None));
        let _ = try_read([&[0x28, 0xb5, 0x2f, 0xfd][..], &bytes].concat(), None);
        let _ = try_read([&[0x1f, 0x8b][..], &bytes].concat(), None);
    }
}
