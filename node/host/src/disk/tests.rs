//! The disk on a real file system, alone and under a log.

use super::*;
use norn_model::record::Record;
use norn_storage::{Identity, Log, LogConfig};
use norn_wire::NodeId;
use std::io::Write;
use std::time::{Duration, Instant};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn files_are_written_read_cut_renamed_and_removed() {
    let directory = directory();
    let mut disk = FileDisk::open(&directory.path().join("new/data")).expect("created");
    assert_eq!(disk.list().expect("listed"), Vec::<String>::new());
    disk.write("b", 0, b"hello").expect("written");
    disk.write("a", 0, b"other").expect("written");
    disk.write("b", 5, b" there").expect("written");
    disk.sync("b").expect("synced");
    disk.sync("a").expect("synced");
    disk.sync_directory().expect("synced");
    assert_eq!(disk.list().expect("listed"), ["a", "b"]);
    assert_eq!(disk.length("b").expect("there"), 11);
    for file in ["b", "a"] {
        // Once through the open file, once through a new handle.
        disk.write(file, 0, b"").expect("opened");
        assert_eq!(disk.read("b", 6, 3).expect("read"), b"the");
        assert_eq!(disk.read("b", 9, usize::MAX).expect("read"), b"re");
        assert_eq!(disk.read("b", 99, 9).expect("read"), b"");
    }
    disk.truncate("b", 5).expect("cut");
    disk.write("b", 5, b"!").expect("written");
    assert_eq!(disk.read("b", 0, 100).expect("read"), b"hello!");
    disk.rename("b", "a").expect("renamed");
    disk.write("a", 6, b"?").expect("written");
    assert_eq!(disk.read("a", 0, 100).expect("read"), b"hello!?");
    disk.write("a", 9, b"end").expect("written");
    disk.write("a", 1, b"E").expect("written");
    assert_eq!(disk.read("a", 0, 100).expect("read"), b"hEllo!?\0\0end");
    disk.remove("a").expect("removed");
    assert_eq!(disk.list().expect("listed"), Vec::<String>::new());
    disk.write("a", 0, b"anew").expect("written");
    assert_eq!(disk.read("a", 0, 100).expect("read"), b"anew");
}

/// Goal: a hidden file, such as a network file system makes of one that was removed while it was open, does not end the node.
#[test]
fn a_hidden_file_is_none_of_the_disk() {
    let directory = directory();
    let mut disk = FileDisk::open(directory.path()).expect("opened");
    fs::write(directory.path().join(".nfs0042"), "old").expect("written");
    disk.limit(Some(100));
    assert_eq!((disk.list().expect("listed"), disk.space().expect("known")), (vec![], 100));
}

/// Goal: a write's check needs no look at the disk while much is free, and one for what is close to the free space. Method: a file
/// that another process puts into a limited directory is seen by a fresh look alone.
#[test]
fn recent_space_is_what_was_found_less_what_was_written() {
    let directory = directory();
    let mut disk = FileDisk::open(directory.path()).expect("opened");
    let bytes_max = recent_space::MARGIN_BYTES + 100_000;
    disk.limit(Some(bytes_max));
    assert_eq!(disk.space().expect("known"), bytes_max, "this test needs more than 1 GiB of free space");
    fs::write(directory.path().join("b"), [0; 70]).expect("written");
    disk.write("a", 100, b"hello").expect("written");
    disk.write("a", 100, b"hello").expect("written");
    // The hole counts, and what is written in place of other bytes counts, too: the figure is never too large.
    assert_eq!(disk.recent_space(1_000).expect("known"), bytes_max - 110);
    assert_eq!(disk.recent_space(100_000).expect("known"), bytes_max - 175, "looked up");
    disk.remove("a").expect("removed");
    assert_eq!(disk.recent_space(1_000).expect("known"), bytes_max - 70, "looked up");
    fs::write(directory.path().join("c"), [0; 30]).expect("written");
    disk.limit(Some(bytes_max - 1));
    assert_eq!(disk.recent_space(1_000).expect("known"), bytes_max - 101, "looked up");
    assert!(disk.is_bounded());
}

#[test]
fn a_missing_file_is_an_error_and_is_not_created() {
    let directory = directory();
    let mut disk = FileDisk::open(directory.path()).expect("opened");
    let errors = [
        disk.length("x").expect_err("missing"),
        disk.read("x", 0, 1).expect_err("missing"),
        disk.truncate("x", 0).expect_err("missing"),
        disk.sync("x").expect_err("missing"),
        disk.remove("x").expect_err("missing"),
        disk.rename("x", "y").expect_err("missing"),
    ];
    for error in errors {
        assert_eq!((error.file.as_str(), error.full), ("x", false));
    }
    assert_eq!(disk.list().expect("listed"), Vec::<String>::new());
}

// E3
#[test]
fn a_second_holder_is_told_who_is_first() {
    let directory = directory();
    let first = FileDisk::open(directory.path()).expect("opened");
    let error = FileDisk::open(directory.path()).expect_err("held");
    assert!(matches!(error, FileDiskError::Held { .. }));
    assert!(error.to_string().contains(&format!("held by process {}", std::process::id())), "{error}");
    drop(first);
    FileDisk::open(directory.path()).expect("free again");
}

#[test]
fn what_a_dead_process_left_in_the_lock_does_not_matter() {
    let directory = directory();
    fs::write(directory.path().join(LOCK), "4194304999 and more").expect("written");
    let held = FileDisk::open(directory.path()).expect("opened");
    let text = fs::read_to_string(directory.path().join(LOCK)).expect("read");
    assert_eq!(text, format!("{}\n", std::process::id()));
    drop(held);
}

#[test]
fn a_path_that_is_no_directory_is_refused() {
    let directory = directory();
    let file = directory.path().join("file");
    fs::write(&file, "").expect("written");
    for path in [file.clone(), file.join("below")] {
        let error = FileDisk::open(&path).expect_err("no directory");
        assert!(error.to_string().contains("cannot be used: create the directory: "), "{error}");
        assert!(error.to_string().ends_with("file is a file"), "{error}");
    }
}

/// Goal: a mistyped directory does not become a node's data directory, and files that an operator keeps beside the log, or the
/// program's output there, do not prevent a first start.
#[test]
fn a_directory_of_another_program_is_refused_and_an_own_one_is_not() {
    let directory = directory();
    let place = directory.path();
    let write = |name: &str, text: &str| fs::write(place.join(name), text).expect("written");
    refuse_foreign(&place.join("none")).expect("it is not there");
    fs::create_dir(place.join("lost+found")).expect("created");
    write(LOCK, "");
    refuse_foreign(place).expect("it has no file of others");
    for name in ["ca.crt", "node-a.key", "norn.toml", "node.log", "archive.jsonl"] {
        write(name, "text");
    }
    // As a shell creates the file for a program's output.
    write("out", "");
    refuse_foreign(place).expect("these are the operator's");
    write("PG_VERSION", "17");
    let error = refuse_foreign(place).expect_err("foreign");
    assert!(error.to_string().contains("has files of another program (such as \"PG_VERSION\")"), "{error}");
    write("0000000000000001.log", "");
    refuse_foreign(place).expect("it has a log");
}

#[test]
#[should_panic(expected = "no plain file name")]
fn names_with_separators_are_a_mistake() {
    let directory = directory();
    let disk = FileDisk::open(directory.path()).expect("opened");
    let _ = disk.length("../x");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_apart() {
    let directory = directory();
    let mut disk = FileDisk::open(directory.path()).expect("opened");
    std::os::unix::fs::symlink("/dev/full", directory.path().join("x")).expect("linked");
    let error = disk.write("x", 0, b"1").expect_err("full");
    assert!(error.full, "{error}");
}

/// Goal: only a fault that the disk reports for a place is damage; a shortage in the process is not.
#[test]
fn what_is_lost_is_told_apart_from_what_cannot_be_read_just_now() {
    let lost = |errno: Errno| failure("read", "x", &io::Error::from(errno)).lost;
    assert!([Errno::IO, Errno::UCLEAN, Errno::NODATA, Errno::NOENT].into_iter().all(lost));
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ACCESS, Errno::PERM, Errno::INTR, Errno::TIMEDOUT];
    assert!(!lacks.into_iter().any(lost));
    let directory = directory();
    let mut disk = FileDisk::open(directory.path()).expect("opened");
    assert!(disk.reader().read("x", 0, 1).expect_err("missing").lost);
    disk.write("x", 0, &[7; 200_000]).expect("written");
    disk.sync("x").expect("synced");
    for (offset, length) in [(0, 0), (1, 1), (65_536, 65_536), (199_999, 1 << 20)] {
        disk.forget("x", offset, length);
    }
    assert_eq!(disk.read("x", 0, 200_000).expect("there"), [7; 200_000]);
}

fn start(directory: &Path, draw: u64) -> (Log<FileDisk>, Vec<Record>) {
    let disk = FileDisk::open(directory).expect("opened");
    let config = LogConfig { segment_bytes: 300, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };
    let identity = || Identity { node: NodeId(u128::from(draw)), incarnation: draw };
    let mut log = Log::open(disk, config, identity).expect("a log");
    let mut records = Vec::new();
    let visit = |replay: norn_storage::Replay| {
        records.extend(replay.whole()?);
        Ok(())
    };
    log.replay(visit).expect("whole");
    (log, records)
}

#[test]
fn a_log_lives_on_it() {
    let directory = directory();
    let mut expected = vec![Record::Identity { node: NodeId(1), incarnation: 1 }];
    for count in 1..30 {
        let (mut log, records) = start(directory.path(), count);
        assert_eq!(records, expected);
        let record = Record::Boot { count };
        log.append(std::slice::from_ref(&record)).expect("written");
        log.sync().expect("synced");
        expected.push(record);
        let last = format!("{:016}.log", log.stats().segment);
        drop(log);
        // Half a frame, as if the process had been killed during a write.
        let mut file = OpenOptions::new().append(true).open(directory.path().join(last)).expect("there");
        file.write_all(&[0, 0, 0, 9, 1, 2, 3]).expect("written");
    }
    assert!(FileDisk::open(directory.path()).expect("free").list().expect("listed").len() > 2);
}

/// Goal: inspecting a directory names the process that holds it or held it last, and does not keep it locked.
#[test]
fn the_holder_of_a_directory_is_named_while_it_holds_and_afterwards() {
    let directory = directory();
    assert_eq!(holder_of(directory.path()).expect("looked"), None);
    assert_eq!(holder_of(&directory.path().join("absent")).expect("looked"), None);
    let process = Some(std::process::id());
    let disk = FileDisk::open(directory.path()).expect("opened");
    assert_eq!(holder_of(directory.path()).expect("looked"), Some(Holder { process, holds: true }));
    drop(disk);
    assert_eq!(holder_of(directory.path()).expect("looked"), Some(Holder { process, holds: false }));
    FileDisk::open(directory.path()).expect("it is free");
}

/// Goal: the room of a large file is freed piece by piece, and not where a name is removed. Method: a handle on the file sees it shrink.
#[test]
fn a_large_file_that_is_retired_shrinks_behind_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut disk = FileDisk::open(directory.path()).expect("it is free");
    if free_bytes(&disk.handle).expect("it says so") < 2 * MARGIN_BYTES {
        return; // Its room may be wanted at once, and removing it frees it.
    }
    disk.write("a", 0, b"old").expect("room");
    let held = File::options().write(true).open(directory.path().join("a")).expect("there");
    held.set_len(3 * LARGE_BYTES).expect("sparse");
    disk.retire("a").expect("removed");
    let deadline = Instant::now() + Duration::from_secs(30);
    // The last piece goes with the last handle.
    while held.metadata().expect("it is open").len() > LARGE_BYTES {
        assert!(Instant::now() < deadline, "nothing frees it");
        std::thread::yield_now();
    }
}

/// Goal: where a retired file is freed late, a reserve can be written all the same.
#[test]
fn the_margin_is_at_least_the_largest_reserve() {
    let reserve = norn_model::config::table::find("reserve_bytes").and_then(|setting| setting.number());
    assert!(reserve.expect("it is a number").own_bounds().high <= MARGIN_BYTES);
}

/// Goal: a large file is gone by name at once, though its room is freed elsewhere, and another one may have its name.
#[test]
fn a_large_file_that_is_retired_is_gone_by_name_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut disk = FileDisk::open(directory.path()).expect("it is free");
    for round in 0..3 {
        disk.write("a", 0, &[round]).expect("room");
        File::options()
            .write(true)
            .open(directory.path().join("a"))
            .expect("there")
            .set_len(3 * LARGE_BYTES)
            .expect("sparse");
        disk.retire("a").expect("removed");
        assert!(disk.list().expect("listed").is_empty());
        disk.write("a", 0, b"new").expect("room");
        assert_eq!(disk.read("a", 0, 3).expect("there"), b"new");
        assert_eq!(disk.length("a").expect("there"), 3);
        disk.remove("a").expect("removed");
    }
}
