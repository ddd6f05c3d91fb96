//! The log of a node that starts: it is opened and read, and mended once nothing prevents the start.

use crate::disk::{FileDisk, FileDiskError, refuse_foreign};
use norn_engine::{Founding, Node};
use norn_model::config::Config;
use norn_restore::{Compacted, Hindrance, Restorer, When, compact};
use norn_storage::disk::{Disk, DiskError};
use norn_storage::{Identity, Log, LogConfig, Replayed, Shortage, WITHOUT_A_COPY};
use norn_wire::NodeId;
use std::path::{Path, PathBuf};
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

/// A node that is to start from its log.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Directory of the log.
    pub data: PathBuf,
    /// Name of the node.
    pub name: String,
    /// Address at which others reach it.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// Settings of the core.
    pub core: Config,
    /// Settings of the log.
    pub log: LogConfig,
    /// Limit on the bytes of the directory.
    pub disk_bytes_max: Option<u64>,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory is unusable.
    #[error(transparent)]
    Directory(#[from] FileDiskError),
    /// The log cannot be opened or recovered.
    #[error("log in {0}: {1}")]
    Log(String, String),
    /// Too little space on the disk.
    #[error("{}", shortage_text(.0, *.1, .2))]
    NoRoom(String, bool, Shortage),
    /// The log belongs to another member, so peers would refuse this node.
    #[error(
        "the log in {data} is of node {member:?} of cluster {cluster:?}, but the certificate names {certificate:?}; \
         give the data directory of {certificate:?} with --data, or the certificate of {member:?} with --name"
    )]
    Member {
        /// Directory of the log.
        data: String,
        /// Name of the cluster.
        cluster: String,
        /// Name of the member that the log belongs to.
        member: String,
        /// Name in this node's certificate.
        certificate: String,
    },
}

/// Why a node does not start with the rest of its log.
#[derive(Debug, thiserror::Error)]
#[error("{0}; restore the damaged file from a copy (`norn log verify` names all that is wrong); {WITHOUT_A_COPY}")]
struct Doubt(String);

/// Opens and reads the log on a blocking thread, as that may take a while. Changes nothing in it.
pub async fn open(
    opening: Opening,
    mut watch: impl FnMut(Replaying) + Send + 'static,
) -> Result<(Node, Log<FileDisk>, Replayed), OpenError> {
    let Opening { data, name, address, zone, core: config, log: log_config, disk_bytes_max: bytes_max } = opening;
    let (place, directory) = (data.display().to_string(), data.clone());
    let failed = move |error: &dyn std::fmt::Display| OpenError::Log(place.clone(), error.to_string());
    let certificate = name.clone();
    let work = move || -> Result<(Node, Log<FileDisk>, Replayed), OpenError> {
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
    away(&directory, work).await
}

fn log_bytes(disk: &FileDisk) -> Result<u64, DiskError> {
    disk.list()?.iter().map(|file| disk.length(file)).sum()
}

/// Checks that the log is this node's: until a cluster knows its identity, it may belong to any name.
fn check_member(node: &Node, identity: &Identity, certificate: &str, data: &Path) -> Result<(), OpenError> {
    let Some(genesis) = node.genesis() else {
        return Ok(());
    };
    match node.roster().members.values().find(|member| member.node == identity.node) {
        Some(member) if member.name != certificate => Err(OpenError::Member {
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
pub async fn mend(data: &Path, mut log: Log<FileDisk>, replayed: Replayed) -> Result<Log<FileDisk>, OpenError> {
    let place = data.display().to_string();
    let work = move || {
        let failed = |error: DiskError| OpenError::Log(place.clone(), error.to_string());
        // With too little space the node would stop at its first writes, or even before.
        if let Some(shortage) = log.shortage().map_err(failed)? {
            return Err(OpenError::NoRoom(place, log.disk().is_bounded(), shortage));
        }
        log.mend().map_err(|error| OpenError::Log(place, error.to_string()))?;
        Ok(log)
    };
    let log = away(data, work).await?;
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

/// Compacts a long log before its node serves anything. A snapshot that cannot be written stops no start.
pub async fn compact_at_start(
    data: &Path,
    mut node: Node,
    mut log: Log<FileDisk>,
    replayed: Replayed,
) -> Result<(Node, Log<FileDisk>), OpenError> {
    let place = data.display().to_string();
    let work = move || {
        let (started, before) = (std::time::Instant::now(), log.stats());
        if log.is_long_at_start() && replayed.lost_records == 0 {
            let (history_bytes, snapshot_bytes) = (before.history_bytes, before.snapshot_bytes);
            tracing::info!(history_bytes, snapshot_bytes, "the log is compacted before anything is served");
        }
        let compacted = compact(&mut node, &mut log, &replayed, When::Long);
        let elapsed_ms = milliseconds(started.elapsed());
        match compacted.map_err(|error| OpenError::Log(place, error.to_string()))? {
            // Of lost records the replay has told already.
            Compacted::Short | Compacted::GivenUp(Hindrance::Lost(_)) => {}
            Compacted::Whole => {
                let snapshot_bytes = log.stats().snapshot_bytes;
                tracing::info!(elapsed_ms, snapshot_bytes, "a snapshot stands for all of the log before it");
            }
            Compacted::GivenUp(why) => {
                let said = "the log was not compacted before the start; the node starts with it as it is, and tries again while it serves";
                tracing::warn!(elapsed_ms, %why, "{said}");
            }
        }
        Ok((node, log))
    };
    away(data, work).await
}

/// Works on the log on a blocking thread.
async fn away<T: Send + 'static>(
    data: &Path,
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(OpenError::Log(data.display().to_string(), error.to_string())),
    }
}

/// Describes which limit leaves too little space, and the remedy.
fn shortage_text(data: &str, bounded: bool, shortage: &Shortage) -> String {
    let Shortage { free_bytes, least_bytes, ample_bytes } = shortage;
    let (what, how) = match bounded {
        true => (format!("the data directory {data} is as large as the setting `disk_bytes_max` allows"), "raise that"),
        false => (
            format!("the disk of the data directory {data} is full"),
            "make it larger, or move files of other programs away",
        ),
    };
    format!(
        "{what}: {free_bytes} bytes are free, a node starts with {least_bytes} and takes new tasks with {ample_bytes} (three times its \
         `reserve_bytes`); {how}, and remove no file of the data directory; nothing was changed there"
    )
}
