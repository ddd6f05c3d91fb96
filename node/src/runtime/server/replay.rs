//! The log of a node that starts: it is opened and read, and mended once nothing prevents the start.

use super::start::StartError;
use crate::runtime::disk::{FileDisk, refuse_foreign};
use crate::runtime::settings::Settings;
use norn_engine::{Founding, Node};
use norn_restore::Restorer;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::{Identity, Log, Replayed, WITHOUT_A_COPY};
use norn_wire::NodeId;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Records between two progress reports of a replay.
const REPLAY_REPORT_RECORDS: u64 = 1_000;

/// Progress of the replay of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaying {
    /// Records replayed.
    pub records: u64,
    /// Bytes of the log that were read; some may be read twice.
    pub read_bytes: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// Time since the log was opened.
    pub elapsed: Duration,
}

/// Why a node does not start with the rest of its log.
#[derive(Debug, thiserror::Error)]
#[error("{0}; restore the damaged file from a copy (`norn log verify` names all that is wrong); {WITHOUT_A_COPY}")]
struct Doubt(String);

/// Opens and reads the log on a blocking thread, as that may take a while. Changes nothing in it.
pub(super) async fn open(
    settings: &Settings,
    address: String,
    mut watch: impl FnMut(Replaying) + Send + 'static,
) -> Result<(Node, Log<FileDisk>, Replayed), StartError> {
    let place = settings.data.display().to_string();
    let failed = move |error: &dyn std::fmt::Display| StartError::Log(place.clone(), error.to_string());
    let (data, log_config) = (settings.data.clone(), settings.log.clone());
    let (config, name, zone) = (settings.core.clone(), settings.name.clone(), settings.zone.clone());
    let (certificate, bytes_max) = (name.clone(), settings.disk_bytes_max);
    let work = move || -> Result<(Node, Log<FileDisk>, Replayed), StartError> {
        let started = std::time::Instant::now();
        refuse_foreign(&data)?;
        let mut disk = FileDisk::open(&data)?;
        disk.limit(bytes_max);
        let draw = || Identity { node: NodeId(rand::random()), incarnation: rand::random() };
        let (bytes, read_bytes) = (log_bytes(&disk).map_err(|error| failed(&error))?, disk.read_bytes());
        let mut log = Log::open(disk, log_config, draw).map_err(|error| failed(&error))?;
        let identity = log.identity();
        let founding = Founding { config, node: identity.node, incarnation: identity.incarnation, name, address, zone };
        let mut node = Node::new(founding, rand::random());
        let mut restorer = Restorer::new(&mut node);
        let mut records = 0u64;
        let replayed = log.read(|replay| {
            records += 1;
            if records.is_multiple_of(REPLAY_REPORT_RECORDS) {
                let read_bytes = read_bytes.load(Ordering::Relaxed);
                watch(Replaying { records, read_bytes, bytes, elapsed: started.elapsed() });
            }
            restorer.take(replay)
        });
        drop(watch);
        let replayed = replayed.map_err(|error| failed(&error))?;
        restorer.finish().map_err(|doubt| failed(&Doubt(doubt)))?;
        check_member(&node, &identity, &certificate, &data)?;
        tell_replayed(&identity, &replayed, started.elapsed());
        Ok((node, log, replayed))
    };
    away(settings, work).await
}

fn log_bytes(disk: &FileDisk) -> Result<u64, DiskError> {
    disk.list()?.iter().map(|file| disk.length(file)).sum()
}

/// Checks that the log is this node's: until a cluster knows its identity, it may belong to any name.
fn check_member(node: &Node, identity: &Identity, certificate: &str, data: &Path) -> Result<(), StartError> {
    let Some(genesis) = node.genesis() else {
        return Ok(());
    };
    match node.roster().members.values().find(|member| member.node == identity.node) {
        Some(member) if member.name != certificate => Err(StartError::Member {
            data: data.display().to_string(),
            cluster: genesis.name.clone(),
            member: member.name.clone(),
            certificate: certificate.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Logs a structured record of the replay, for programs that read the log.
fn tell_replayed(identity: &Identity, replayed: &Replayed, elapsed: Duration) {
    let Replayed { snapshot_records, snapshot_bytes, records, segments, lost_segments, .. } = *replayed;
    let Replayed { bytes, cut_bytes, cut_records, lost_records, damaged_bytes, heads_mended, .. } = *replayed;
    tracing::info!(
        node = %identity.node,
        elapsed_ms = milliseconds(elapsed),
        snapshot_records,
        snapshot_bytes,
        records,
        segments,
        lost_segments,
        bytes,
        cut_bytes,
        cut_records,
        lost_records,
        damaged_bytes,
        heads_mended,
        "log replayed"
    );
}

/// Milliseconds in a type that a JSON log shows as a number.
pub fn milliseconds(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// Begins or mends the log, once nothing prevents the start.
pub(super) async fn mend(
    settings: &Settings,
    mut log: Log<FileDisk>,
    replayed: Replayed,
) -> Result<Log<FileDisk>, StartError> {
    let place = settings.data.display().to_string();
    let work = move || {
        let failed = |error: DiskError| StartError::Log(place.clone(), error.to_string());
        // With too little space the node would stop at its first writes, or even before.
        if let Some(shortage) = log.shortage().map_err(failed)? {
            return Err(StartError::NoRoom(place, log.disk().is_bounded(), shortage));
        }
        log.mend().map_err(|error| StartError::Log(place, error.to_string()))?;
        Ok(log)
    };
    let log = away(settings, work).await?;
    if replayed.lost_records > 0 {
        let (records, bytes) = (replayed.lost_records, replayed.damaged_bytes);
        let said = "records of the log are lost; what they said is fetched from other replicas, see `norn log verify`";
        tracing::warn!(records, bytes, "{said}");
    }
    if replayed.cut_records > 0 {
        let records = replayed.cut_records;
        tracing::warn!(records, "the last batch was cut: a crash tore it, unless the disk has damaged it since");
    }
    Ok(log)
}

/// Works on the log on a blocking thread.
async fn away<T: Send + 'static>(
    settings: &Settings,
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StartError::Log(settings.data.display().to_string(), error.to_string())),
    }
}
