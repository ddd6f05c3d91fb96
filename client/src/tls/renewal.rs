//! Certificate files that are read again.
//!
//! The set of files is taken as a whole or not at all: while an operator replaces them one by one, or has put something wrong in
//! their place, the set that was read before stays in use. What is open goes on in any case, as a certificate is looked at in the
//! handshake alone.

use super::credentials::{CertificateFiles, Contents, Credentials};
use super::{TlsError, validity};
use crate::dial::{Reason, Shown};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a new connection waits for the files to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Between warnings of the same.
pub const REMIND_INTERVAL: Duration = Duration::from_secs(86_400);

/// What a look at the files has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Look<T> {
    /// Nothing that was not known.
    Same,
    /// A new set, which is in use from now on, and what was made of it.
    Renewed(T),
    /// The files are others and cannot be used, for a reason that has not been reported: the set in use stays.
    Refused(String),
}

/// Credentials that follow their files.
#[derive(Clone)]
pub struct Renewal {
    files: CertificateFiles,
    used: Contents,
    current: Arc<Credentials>,
    /// Contents that cannot be used, and why, but for when they were looked at.
    refused: Option<(Contents, String)>,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The contents are secret.
        formatter.debug_struct("Renewal").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Renewal {
    /// Reads the files for the first time, as of a second since 1970. May block.
    pub fn start(files: CertificateFiles, now_s: i64) -> Result<Renewal, TlsError> {
        let used = files.read();
        let current = Arc::new(Credentials::parse(&files, &used, now_s)?);
        Ok(Renewal { files, used, current, refused: None })
    }

    /// The same as of now. May block.
    pub fn now(files: CertificateFiles) -> Result<Renewal, TlsError> {
        Renewal::start(files, validity::now_s())
    }

    /// The set in use.
    pub fn current(&self) -> &Arc<Credentials> {
        &self.current
    }

    /// Forgets what was reported, so that the next look reports it again.
    pub fn report_again(&mut self) {
        if let Some((_, reason)) = &mut self.refused {
            reason.clear();
        }
    }

    /// Reads the files again. A new set is in use once `make` has made of it what connections need. May block.
    pub fn look<T, E: fmt::Display>(&mut self, now_s: i64, make: impl FnOnce(&Credentials) -> Result<T, E>) -> Look<T> {
        if !self.files.are_lasting() {
            return Look::Same;
        }
        let contents = self.files.read();
        if contents == self.used {
            if self.refused.take().is_some() {
                tracing::info!("the certificate files are usable again: they are those in use");
            }
            return Look::Same;
        }
        // What was refused is tried again, as it may only have been too early for it.
        match self.take(&contents, now_s, make) {
            Ok((credentials, made)) => {
                (self.used, self.current, self.refused) = (contents, Arc::new(credentials), None);
                Look::Renewed(made)
            }
            Err((reason, undated)) => {
                let refused = Some((contents, undated));
                if self.refused == refused {
                    return Look::Same;
                }
                self.refused = refused;
                Look::Refused(reason)
            }
        }
    }

    /// Makes a new set of contents, or says why not: once in full, and once without the present time.
    fn take<T, E: fmt::Display>(
        &self,
        contents: &Contents,
        now_s: i64,
        make: impl FnOnce(&Credentials) -> Result<T, E>,
    ) -> Result<(Credentials, T), (String, String)> {
        let said = |reason: String| (reason.clone(), reason);
        let credentials = Credentials::parse(&self.files, contents, now_s)
            .map_err(|error| (error.to_string(), error.undated().to_string()))?;
        // A side that never was of an authority that it trusts, as where clients and nodes have different ones, need not be now.
        if self.current.check_chain(now_s.min(self.current.validity().until_s)).is_ok() {
            credentials.check_chain(now_s).map_err(|error| said(error.to_string()))?;
        }
        let made = make(&credentials).map_err(|error| said(error.to_string()))?;
        Ok((credentials, made))
    }
}

type Build = fn(&Credentials) -> Result<quinn::ClientConfig, TlsError>;

/// What outgoing connections are made with. The files are looked at before each of them.
#[derive(Debug)]
pub struct Outgoing {
    renewal: Arc<tokio::sync::Mutex<Renewal>>,
    used: Arc<Mutex<(quinn::ClientConfig, Shown)>>,
    build: Build,
}

impl Outgoing {
    /// Reads the files for the first time. `build` adds the transport's settings. May block.
    pub fn start(files: CertificateFiles, build: Build) -> Result<Outgoing, TlsError> {
        Outgoing::with(Renewal::now(files)?, build)
    }

    /// The same with files that have been read.
    pub fn with(renewal: Renewal, build: Build) -> Result<Outgoing, TlsError> {
        let used = Arc::new(Mutex::new((build(renewal.current())?, renewal.current().shown())));
        Ok(Outgoing { renewal: Arc::new(tokio::sync::Mutex::new(renewal)), used, build })
    }

    /// For the next connection.
    pub async fn config(&self) -> quinn::ClientConfig {
        // One look at a time, so that files which cannot be read for a while hold no more than one thread.
        if let Ok(mut renewal) = Arc::clone(&self.renewal).try_lock_owned() {
            let (used, build) = (Arc::clone(&self.used), self.build);
            let look = tokio::task::spawn_blocking(move || match renewal.look(validity::now_s(), build) {
                Look::Same => {}
                Look::Renewed(renewed) => {
                    *used.lock().unwrap_or_else(PoisonError::into_inner) = (renewed, renewal.current().shown());
                    report_renewed(renewal.current());
                }
                Look::Refused(reason) => report_refused(&reason),
            });
            // What takes longer is for a later connection.
            let _ = tokio::time::timeout(READ_TIMEOUT, look).await;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Why a connection that was made with these failed or ended.
    pub fn explain(&self, error: &quinn::ConnectionError) -> Reason {
        Reason::of(error, Some(&self.shown()))
    }

    /// What new connections show and trust.
    pub fn shown(&self) -> Shown {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Warns of what expires soon, now and once a day. Never ends.
    pub async fn remind(&self) {
        loop {
            self.config().await;
            let current = Arc::clone(self.renewal.lock().await.current());
            report_warnings(&current, validity::now_s());
            tokio::time::sleep(REMIND_INTERVAL).await;
        }
    }
}

/// Says in the log what has expired.
pub fn report_expired(credentials: &Credentials, now_s: i64) {
    for expired in credentials.expired(now_s) {
        tracing::error!("{expired}");
    }
}

/// Says in the log what expires soon, or has expired.
pub fn report_warnings(credentials: &Credentials, now_s: i64) {
    report_expired(credentials, now_s);
    for warning in credentials.warnings(now_s) {
        tracing::warn!("{warning}");
    }
}

/// Says in the log that a new set of files is in use.
pub fn report_renewed(credentials: &Credentials) {
    let certificate = credentials.files().certificate.display();
    let valid_until = validity::Date(credentials.validity().until_s);
    tracing::info!(%certificate, %valid_until, "new certificate files are in use for new connections");
}

/// Says in the log that the files are not taken.
pub fn report_refused(reason: &str) {
    tracing::warn!(
        reason,
        "the certificate files have changed and cannot be used; those that were read before stay in use"
    );
}
