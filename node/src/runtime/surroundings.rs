//! What the doors tell of files: room on the disk, and when certificates expire.

use norn_client::tls::{CertificateFiles, Validity};
use norn_doors::metrics::measures::{CertificateEnd, Surroundings};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Looks at files, one look at a time: a disk that does not answer holds up one thread, and no more.
#[derive(Debug)]
pub(in crate::runtime) struct Lookout {
    data: PathBuf,
    certificates: CertificateFiles,
    looks: Arc<Semaphore>,
}

impl Lookout {
    /// Looks at this data directory and these files.
    pub fn new(data: PathBuf, certificates: CertificateFiles) -> Lookout {
        Lookout { data, certificates, looks: Arc::new(Semaphore::new(1)) }
    }

    /// What is seen. `None`: an earlier look goes on.
    pub async fn look(&self) -> Option<Surroundings> {
        let place = Arc::clone(&self.looks).try_acquire_owned().ok()?;
        let (data, certificates) = (self.data.clone(), self.certificates.clone());
        let look = move || {
            let seen = see(&data, &certificates);
            drop(place);
            seen
        };
        tokio::task::spawn_blocking(look).await.ok()
    }
}

fn see(data: &Path, certificates: &CertificateFiles) -> Surroundings {
    let system = rustix::fs::statvfs(data).ok();
    let ends = [&certificates.authority, &certificates.certificate].into_iter().filter_map(|path| end_of(path));
    Surroundings {
        disk_free_bytes: system.map(|system| system.f_bavail.saturating_mul(system.f_frsize)),
        certificates: ends.collect(),
    }
}

/// The end of the certificate in a file that expires first.
fn end_of(path: &Path) -> Option<CertificateEnd> {
    let certificates = CertificateDer::pem_file_iter(path).ok()?;
    let ends = certificates.filter_map(|certificate| Some(Validity::of(&certificate.ok()?).ok()?.until_s));
    Some(CertificateEnd { file: path.file_name()?.to_string_lossy().into_owned(), at_s: ends.min()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::certificates::{DAYS, Present, Role, create, create_authority};

    #[tokio::test]
    async fn room_and_certificates_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        create_authority(directory.path(), 10 * DAYS).unwrap();
        let made = create(directory.path(), Role::Node, "n", &[], DAYS, Present::Kept).unwrap();
        let lookout = Lookout::new(directory.path().to_owned(), made.files);
        let seen = lookout.look().await.unwrap();
        assert!(seen.disk_free_bytes > Some(0));
        let files: Vec<&str> = seen.certificates.iter().map(|certificate| certificate.file.as_str()).collect();
        assert_eq!(files, ["ca.crt", "node-n.crt"]);
        assert_eq!(seen.certificates[1].at_s, made.validity.until_s);
        let _busy = Arc::clone(&lookout.looks).try_acquire_owned().unwrap();
        assert_eq!(lookout.look().await, None, "one look at a time");
    }
}
