use super::*;

fn body(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + seed * 7 + at / 251).to_le_bytes()[0]).collect()
}

fn stored(file: &Arc<BodyFile>, content: &[u8]) -> Bytes {
    let mut writer = file.allocate(content.len()).expect("the file has room");
    for part in content.chunks(10_000) {
        let appended = writer.append(part).expect("the file takes it");
        assert_eq!(appended, part);
    }
    writer.finish()
}

#[test]
fn extents_have_their_content_and_give_their_pages_back() {
    let file = BodyFile::open(1 << 20).expect("a file");
    let spare_bytes = (LENGTH_MIN / LENGTH_FACTOR / SPARE_DIVISOR) as u64;
    let page = page_size();
    let sizes = [1, page - 1, page, page + 1, 100_000, 10 * page, 1 << 20];
    let bodies: Vec<_> =
        sizes.iter().enumerate().map(|(seed, size)| stored(&file, &body(*size, seed))).collect();
    let pages: usize = sizes.iter().map(|size| size.div_ceil(page)).sum();
    assert_eq!(file.resident_bytes().expect("its size"), (pages * page) as u64);
    for (seed, (size, stored)) in sizes.iter().zip(&bodies).enumerate() {
        assert_eq!(stored, &body(*size, seed), "{size} bytes");
        assert_eq!(file.allocated_bytes(stored), Some(size.next_multiple_of(page)));
        let offset = file.offset_of(&stored[size / 2..]).expect("it is in the file");
        let mut read = vec![0; size - size / 2];
        file.file.read_exact_at(&mut read, offset).expect("the file can be read");
        assert_eq!(read, stored[size / 2..]);
    }
    let last_use = bodies.last().expect("a body").slice(5..6);
    drop(bodies);
    let resident_bytes = || file.resident_bytes().expect("its size");
    assert!(
        (1 << 20..=(1 << 20) + spare_bytes).contains(&resident_bytes()),
        "one byte of the last body is in use"
    );
    drop(last_use);
    assert!(resident_bytes() <= spare_bytes);
}

/// The kernel may be sending the old page.
#[test]
fn pages_are_used_again_unless_the_kernel_was_told_to_send_them() {
    let file = BodyFile::open(0).expect("a file");
    let page = page_size();
    for is_sent in [false, true, false] {
        let old = stored(&file, &body(5 * page, 1));
        let offset = file.offset_of(&old).expect("it is complete");
        if is_sent {
            file.mark_sent(offset + 4 * page as u64, 10);
        }
        drop(old);
        let left = file.resident_bytes().expect("its size");
        assert_eq!(left, if is_sent { 0 } else { 5 * page as u64 });
        let new = stored(&file, &body(5 * page, 2));
        assert_eq!((file.offset_of(&new), new), (Some(offset), Bytes::from(body(5 * page, 2))));
    }
}

#[test]
fn incomplete_body_is_not_sent_from_the_file() {
    let file = BodyFile::open(0).expect("a file");
    let mut writer = file.allocate(100_000).expect("the file has room");
    let part = writer.append(&body(50_000, 0)).expect("the file takes it");
    assert_eq!(file.offset_of(&part), None);
    let whole = writer.finish();
    assert!(file.offset_of(&part).is_some() && file.offset_of(&whole).is_some());
}

#[test]
fn rest_of_an_extent_is_given_back_when_its_body_ends() {
    let file = BodyFile::open(0).expect("a file");
    let mut writer = file.allocate(LENGTH_MIN).expect("all of the file");
    assert!(file.allocate(1).is_none(), "the file is full");
    let part = writer.append(b"a body").expect("the file takes it");
    assert_eq!(writer.room(), LENGTH_MIN - 6);
    let whole = writer.finish();
    assert_eq!((&whole, &part), (&Bytes::from("a body"), &Bytes::from("a body")));
    let rest = file.allocate(LENGTH_MIN - page_size()).expect("the rest");
    drop((rest, whole));
    assert!(file.allocate(LENGTH_MIN).is_none(), "a part is in use");
    file.mark_sent(file.offset_of(&part).expect("it is complete"), 1);
    drop(part);
    assert!(file.allocate(LENGTH_MIN).is_some());
}

#[test]
fn slices_of_other_memory_are_not_in_the_file() {
    let (file, other) = (BodyFile::open(0).expect("a file"), BodyFile::open(0).expect("a file"));
    let foreign = stored(&other, b"a body");
    for slice in [&b"static"[..], &body(100_000, 0), &foreign, &[]] {
        assert_eq!((file.offset_of(slice), file.allocated_bytes(slice)), (None, None));
    }
}

#[test]
fn appending_fails_beyond_the_room_and_without_memory() {
    let file = BodyFile::open(0).expect("a file");
    let mut writer = file.allocate(page_size()).expect("the file has room");
    let kept = writer.append(b"kept").expect("the file takes it");
    assert!(writer.append(&vec![0; page_size()]).is_err());
    file.refuse_writes().expect("it can be sealed");
    assert!(writer.append(b"refused").is_err());
    assert_eq!((writer.finish(), kept), ("kept".into(), "kept".into()));
}

/// A hole in a large page would clear a part that the kernel may be sending.
#[test]
fn with_large_pages_nothing_is_sent_stored_or_given_back() {
    let file = BodyFile::open(0).expect("a file");
    let kept = stored(&file, &body(100_000, 0));
    assert!(file.offset_of(&kept).is_some());
    file.has_large_pages.store(true, Relaxed);
    assert_eq!((file.offset_of(&kept), file.allocate(1).is_none()), (None, true));
    assert_eq!(kept, body(100_000, 0));
    assert!(file.allocated_bytes(&kept).is_some());
    drop(kept);
    assert_eq!(file.resident_bytes().expect("its size"), 100_000_u64.next_multiple_of(page_size() as u64));
}
