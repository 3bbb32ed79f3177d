//! Formats that the caller did not name.

use stockade_logs::{FORMATS, Format, LogReader};

fn guessed(name: &str, text: impl AsRef<[u8]>) -> String {
    match LogReader::from_reader(name, text.as_ref(), None) {
        Ok(reader) => reader.format().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn names_tell_the_format() {
    for (name, format) in [
        ("traces/w96.oracleGeneral.bin", "oracle-general"),
        ("msr.OracleGeneral.zst", "oracle-general"),
        ("page.har", "har"),
        ("page.har.gz", "har"),
        ("cpp.lirs", "lirs"),
        ("P3.arc.zst", "arc"),
    ] {
        assert_eq!(guessed(name, "x"), format, "{name}");
    }
}

#[test]
fn first_lines_tell_the_format() {
    let common = "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n";
    let record = |seconds: u8| {
        let mut record = [0; 24];
        (record[0], record[4], record[16]) = (seconds, 7, 9);
        record
    };
    for (text, format) in [
        ("".as_bytes(), "clf"),
        (common.as_bytes(), "clf"),
        // Its beginning was cut off, as `tail -c` does.
        ([&common[20..], &common.repeat(9)].concat().as_bytes(), "clf"),
        (b"\xef\xbb\xbf{\"ts\":1}", "json"),
        (b"{\"log\":\"GET /\",\"stream\":\"stdout\"}", "json"),
        (b"{\"log\":\"user:1\\n\",\"stream\":\"stdout\",\"time\":\"2015-05-17T10:05:03Z\"}", "keys"),
        (b"\n {\n \"log\" : {\"entries\":[]}}", "har"),
        (b"0,nz:u:ee,22,304,12,get,0\n0,nz:u:ef,22,304,12,get,0\n", "twitter"),
        (b"key,op,size,op_count,key_size\n1,GET,9,2,10\n", "meta"),
        (b"op_time,key,key_size,op,op_count,size\n", "meta"),
        (b"42 3 0 1\n45 1 0 2\n", "arc"),
        (b"42\n*\n45\n", "lirs"),
        (b"time,key,size\n1,a,2\n", "csv:time=time,key=key,size=size"),
        (b"timestamp;obj_id;obj_size\n1;a;2\n", "csv:time=timestamp,key=obj_id,size=obj_size"),
        (b"user:1\nuser:2\n", "keys"),
        (&[record(1), record(1), record(2)].concat(), "oracle-general"),
    ] {
        assert_eq!(guessed("log", text), format, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn other_bytes_are_refused() {
    let names = FORMATS.parsed_names().collect::<Vec<_>>().join(", ");
    for (text, reason) in [
        (&b"\x7fELF\0\0"[..], "it is binary"),
        (b"the quick brown fox\n", "its first lines are not in a known format"),
        (b"\n\n", "its first lines are blank"),
        (b"\x01\x02\n", "its first lines are not in a known format"),
    ] {
        let message = format!(
            "log: its format cannot be told, since {reason}: name it, as one of {names}. For a log of nginx with a format of its own, PATTERN is \
             its log_format, such as '$remote_addr [$time_local] \"$request\" $status $body_bytes_sent'"
        );
        assert_eq!(guessed("log", text), message);
    }
}

#[test]
fn every_name_is_a_format() {
    for format in &FORMATS {
        let text = match format.name {
            "csv:COLUMNS" => "csv:key=0",
            "PATTERN" => "%r",
            name => name,
        };
        let parsed: Format = text.parse().unwrap();
        assert_eq!(parsed.to_string().parse(), Ok(parsed), "{text}");
    }
    assert_eq!(
        "oracle".parse::<Format>().unwrap_err().to_string().split(':').next(),
        Some("unknown format `oracle`")
    );
}
