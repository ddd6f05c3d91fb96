//! Microbenchmarks: small loops over single operations, the best of five runs each.

use crate::report::{Report, Row};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use crdts::CvRDT;
use norn_host::disk::FileDisk;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::consensus::Hold;
use norn_model::limits::PEER_FRAME_BYTES_MAX;
use norn_model::message::{PeerMessage, ReadWrite};
use norn_model::record::Record;
use norn_model::replica::Store;
use norn_model::task::{Completed, Task};
use norn_model::viewstamp::Viewstamp;
use norn_storage::{Identity, Log, LogConfig};
use norn_wire::codec::{HEADER_BYTES, Kind, decode_body, encode_compact, split};
use norn_wire::request::Spec;
use norn_wire::{ClaimId, NodeId, PartitionId, QueueName, TaskId, Token, Versions};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Runs of each loop, of which the best counts.
const RUNS: usize = 5;
/// Iterations of a loop without a disk.
const ROUNDS: usize = 20_000;
/// Iterations of a loop with a disk.
const DISK_ROUNDS: usize = 300;
/// Bytes of a task.
const PAYLOAD_BYTES: usize = 256;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Where the log is written; by default the system's directory for temporary files. Should be a real disk.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Runs all loops.
pub fn run(options: &Options, mut report: Report) -> Result<()> {
    tasks(&mut report)?;
    tables(&mut report)?;
    stores(&mut report)?;
    frames(&mut report)?;
    logs(&mut report, options)
}

fn answer(report: &mut Report, question: &str, rounds: usize, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let mut best_us = f64::INFINITY;
    for _ in 0..RUNS {
        let started = Instant::now();
        run()?;
        best_us = best_us.min(started.elapsed().as_secs_f64() * 1e6 / rounds as f64);
    }
    report.row(Row::default().number("us_each", best_us, 3).text("question", question))
}

fn id(number: usize) -> TaskId {
    TaskId::new(1_700_000_000_000, number as u32, 7, 9)
}

fn spec() -> Result<Arc<Spec>> {
    Ok(Arc::new(Spec::new(QueueName::new("mail")?, vec![b'x'; PAYLOAD_BYTES])))
}

fn completion() -> Task {
    let token = Token { epoch: 7, number: 42 };
    Task::from_completion(token, Completed { sequence: None, result: None, at_ms: 1_700_000_000_000, children: None })
}

fn tasks(report: &mut Report) -> Result<()> {
    let enqueued = Task::from_spec(spec()?);
    answer(report, "merge a completion into a task (with the copy of both)", ROUNDS, || {
        for _ in 0..ROUNDS {
            let mut task = enqueued.clone();
            task.merge(black_box(completion()));
            black_box(task);
        }
        Ok(())
    })?;
    answer(report, "digest of a task of 256 bytes from scratch", ROUNDS, || {
        for number in 0..ROUNDS {
            black_box(enqueued.digest(&id(number)));
        }
        Ok(())
    })
}

fn tables(report: &mut Report) -> Result<()> {
    let worker: Arc<str> = "bench".into();
    answer(report, "apply a grant of one task to a table that grows to 20,000 claims", ROUNDS, || {
        let mut table = ClaimTable::new(Vec::new());
        for number in 0..ROUNDS {
            let at = Viewstamp { epoch: 1, length: number as u64 + 1 };
            let items = vec![(id(number), number as u64 + 1)];
            let (lease_ms, granted_ms) = (30_000, 1_700_000_000_000);
            let grant = Op::Grant {
                claim: ClaimId(1),
                worker: worker.clone(),
                lease_ms,
                granted_ms,
                items,
                session: None,
                lapsed: false,
            };
            black_box(table.apply(&grant, at)?);
        }
        Ok(())
    })
}

fn stores(report: &mut Report) -> Result<()> {
    let spec = spec()?;
    answer(report, "store a new task, with digest, tree and index", ROUNDS, || {
        let mut store = Store::default();
        for number in 0..ROUNDS {
            black_box(store.merge(id(number), Task::from_spec(spec.clone()), Hold::default(), 1));
        }
        Ok(())
    })?;
    answer(report, "the same, and its completion", ROUNDS, || {
        let mut store = Store::default();
        for number in 0..ROUNDS {
            store.merge(id(number), Task::from_spec(spec.clone()), Hold::default(), 1);
            black_box(store.merge(id(number), completion(), Hold::default(), 1));
        }
        Ok(())
    })
}

fn frames(report: &mut Report) -> Result<()> {
    let items = Arc::new(vec![(id(1), Task::from_spec(spec()?))]);
    let write = PeerMessage::ReadWrite(ReadWrite::Write {
        request_id: 7,
        partition: PartitionId(3),
        at: Viewstamp::default(),
        items,
    });
    let mut bytes = Vec::new();
    answer(report, "encode a frame with the write of one task of 256 bytes", ROUNDS, || {
        for _ in 0..ROUNDS {
            bytes.clear();
            encode_compact(&mut bytes, Versions::SPOKEN.newest, Kind::Peer, 0, black_box(&write));
        }
        Ok(())
    })?;
    let (header, end) = split(&bytes, Versions::SPOKEN.newest, PEER_FRAME_BYTES_MAX)?.context("a whole frame")?;
    answer(report, "check and decode it", ROUNDS, || {
        for _ in 0..ROUNDS {
            black_box(decode_body::<PeerMessage>(&header, black_box(&bytes[HEADER_BYTES..end]))?);
        }
        Ok(())
    })
}

fn logs(report: &mut Report, options: &Options) -> Result<()> {
    let place = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = place.join(format!("norn-bench-{}-log", std::process::id()));
    let answered = logs_in(report, &directory);
    std::fs::remove_dir_all(&directory)?;
    answered
}

fn logs_in(report: &mut Report, directory: &std::path::Path) -> Result<()> {
    let disk = FileDisk::open(directory)?;
    let identity = Identity { node: NodeId(1), incarnation: 1 };
    let mut log = Log::open(disk, LogConfig::default(), || identity).map_err(|error| anyhow!("{error}"))?;
    log.replay(|replay| replay.whole().map(drop)).map_err(|error| anyhow!("{error}"))?;
    let item = Arc::new(vec![(id(1), Task::from_spec(spec()?))]);
    for count in [1, 16, 256] {
        let records: Vec<Record> =
            (0..count).map(|_| Record::Facts { partition: PartitionId(3), items: item.clone() }).collect();
        let question = format!("append and sync {count} records of 256 bytes");
        answer(report, &question, DISK_ROUNDS, || {
            for _ in 0..DISK_ROUNDS {
                log.append(&records)?;
                log.sync()?;
            }
            Ok(())
        })?;
        let question = format!("append {count} records of 256 bytes, without the sync");
        answer(report, &question, DISK_ROUNDS, || {
            (0..DISK_ROUNDS).try_for_each(|_| log.append(&records).map(drop))?;
            Ok(log.sync()?)
        })?;
    }
    Ok(())
}
