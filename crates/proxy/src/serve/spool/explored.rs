//! One receiver and several readers of a body, in every schedule that shuttle finds.

use std::future::poll_fn;

use shuttle::{future::block_on, thread};

use super::*;
use stockade_http::locks::explored::explore;

/// More than a window holds two of them.
const CHUNK_BYTES: usize = RETAINED_BYTES_MIN;

/// The chunk `number` of the body.
fn chunk(number: u8) -> Bytes {
    vec![number; CHUNK_BYTES].into()
}

/// Reads to the end. Returns the chunks' numbers, and whether the body is whole.
fn read(mut reader: SpoolReader) -> (Vec<u8>, bool) {
    let mut numbers = Vec::new();
    loop {
        match block_on(poll_fn(|cx| reader.poll_next(cx))) {
            Some(Ok(chunk)) => numbers.push(chunk[0]),
            Some(Err(_)) => return (numbers, false),
            None => return (numbers, true),
        }
    }
}

/// As the receiver does: after each chunk it waits for room if nothing is retained. False: the spool has no readers.
fn send(writer: &SpoolWriter, numbers: impl IntoIterator<Item = u8>, retains: bool) -> bool {
    numbers.into_iter().all(|number| {
        writer.push(chunk(number));
        retains || block_on(writer.wait_for_room())
    })
}

#[test]
fn readers_of_a_retained_body_get_all_of_it_whenever_they_join() {
    explore(|| {
        let (spool, writer) = Spool::new(None);
        let receiving = thread::spawn(move || {
            assert!(send(&writer, 0..3, true));
            writer.complete();
        });
        let readers = [(); 3].map(|()| {
            let spool = Arc::clone(&spool);
            thread::spawn(move || read(spool.reader().expect("all is retained")))
        });
        for reader in readers {
            assert_eq!(reader.join().unwrap(), (vec![0, 1, 2], true));
        }
        receiving.join().unwrap();
    });
}

#[test]
fn readers_of_a_body_that_is_not_retained_get_all_of_it_or_cannot_join() {
    explore(|| {
        let (spool, writer) = Spool::new(None);
        let staying = spool.reader().expect("nothing is discarded");
        let mut leaving = spool.reader().expect("nothing is discarded");
        let receiving = thread::spawn(move || {
            assert!(send(&writer, 0..1, true));
            writer.stop_retaining();
            assert!(send(&writer, 1..6, false), "a reader is there");
            let most = writer.0.state.lock().bytes;
            assert!(most < WINDOW_BYTES_MAX, "{most} bytes are unread after a wait for room");
            writer.complete();
        });
        let staying = thread::spawn(move || read(staying));
        let leaving = thread::spawn(move || {
            let first = block_on(poll_fn(|cx| leaving.poll_next(cx)));
            assert!(matches!(first, Some(Ok(_))));
        });
        let late = thread::spawn(move || spool.reader().map(read));
        let whole = ((0..6).collect(), true);
        assert_eq!(staying.join().unwrap(), whole);
        leaving.join().unwrap();
        assert!(late.join().unwrap().is_none_or(|read| read == whole));
        receiving.join().unwrap();
    });
}

#[test]
fn receiver_stops_when_nobody_reads_and_readers_stop_when_it_is_gone() {
    explore(|| {
        let (spool, writer) = Spool::new(None);
        let reader = spool.reader().expect("nothing is discarded");
        let receiving = thread::spawn(move || {
            writer.stop_retaining();
            // More than fits: it stops only if it notices that no reader is left.
            let is_read = send(&writer, 0..4, false);
            drop(writer);
            is_read
        });
        let leaving = thread::spawn(move || drop(reader));
        let closing = thread::spawn(move || {
            let late = spool.reader();
            drop(spool);
            late.map(|mut late| {
                let first = block_on(poll_fn(|cx| late.poll_next(cx)));
                matches!(first, Some(Ok(chunk)) if chunk[0] == 0)
            })
        });
        leaving.join().unwrap();
        assert_ne!(closing.join().unwrap(), Some(false), "a reader that joins starts at the first byte");
        let is_read = receiving.join().unwrap();
        assert!(!is_read, "the fourth chunk has no readers");
    });
}

#[test]
fn readers_of_a_receiver_that_is_lost_get_an_error_after_its_last_chunk() {
    explore(|| {
        let (spool, writer) = Spool::new(None);
        let reader = spool.reader().expect("nothing is discarded");
        let receiving = thread::spawn(move || {
            send(&writer, 0..2, true);
        });
        let reading = thread::spawn(move || read(reader));
        let late = thread::spawn(move || read(spool.reader().expect("all is retained")));
        assert_eq!(reading.join().unwrap(), (vec![0, 1], false));
        assert_eq!(late.join().unwrap(), (vec![0, 1], false));
        receiving.join().unwrap();
    });
}
