//! The write-ahead log on real files: the formats of old data directories, and the output of `norn log` for damaged ones.

use norn_host::disk::FileDisk;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::data_loss::DataLoss;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_storage::{Identity, Log, LogConfig, Replay, Saved, Upkeep};
use norn_wire::request::Spec;
use norn_wire::response::{Genesis, Member};
use norn_wire::{ClaimId, ClusterId, NodeId, PartitionId, QueueName, TaskId};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use tempfile::TempDir;

const IDENTITY: Identity = Identity { node: NodeId(0x0123_4567_89ab), incarnation: 42 };
/// Small, so that there are several segments.
const CONFIG: LogConfig =
    LogConfig { segment_bytes: 320, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };

/// One record of each kind, with the sentinel's bytes in a payload.
fn records() -> Vec<Record> {
    let replica = ReplicaId { node: IDENTITY.node, incarnation: IDENTITY.incarnation };
    let id = TaskId::new(1_700_000_000_000, 1, 7, 9);
    let spec =
        Spec { priority: 3, ..Spec::new(QueueName::new("mail").expect("a name"), [0xfe, 0xfd, 0x00, 0xfe].repeat(80)) };
    let genesis = Genesis {
        cluster: ClusterId(0xc1),
        name: "fixture".into(),
        partitions: 4,
        replicas: 1,
        members: Vec::new(),
        assignment: vec![vec![0]; 4],
    };
    let grant = Op::Grant {
        claim: ClaimId(5),
        worker: "worker".into(),
        lease_ms: 30_000,
        granted_ms: 1_700_000_000_001,
        items: vec![(id, 1)],
        session: None,
        lapsed: false,
    };
    let partition = PartitionId(3);
    let viewstamp = Viewstamp { epoch: 1, length: 0 };
    vec![
        Record::Identity { node: IDENTITY.node, incarnation: IDENTITY.incarnation },
        Record::Boot { count: 1 },
        Record::Genesis(Arc::new(genesis)),
        Record::HighWaterMark { time_ms: 1_700_000_010_000, sessions: 1_024 },
        Record::Vote { partition, promised: 1, voted_for: Some(replica) },
        Record::Install { partition, viewstamp, table: Some(Arc::new(ClaimTable::new(vec![replica]))) },
        Record::Facts { partition, items: Arc::new(vec![(id, Task::from_spec(Arc::new(spec)))]) },
        Record::Ops { partition, after: viewstamp, ops: vec![Arc::new(grant)] },
        Record::Vote { partition: PartitionId(2), promised: 7, voted_for: None },
        Record::Boot { count: 2 },
    ]
}

fn replay(directory: &Path) -> (Log<FileDisk>, Vec<Record>) {
    let disk = FileDisk::open(directory).expect("opened");
    let mut log = Log::open(disk, CONFIG, || IDENTITY).expect("a log");
    let mut read = Vec::new();
    let visit = |replay: Replay| {
        read.extend(replay.whole()?);
        Ok(())
    };
    let replayed = log.replay(visit).expect("whole");
    assert_eq!((replayed.cut_bytes, replayed.heads_mended), (0, 0));
    (log, read)
}

/// Writes all records, each synced by itself.
fn write(directory: &Path) {
    let (mut log, read) = replay(directory);
    assert_eq!(read, records()[..1]);
    for record in &records()[1..] {
        log.append(std::slice::from_ref(record)).expect("written");
        log.sync().expect("synced");
    }
}

/// The current format. In format 2 no segment repeats promises; in format 3 no table names the holders of its partition.
const FORMAT: u16 = 4;

fn fixture_of(format: u16) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("log-format-{format}"))
}

fn fixture() -> PathBuf {
    fixture_of(FORMAT)
}

/// A directory as written now: operations and tables have all fields, of which older directories lack the last ones.
fn whole_fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("log-format-{FORMAT}-whole"))
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").path());
    let mut segments: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "log" || end == "snapshot")).collect();
    segments.sort();
    segments
}

/// A copy, because opening a directory writes to it.
fn copy(directory: &Path) -> TempDir {
    let copy = TempDir::new().expect("a directory");
    for file in segments(directory) {
        fs::copy(&file, copy.path().join(file.file_name().expect("a name"))).expect("copied");
    }
    copy
}

// E13
/// Goal: a data directory that any version has written remains readable for ever. The fixtures are never rewritten: another format
/// gets its own directory beside this one.
#[test]
fn a_directory_of_any_format_is_read() {
    for fixture in (2..=FORMAT).map(fixture_of).chain([whole_fixture()]) {
        let directory = copy(&fixture);
        let (mut log, read) = replay(directory.path());
        assert_eq!(read, records());
        assert_eq!(log.identity(), IDENTITY);
        let more: Vec<Record> = (3..30).map(|count| Record::Boot { count }).collect();
        log.append(&more).expect("written");
        log.sync().expect("synced");
        drop(log);
        assert_eq!(replay(directory.path()).1, [records(), more].concat());
    }
}

/// Writing the same records still yields the same bytes.
#[test]
fn a_directory_of_this_format_is_written() {
    let directory = TempDir::new().expect("a directory");
    write(directory.path());
    let (written, kept) = (segments(directory.path()), segments(&whole_fixture()));
    assert_eq!(written.len(), kept.len());
    for (written, kept) in written.iter().zip(&kept) {
        assert_eq!(written.file_name(), kept.file_name());
        assert!(fs::read(written).expect("read") == fs::read(kept).expect("read"), "{} differs", kept.display());
    }
}

fn norn_log(verb: &str, flags: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_norn"));
    command.args(["--json", "log", verb]).args(flags).arg(directory).output().expect("the binary runs")
}

fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Result of `verify` on a log after some harm: its exit code and the problems.
fn verify_after(harm: impl FnOnce(&[PathBuf])) -> (i32, Vec<Value>) {
    let directory = copy(&fixture());
    harm(&segments(directory.path()));
    let before: Vec<_> = segments(directory.path()).iter().map(|file| fs::read(file).expect("read")).collect();
    let output = norn_log("verify", &[], directory.path());
    let after: Vec<_> = segments(directory.path()).iter().map(|file| fs::read(file).expect("read")).collect();
    assert!(before == after, "nothing is changed");
    let mut problems = objects(&output);
    let summary = problems.pop().expect("a summary");
    assert_eq!(summary["problems"], problems.len());
    assert_eq!(summary["whole"], problems.is_empty());
    (output.status.code().expect("it ended"), problems)
}

/// Ordinal of the record of facts.
const FACTS: u64 = 12;

/// Position of a record: the index of its file, its offset, and the offset of its head.
fn place_of(ordinal: u64) -> (usize, usize, usize) {
    let directory = copy(&fixture());
    let shown = objects(&norn_log("inspect", &[], directory.path()));
    let record = shown.iter().find(|record| record["ordinal"] == ordinal).expect("it is there");
    let files = segments(directory.path());
    let is_file = |file: &&PathBuf| file.file_name().expect("a name").to_str() == record["file"].as_str();
    let place = files.iter().position(|file| is_file(&file)).expect("it is there");
    let bytes = fs::read(&files[place]).expect("read");
    let first = u64::from_be_bytes(bytes[52..60].try_into().expect("a number"));
    let offset = record["offset"].as_u64().expect("a number") as usize;
    (place, offset, 512 + 32 * (ordinal - first) as usize)
}

fn flip(file: &Path, place: usize) {
    let mut bytes = fs::read(file).expect("read");
    bytes[place] ^= 0x04;
    fs::write(file, bytes).expect("written");
}

#[test]
fn inspect_shows_every_record() {
    let directory = copy(&fixture());
    let output = norn_log("inspect", &[], directory.path());
    assert!(output.status.success());
    let shown = objects(&output);
    let kinds: Vec<&str> = shown.iter().filter_map(|record| record["kind"].as_str()).collect();
    let first = ["identity", "boot", "genesis", "mark", "vote", "install"];
    let again = ["identity", "genesis", "boot", "mark", "vote"];
    // The promises are repeated in the second segment and in the third.
    let expected = [&first[..], &again, &["facts"], &again, &["ops", "vote", "boot"]].concat();
    assert_eq!(kinds, expected);
    assert_eq!((&shown[4]["partition"], &shown[18]["partition"]), (&Value::from(3), &Value::from(2)));
    assert_eq!(shown[0]["partition"], Value::Null);
    assert_eq!(norn_log("inspect", &[], &directory.path().join("absent")).status.code(), Some(2));
}

#[test]
fn verify_tells_a_flipped_bit_in_record_and_head() {
    assert_eq!(verify_after(|_| ()), (0, Vec::new()));
    let (place, offset, head) = place_of(FACTS);
    let lost = |problems: &[Value]| problems.iter().map(|problem| problem["lost"].clone()).collect::<Vec<Value>>();
    let facts = serde_json::json!([{ "partition": 3, "kind": "facts", "count": 1 }]);

    let (code, problems) = verify_after(|files| flip(&files[place], offset + 40));
    assert_eq!((code, problems.len()), (1, 2), "{problems:?}");
    let what = &lost(&problems)[1];
    assert_eq!((&what["ordinals"], &what["of"]), (&serde_json::json!([[FACTS, FACTS]]), &facts));
    assert_eq!(problems[1]["offset"], offset);

    let (code, problems) = verify_after(|files| flip(&files[place], head));
    assert_eq!((code, problems.len()), (1, 1), "{problems:?}");
    assert_eq!(lost(&problems)[0]["ordinals"], serde_json::json!([]));

    let (code, problems) = verify_after(|files| {
        flip(&files[place], offset + 40);
        flip(&files[place], head);
    });
    let what = &lost(&problems)[1];
    assert_eq!((code, &what["ordinals"], &what["unknown"]), (1, &serde_json::json!([[FACTS, FACTS]]), &Value::from(1)));
}

#[test]
fn verify_tells_short_missing_and_swapped_files() {
    let (place, offset, _) = place_of(5);
    let (code, problems) = verify_after(|files| {
        let file = fs::OpenOptions::new().write(true).open(&files[place]).expect("opened");
        file.set_len(offset as u64 + 5).expect("cut");
    });
    let vote = serde_json::json!({ "partition": 3, "kind": "vote", "count": 1 });
    let names_it = |problem: &Value| problem["lost"]["of"].as_array().is_some_and(|of| of.contains(&vote));
    assert!(code == 1 && problems.iter().any(names_it), "{problems:?}");

    let (code, problems) = verify_after(|files| fs::remove_file(&files[1]).expect("removed"));
    let known = problems[0]["problem"].as_str().expect("text");
    assert!(code == 1 && known.contains("0000000000000002.log should be here"), "{problems:?}");

    let (code, problems) = verify_after(|files| {
        let (one, other) = (fs::read(&files[0]).expect("read"), fs::read(&files[1]).expect("read"));
        fs::write(&files[0], other).expect("written");
        fs::write(&files[1], one).expect("written");
    });
    let known = problems[0]["problem"].as_str().expect("text");
    assert!(code == 1 && known.contains("the header is that of segment 2"), "{problems:?}");
}

#[test]
fn a_directory_that_is_held_is_left_alone() {
    let directory = copy(&fixture());
    let held = FileDisk::open(directory.path()).expect("opened");
    for verb in ["inspect", "verify", "repair"] {
        let output = norn_log(verb, &[], directory.path());
        let advertised = format!("process {}", std::process::id());
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).contains(&advertised), "{verb} names the holder");
    }
    drop(held);
    assert!(norn_log("verify", &[], directory.path()).status.success());
}

/// Goal: a directory without a log is reported neither as whole nor as damaged, and is left as it is.
#[test]
fn a_directory_without_a_log_is_refused() {
    let directory = TempDir::new().expect("a directory");
    let place = directory.path();
    for file in ["server.log", "0000000000000001.txt"] {
        fs::write(place.join(file), "started").expect("written");
        for verb in ["inspect", "verify", "repair"] {
            let output = norn_log(verb, &[], place);
            assert_eq!(output.status.code(), Some(2), "{verb}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("no data directory"), "{verb}");
        }
    }
    assert!(!place.join("lock").exists());
    // A directory whose log files have lost their names still has a log.
    fs::copy(&segments(&fixture())[0], place.join("copy.log")).expect("copied");
    assert_eq!(norn_log("verify", &[], place).status.code(), Some(1));
}

/// The task of the fixture.
fn task() -> TaskId {
    let records = records();
    let facts = records.iter().find_map(|record| match record {
        Record::Facts { items, .. } => Some(items[0].0),
        _ => None,
    });
    facts.expect("there are facts")
}

fn text_of(flags: &[&str], directory: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_norn"));
    let output = command.args(["log", "inspect"]).args(flags).arg(directory).output().expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Goal: on request an operator is shown the content of each record, as text and as JSON, and no payload.
#[test]
fn inspect_shows_in_full_what_each_record_says() {
    let directory = copy(&fixture());
    let output = norn_log("inspect", &["--full"], directory.path());
    assert!(output.status.success(), "{output:?}");
    let (full, plain) = (objects(&output), objects(&norn_log("inspect", &[], directory.path())));
    assert_eq!(full.len(), plain.len());
    for (full, plain) in full.iter().zip(&plain) {
        let mut heads = full.clone();
        let content = heads.as_object_mut().expect("an object").remove("content");
        assert!(content.is_some_and(|content| content.is_object()) && heads == *plain, "{full}");
    }
    let content = |kind: &str| &full.iter().find(|record| record["kind"] == kind).expect("it is there")["content"];
    assert_eq!(content("genesis")["name"], "fixture");
    let facts = &content("facts")["items"][0];
    assert_eq!((&facts["id"], &facts["spec"]["payload_bytes"]), (&task().to_string().into(), &320.into()), "{facts}");
    let grant = &content("ops")["items"][0];
    assert_eq!((&grant["worker"], &grant["token"]), (&"worker".into(), &"1.1".into()), "{grant}");
    let text = text_of(&["--full"], directory.path());
    let lines = |what: &str| text.lines().filter(|line| line.starts_with(&format!("    {what} {}", task()))).count();
    assert_eq!((lines("facts"), lines("grant")), (1, 1), "{text}");
    assert!(
        text.contains("name=fixture") && text.contains("worker=worker") && text.contains("payload_bytes=320"),
        "{text}"
    );
}

/// Goal: an operator who looks for a task is shown everything in the log about it, and nothing else.
#[test]
fn inspect_of_a_task_shows_what_is_said_of_it() {
    let directory = copy(&fixture());
    let id = task().to_string();
    let output = norn_log("inspect", &["--task", &id], directory.path());
    assert!(output.status.success(), "{output:?}");
    let shown = objects(&output);
    let kinds: Vec<&Value> = shown.iter().map(|record| &record["kind"]).collect();
    assert_eq!(kinds, ["facts", "ops"], "{shown:?}");
    let what: Vec<&Value> = shown.iter().map(|record| &record["content"]["items"][0]["what"]).collect();
    assert_eq!(what, ["facts", "grant"], "{shown:?}");
    assert!(shown.iter().all(|record| record["content"]["items"][0]["id"] == *id), "{shown:?}");
    for part in [&id[..9], &id[26..], &id[20..24]] {
        assert_eq!(objects(&norn_log("inspect", &["--task", part], directory.path())), shown, "{part}");
    }
    let text = text_of(&["--task", &id], directory.path());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "a line for each record, and one for what it says of the task: {text}");
    assert!(lines[0].contains("facts of partition 3") && lines[1].starts_with(&format!("    facts {id} ")), "{text}");
    assert!(lines[2].contains("ops of partition 3") && lines[3].starts_with(&format!("    grant {id} ")), "{text}");
}

/// Goal: the output for a task that is not in the log differs from that for one that is.
#[test]
fn inspect_of_a_task_that_is_not_there_says_so() {
    let directory = copy(&fixture());
    let unknown = TaskId::new(1, 2, 3, 4).to_string();
    let output = norn_log("inspect", &["--task", &unknown], directory.path());
    assert_eq!(output.status.code(), Some(1));
    let shown = objects(&output);
    assert_eq!((shown.len(), &shown[0]["error"]["code"]), (1, &Value::from("not_found")), "{shown:?}");
    for (typed, wrong) in [("3n5", "too short"), ("3n5t!", "is no character of a task id")] {
        let output = norn_log("inspect", &["--task", typed], directory.path());
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!((output.status.code(), said.contains(wrong)), (Some(2), true), "{typed}: {said}");
    }
}

/// Writes the fixtures, once for each format.
#[test]
#[ignore = "the fixtures are written once and kept"]
fn write_the_fixtures() {
    assert!(!whole_fixture().exists() && !whole_snapshot_fixture().exists(), "they are there already");
    write(&whole_fixture());
    fs::remove_file(whole_fixture().join("lock")).expect("removed");
    write_compacted(&whole_snapshot_fixture());
    fs::remove_file(whole_snapshot_fixture().join("lock")).expect("removed");
}

/// State of a member of three, as the records of a snapshot: a node can start from it.
fn state() -> Vec<Record> {
    let member = |number: u64| Member {
        node: NodeId(IDENTITY.node.0 + u128::from(number)),
        incarnation: IDENTITY.incarnation + number,
        address: format!("node-{number}:7400"),
        name: format!("node-{number}"),
        zone: String::new(),
    };
    let members: Vec<Member> = (0..3).map(member).collect();
    let cohort =
        members.iter().map(|member| ReplicaId { node: member.node, incarnation: member.incarnation }).collect();
    let cluster = ClusterId(0xc1);
    let assignment = vec![vec![0, 1, 2]; 4];
    let genesis = Genesis { cluster, name: "fixture".into(), partitions: 4, replicas: 3, members, assignment };
    let mut state = vec![
        Record::Identity { node: IDENTITY.node, incarnation: IDENTITY.incarnation },
        Record::Boot { count: 3 },
        Record::Genesis(Arc::new(genesis)),
        Record::HighWaterMark { time_ms: 1_700_000_020_000, sessions: 2_048 },
    ];
    let table = Some(Arc::new(ClaimTable::new(cohort)));
    let viewstamp = Viewstamp { epoch: 4, length: 9 };
    let Some(Record::Facts { items, .. }) = records().into_iter().find(|record| record.kind().0 == b'F') else {
        panic!("there are facts");
    };
    for partition in (0..4).map(PartitionId) {
        let data_loss = DataLoss { facts: partition.0 == 1, table: false };
        state.push(Record::DataLoss { partition, data_loss, losses: 77 });
        state.push(Record::Vote { partition, promised: 5, voted_for: None });
        state.push(Record::Install { partition, viewstamp, table: table.clone() });
        state.push(Record::Facts { partition, items: Arc::clone(&items) });
    }
    state
}

/// Records of the log after the snapshot: promises are made again and again.
fn later() -> Vec<Record> {
    let of_partitions = |count: u64| {
        let vote = move |partition| Record::Vote { partition, promised: 5 + count, voted_for: None };
        let facts = |partition| Record::Facts { partition, items: Arc::new(Vec::new()) };
        (0..4).map(PartitionId).flat_map(move |partition| [facts(partition), vote(partition)])
    };
    let of_node = |count| {
        [
            Record::HighWaterMark { time_ms: 1_700_000_030_000 + count, sessions: 4_096 },
            Record::Boot { count: 3 + count },
        ]
    };
    (1..4).flat_map(|count| of_partitions(count).chain(of_node(count))).collect()
}

/// Writes a snapshot of a state in place of the log before it, and appends records after it.
fn write_compacted(directory: &Path) {
    let disk = FileDisk::open(directory).expect("opened");
    let config = LogConfig { compact_bytes: 0, ..CONFIG };
    let mut log = Log::open(disk, config, || IDENTITY).expect("a log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    log.append(&[Record::Boot { count: 3 }]).expect("written");
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let state = state();
    assert_eq!(log.save(&state[..7], false), Ok(Saved::Part));
    log.append(&later()[..1]).expect("written");
    assert_eq!(log.save(&state[7..], true), Ok(Saved::Whole));
    for record in &later()[1..] {
        log.append(std::slice::from_ref(record)).expect("written");
        log.sync().expect("synced");
    }
    while matches!(log.upkeep(), Ok(Upkeep::Again | Upkeep::Moved(_))) {}
}

fn snapshot_fixture_of(format: u16) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("snapshot-format-{format}"))
}

fn snapshot_fixture() -> PathBuf {
    snapshot_fixture_of(FORMAT)
}

/// As [`whole_fixture`].
fn whole_snapshot_fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("snapshot-format-{FORMAT}-whole"))
}

// E13, E27
/// Goal: as above, for a data directory with a snapshot.
#[test]
fn a_snapshot_of_any_format_is_read() {
    for fixture in (2..=FORMAT).map(snapshot_fixture_of).chain([whole_snapshot_fixture()]) {
        let directory = copy(&fixture);
        let (log, read) = replay(directory.path());
        assert_eq!(read, [state(), later()].concat());
        assert_eq!(log.identity(), IDENTITY);
    }
}

#[test]
fn a_snapshot_of_this_format_is_written() {
    let directory = TempDir::new().expect("a directory");
    write_compacted(directory.path());
    let (written, kept) = (segments(directory.path()), segments(&whole_snapshot_fixture()));
    assert_eq!(written.len(), kept.len());
    for (written, kept) in written.iter().zip(&kept) {
        assert_eq!(written.file_name(), kept.file_name());
        assert!(fs::read(written).expect("read") == fs::read(kept).expect("read"), "{} differs", kept.display());
    }
}

fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let name = |file: &PathBuf| PathBuf::from(file.file_name().expect("a name"));
    segments(directory).iter().map(|file| (name(file), fs::read(file).expect("read"))).collect()
}

/// Goal: a log on which no node starts is repaired into one on which a node starts; the previous files are kept; a dry run and a
/// second repair change nothing.
#[test]
fn a_log_with_a_missing_segment_is_repaired() {
    let directory = copy(&snapshot_fixture());
    let files = segments(directory.path());
    assert!(files.len() > 3, "{files:?}");
    fs::remove_file(&files[2]).expect("removed");
    flip(&files[0], 20);
    let before = contents(directory.path());
    let tried = norn_log("repair", &["--dry-run"], directory.path());
    assert_eq!((tried.status.code(), contents(directory.path())), (Some(0), before.clone()), "{tried:?}");
    let done = norn_log("repair", &[], directory.path());
    let (mut planned, mut steps) = (objects(&tried), objects(&done));
    let (plan, summary) = (planned.pop().expect("a summary"), steps.pop().expect("a summary"));
    assert_eq!(planned, steps);
    assert_eq!((&plan["repaired"], &plan["planned"], &plan["kept"]), (&false.into(), &true.into(), &Value::Null));
    // The header of the snapshot is repaired; other replicas restore the records of the missing file.
    assert_eq!((&summary["repaired"], summary["steps"].as_u64()), (&true.into(), Some(1)), "{steps:?}");
    assert_eq!((summary["losses"].as_u64(), steps.len()), (Some(1), 2), "{steps:?}");
    let kept = contents(Path::new(summary["kept"].as_str().expect("a path")));
    assert!(!kept.is_empty() && kept.iter().all(|file| before.contains(file)), "the originals");
    let again = norn_log("repair", &[], directory.path());
    let last = objects(&again).pop().expect("a summary");
    assert_eq!((&last["planned"], last["steps"].as_u64()), (&false.into(), Some(0)));
    assert_eq!(
        fs::read_dir(directory.path())
            .expect("listed")
            .filter(|entry| entry.as_ref().expect("an entry").path().is_dir())
            .count(),
        1
    );
}

#[test]
fn what_no_repair_cures_is_refused_and_left_alone() {
    let directory = copy(&snapshot_fixture());
    let files = segments(directory.path());
    fs::remove_file(&files[1]).expect("removed");
    fs::write(files.last().expect("one"), [7; 2_000]).expect("written");
    let spoiled = contents(directory.path());
    let output = norn_log("repair", &[], directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(contents(directory.path()) == spoiled, "nothing is changed");
    assert!(fs::read_dir(directory.path()).expect("listed").all(|entry| !entry.expect("an entry").path().is_dir()));
}
