//! Operations of single parts: frames, the store of a replica, the claim table, the ring.

use crate::values::{WALL_MS, completion, ids, spec, task};
use anyhow::{Context, Result};
use norn_model::claim_table::operation::Ended;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::consensus::Hold;
use norn_model::limits::PEER_FRAME_BYTES_MAX;
use norn_model::message::{PeerMessage, ReadWrite};
use norn_model::replica::Store;
use norn_model::ring::partition_of_task;
use norn_model::viewstamp::Viewstamp;
use norn_wire::codec::{Body, HEADER_BYTES, Kind, decode_body, encode_compact, encode_named, split};
use norn_wire::limits::FRAME_BYTES_MAX;
use norn_wire::{Acks, ClaimId, NewTask, PartitionId, Request, TaskId, Token, Versions};
use std::hint::black_box;
use std::sync::Arc;

const EPOCH: u64 = 7;

fn write() -> Result<PeerMessage> {
    let id = ids().next().context("ids without end")?;
    Ok(PeerMessage::ReadWrite(ReadWrite::Write {
        request_id: 7,
        partition: PartitionId(3),
        at: Viewstamp::default(),
        items: Arc::new(vec![(id, task()?)]),
    }))
}

/// Encodes a frame with the write of one task.
pub fn encode_write(rounds: usize) -> Result<()> {
    let (write, mut bytes) = (write()?, Vec::new());
    for _ in 0..rounds {
        bytes.clear();
        encode_compact(&mut bytes, Versions::SPOKEN.newest, Kind::Peer, 0, black_box(&write));
    }
    black_box(bytes);
    Ok(())
}

fn decode<T: Body>(bytes: &[u8], limit: usize, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        let (header, end) = split(black_box(bytes), Versions::SPOKEN.newest, limit)?.context("a whole frame")?;
        black_box(decode_body::<T>(&header, &bytes[HEADER_BYTES..end])?);
    }
    Ok(())
}

/// Finds, checks and decodes a frame with the write of one task.
pub fn decode_write(rounds: usize) -> Result<()> {
    let mut bytes = Vec::new();
    encode_compact(&mut bytes, Versions::SPOKEN.newest, Kind::Peer, 0, &write()?);
    decode::<PeerMessage>(&bytes, PEER_FRAME_BYTES_MAX, rounds)
}

/// Finds, checks and decodes a frame with a client's request to enqueue one task.
pub fn decode_request(rounds: usize) -> Result<()> {
    let id = ids().next().context("ids without end")?;
    let request = Request::Enqueue { tasks: vec![NewTask { id, spec: spec()? }], acks: Acks::Quorum };
    let mut bytes = Vec::new();
    encode_named(&mut bytes, Versions::SPOKEN.newest, Kind::Request, 1, &request);
    decode::<Request>(&bytes, FRAME_BYTES_MAX, rounds)
}

/// Finds the partition of a task.
pub fn locate(rounds: usize) -> Result<()> {
    let id = ids().next().context("ids without end")?;
    for _ in 0..rounds {
        black_box(partition_of_task(black_box(&id), 256));
    }
    Ok(())
}

/// Stores a new task, with digest, tree and index.
pub fn store(rounds: usize) -> Result<()> {
    let (mut store, task) = (Store::default(), task()?);
    for id in ids().take(rounds) {
        black_box(store.merge(id, task.clone(), Hold::default(), 1));
    }
    Ok(())
}

/// The same, and its completion.
pub fn store_and_complete(rounds: usize) -> Result<()> {
    let (mut store, task) = (Store::default(), task()?);
    for id in ids().take(rounds) {
        store.merge(id, task.clone(), Hold::default(), 1);
        black_box(store.merge(id, completion(Token { epoch: EPOCH, number: 42 }), Hold::default(), 1));
    }
    Ok(())
}

fn grant_of(worker: &Arc<str>, id: TaskId, number: u64) -> Op {
    Op::Grant {
        claim: ClaimId(1),
        worker: worker.clone(),
        lease_ms: 30_000,
        granted_ms: WALL_MS,
        items: vec![(id, number)],
        session: None,
        lapsed: false,
    }
}

/// Applies a grant of one task to a claim table.
pub fn grant(rounds: usize) -> Result<()> {
    let (mut table, worker) = (ClaimTable::new(Vec::new()), Arc::from("counts"));
    for (number, id) in (1..).zip(ids().take(rounds)) {
        let at = Viewstamp { epoch: EPOCH, length: number };
        black_box(table.apply(&grant_of(&worker, id, number), at)?);
    }
    Ok(())
}

/// The same, and the drop of the claim with the ending of its task.
pub fn grant_and_drop(rounds: usize) -> Result<()> {
    let (mut table, worker) = (ClaimTable::new(Vec::new()), Arc::from("counts"));
    for (number, id) in (1..).zip(ids().take(rounds)) {
        let at = |step| Viewstamp { epoch: EPOCH, length: 2 * number + step };
        table.apply(&grant_of(&worker, id, number), at(0))?;
        let ended = Ended { id, facts: completion(Token { epoch: EPOCH, number }) };
        black_box(table.apply(&Op::Drop { items: Arc::from([ended]) }, at(1))?);
    }
    Ok(())
}
