//! Traces of caches, and tables.

use super::{problem, read, try_read};

fn record(seconds: u32, object: u64, bytes: u32, next: i64) -> Vec<u8> {
    [&seconds.to_le_bytes()[..], &object.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()].concat()
}

#[test]
fn oracle_general_records_are_24_bytes() {
    let mut trace = [record(1, u64::MAX, 17, 3), record(1, 258, 0, -1), record(0, 1, u32::MAX, -1)].concat();
    assert_eq!(&trace[24..36], [1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    let requests = ["@1 read #18446744073709551615 17B", "@1 read #258 0B", "@0 read #1 4294967295B"];
    let (found, summary) = try_read(&trace, Some("oracle-general")).unwrap();
    assert_eq!(found, requests);
    assert_eq!((summary.lines, summary.time_reversals, summary.bytes_read), (3, 1, 72));
    // A record that was cut off.
    trace.extend(record(1, 2, 3, 4).repeat(9));
    let (found, summary) = try_read(&trace[..trace.len() - 1], Some("oracle-general")).unwrap();
    assert_eq!((found.len(), summary.lines, summary.bad_lines), (11, 12, 1));
    assert_eq!(summary.first_bad[0].to_string(), "log:12: the record ends after 23 of 24 bytes");
    assert_eq!(problem(b"\0", "oracle-general"), "the record ends after 1 of 24 bytes");
}

#[test]
fn twitter_lines_are_read() {
    for (line, request) in [
        ("0,nz:u:eeW511W3dcH3de3d15ec,22,304,12,get,0", "@0 read nz:u:eeW511W3dcH3de3d15ec 304B"),
        ("7,a,b,1,304,12,gets,0", "@7 read a,b 304B"),
        ("7,k,1,0,12,get,0", "@7 read k"),
        ("7,k,1,0,12,set,60", "@7 write k 0B ttl=60s"),
        ("7,k,1,9,12,incr,0\r", "@7 write k 9B"),
        ("7,k,1,0,12,delete,0", "@7 delete k 0B"),
    ] {
        assert_eq!(read(line, "twitter"), [request], "{line}");
    }
    let form = "the line is not `timestamp,key,key size,value size,client,operation,TTL`";
    for (line, message) in [
        ("7,k,1,9,12,get", form),
        ("7", form),
        ("7,k,1,9,12,fetch,0", "the operation is not one of Twitter's"),
        ("x,k,1,9,12,get,0", "the timestamp is not a number of seconds"),
        ("7,k,1,-9,12,get,0", "the size is not a number of bytes"),
        ("7,k,1,9,12,get,x", "the TTL is not a number of seconds"),
    ] {
        assert_eq!(problem(line, "twitter"), message, "{line}");
    }
}

#[test]
fn meta_columns_are_those_of_the_header() {
    let trace =
        "key,op,size,op_count,key_size\n1,GET,9,2,10\n2,GET_LEASE,0,1,10\n3,SET,5,1,10\n4,DELETE,0,1,10\n";
    let requests = ["read 1 9B x2", "read 2", "write 3 5B", "delete 4 0B"];
    assert_eq!(read(trace, "meta"), requests);
    // Without a header: parts of a trace.
    assert_eq!(read(trace.split_once('\n').unwrap().1, "meta"), requests);
    let trace =
        "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n8,k,1,GET,1,7,1,0\n9,k,1,SET,1,7,0,60\n";
    assert_eq!(read(trace, "meta"), ["@8 read k 7B", "@9 write k 7B ttl=60s"]);
    for (line, message) in [
        ("1,GET,9,0,10", "`op_count` is not a number from 1 to 1,000,000"),
        ("1,GET,9,1000001,10", "`op_count` is not a number from 1 to 1,000,000"),
        ("1,FETCH,9,1,10", "the operation is not one of Meta's"),
        ("1", "the line has no key and operation: Meta's traces have `key,op,size,op_count`"),
        ("1,GET,-9,1,10", "the size is not a number of bytes"),
    ] {
        assert_eq!(problem(line, "meta"), message, "{line}");
    }
}

#[test]
fn keys_are_any_text() {
    assert_eq!(read("a b\n\n  c\r\n{\n-\n", "keys"), ["read a b", "read   c", "read {", "read -"]);
    assert_eq!(read(b"\xff", "keys"), ["read \u{fffd}"]);
}

#[test]
fn block_traces_are_read() {
    assert_eq!(read("1\n 22 \n*\n3\r\n", "lirs"), ["read #1", "read #22", "read #3"]);
    assert_eq!(problem("-1", "lirs"), "the line is not a block number");
    assert_eq!(read("42 3 0 1\n7\t1 0 2\n", "arc"), ["read #42", "read #43", "read #44", "read #7"]);
    let four = "the line is not four numbers: first block, blocks, ignored, request";
    let range = "the number of blocks is not between 1 and 1,000,000";
    for (line, message) in [
        ("42 3 0", four),
        ("42 3 0 1 9", four),
        ("a 3 0 1", four),
        ("42 0 0 1", range),
        ("42 1000001 0 1", range),
        ("18446744073709551615 1 0 1", range),
    ] {
        assert_eq!(problem(line, "arc"), message, "{line}");
    }
}

#[test]
fn table_columns_are_named_by_position_or_header() {
    for (format, table, requests) in [
        ("csv:time=0,key=1,size=2", "1.5,a,9\n2,b,-\n", &["@1.500000000 read a 9B", "@2 read b"][..]),
        // A header, since its numeric columns hold other text.
        ("csv:time=0,key=1,size=2", "when,what,bytes\n1,a,9\n", &["@1 read a 9B"]),
        ("csv:key=id,operation=op,ttl=ttl", "ttl;op;id\n60;set;a\n0;GET;b\n", &["write a ttl=60s", "read b"]),
        ("csv:key=1,time_ms=0", "1500\ta,b\n", &["@1.500000000 read a,b"]),
        ("csv:key=0", "a\nb\n", &["read a", "read b"]),
        (
            "csv:key=0,size=1",
            "\"a,b\",1\n\"c\"\"d\"\"\",2\n\"\",3\n",
            &["read a,b 1B", "read c\"d\" 2B", "read  3B"],
        ),
        (
            "csv:url=0,method=1,host=2,status=3,service_time=4,time=5",
            "/a,POST,h,201,0.5,2015-05-17T10:05:03Z\n/b,,-,,,17/May/2015:10:05:03 +0000\n",
            &["@1431857103 write POST|h|/a 201 took=500ms", "@1431857103 read GET||/b"],
        ),
        ("csv:key=0,time_us=1,size=1", "a,7\n", &["@0.000007000 read a 7B"]),
    ] {
        assert_eq!(read(table, format), requests, "{format}");
    }
    for (format, table, message) in [
        ("csv:key=1", "a\nb\nc", "the line has 1 columns, and column 1 (from 0) is needed"),
        ("csv:key=idd", "id,size\n", "the header has no column `idd`: did you mean `id`?"),
        ("csv:key=0,size=1", "k,n\na,x\n", "the size is not a number of bytes"),
        ("csv:key=0,time=1", "k,n\na,x\n", "the time is neither a number nor a date"),
        ("csv:key=0,operation=1", "k,n\na,x\n", "the operation is not get, set or delete"),
        ("csv:key=0", "k\n\"a\n", "a quotation mark is not closed"),
    ] {
        assert_eq!(problem(table, format), message, "{format}");
    }
}

#[test]
fn wrong_columns_are_refused() {
    for (format, message) in [
        ("csv", "there is no column `key` or `url`: write for example `csv:time=0,key=1,size=2`"),
        ("csv:time=0", "there is no column `key` or `url`: write for example `csv:time=0,key=1,size=2`"),
        ("csv:key", "`key` is not a column: write for example `key=1` or `key=id`"),
        ("csv:key=", "`key=` is not a column: write for example `key=1` or `key=id`"),
        ("csv:key=1000", "`1000` is not a position below 1,000"),
        ("csv:key=0,key=1", "the column `key` is there twice"),
        ("csv:key=0,time=1,time_ms=2", "the column `time_ms` is there twice"),
        ("csv:kye=0", "`kye` is not a column: did you mean `key`?"),
    ] {
        assert_eq!(format.parse::<stockade_logs::Format>().unwrap_err().to_string(), message, "{format}");
    }
}
