//! A start on a disk that is full.

use super::*;
use std::fs::{self, File};

const DISK_BYTES: u64 = 8 << 20;
const RESERVE_BYTES: u64 = 1 << 20;
/// Free bytes with which a node starts.
const LEAST_BYTES: u64 = RESERVE_BYTES / 4 + RESERVE_BYTES / 16;

/// Goal: an operator learns at once how much space must be free and where, and finds the directory unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_room_ends_at_once_and_says_what_it_needs() {
    let cluster = Cluster::new();
    let data = cluster.data.path().join("n1");
    fs::create_dir(&data).unwrap();
    let fill = |bytes| File::create(data.join("others.jsonl")).and_then(|file| file.set_len(bytes)).unwrap();
    fill(DISK_BYTES - LEAST_BYTES + 1);
    let (reserve, disk) = (RESERVE_BYTES.to_string(), DISK_BYTES.to_string());
    let more = [("reserve_bytes", reserve.as_str()), ("disk_bytes_max", disk.as_str())];
    let settings = settings(cluster.authority.path(), "n1", &data, &more);
    let error = start(&settings).await.unwrap_err();
    assert!(matches!(&error, StartError::Open(OpenError::NoRoom(..))), "{error}");
    let free = format!("{} bytes are free", LEAST_BYTES - 1);
    let needs = format!("starts with {LEAST_BYTES} and takes new tasks with {}", 3 * RESERVE_BYTES);
    for part in [data.display().to_string(), "`disk_bytes_max`".to_owned(), free, needs] {
        assert!(error.to_string().contains(&part), "{part:?} is not in {error}");
    }
    let mut files: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["lock", "others.jsonl"]);
    fill(0);
    start(&settings).await.unwrap().shutdown().await;
}
