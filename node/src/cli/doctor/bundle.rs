//! `--bundle FILE`: what was found, for those who are asked for help. A tar archive, so that each part is a file that other programs read
//! as it is, and a person takes out what is not to be passed on.

use super::super::failure::Failure;
use norn_cli::doctor::ClusterSeen;
use norn_client::api::Finding;
use norn_host::clock::unix_seconds;
use norn_storage::verify::Head;
use norn_wire::Versions;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};

/// Directory in the archive.
const ROOT: &str = "norn-doctor";
/// Permissions of each part.
const MODE: u32 = 0o600;

/// The file to write.
#[derive(Debug)]
pub struct Bundle {
    file: PathBuf,
}

impl Bundle {
    /// Checks that the file is not there and that its directory is.
    pub fn new(file: &Path) -> Result<Bundle, Failure> {
        let shown = file.display();
        if file.symlink_metadata().is_ok() {
            return Err(Failure::refused(format!(
                "{shown} exists already and is not overwritten; name another with --bundle"
            )));
        }
        if file.file_name().is_none() || !parent(file).is_dir() {
            return Err(Failure::usage(format!("--bundle {shown}: {} is no directory", parent(file).display())));
        }
        Ok(Bundle { file: file.to_owned() })
    }

    /// Writes the archive, whole or not at all.
    pub fn write(
        &self,
        findings: &[Finding<'_>],
        settings: Option<String>,
        cluster: Option<&ClusterSeen>,
        heads: &[Head],
    ) -> Result<(), Failure> {
        let lines = |rows: Vec<serde_json::Value>| rows.iter().map(|row| format!("{row}\n")).collect::<String>();
        let findings: Vec<_> = findings.iter().map(|finding| json!(finding)).collect();
        let mut parts = vec![("doctor.jsonl", lines(findings)), ("versions.json", format!("{}\n", versions()))];
        parts.extend(settings.map(|settings| ("settings.toml", settings)));
        if !heads.is_empty() {
            parts.push(("log-heads.jsonl", lines(heads.iter().map(head).collect())));
        }
        parts.extend(cluster.into_iter().flat_map(ClusterSeen::files));
        self.archive(&parts).map_err(|error| {
            Failure::refused(format!("cannot write {}: {error}; nothing was written", self.file.display()))
        })
    }

    fn archive(&self, parts: &[(&str, String)]) -> io::Result<()> {
        // Only the owner reads it.
        let half = tempfile::NamedTempFile::new_in(parent(&self.file))?;
        let mut archive = tar::Builder::new(half);
        let time_s = u64::try_from(unix_seconds()).unwrap_or_default();
        for (name, text) in parts {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(MODE);
            header.set_mtime(time_s);
            archive.append_data(&mut header, format!("{ROOT}/{name}"), text.as_bytes())?;
        }
        let half = archive.into_inner()?;
        half.as_file().sync_all()?;
        half.persist_noclobber(&self.file).map_err(|error| error.error).map(|_| ())
    }
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Versions of the program and the system.
fn versions() -> serde_json::Value {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    json!({
        "norn": env!("CARGO_PKG_VERSION"),
        "protocols": [Versions::SPOKEN.oldest, Versions::SPOKEN.newest],
        "system": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "kernel": release.as_deref().map(str::trim),
    })
}

fn head(head: &Head) -> serde_json::Value {
    let Head { file, bytes, header } = head;
    match header {
        Ok(header) => json!({
            "file": file, "bytes": bytes, "cluster": header.cluster.to_string(), "node": header.node.to_string(),
            "segment": header.segment, "first_ordinal": header.first_ordinal, "slots": header.slots,
        }),
        Err(fault) => json!({ "file": file, "bytes": bytes, "fault": fault }),
    }
}
