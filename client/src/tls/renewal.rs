//! Certificate files that are read again when they change.
//!
//! The set of files is replaced as a whole or not at all: while an operator replaces them one by one, or after a mistake, the previous
//! set stays in use. Open connections continue in any case, as a certificate is checked in the handshake alone.

use super::credentials::{CertificateFiles, Contents, Credentials};
use super::{TlsError, validity};
use crate::dial::{Reason, Shown};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Timeout for reading the files before a new connection.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between repeats of a warning.
pub const REMIND_INTERVAL: Duration = Duration::from_secs(86_400);

/// Result of reading the files again.
#[derive(Debug, PartialEq, Eq)]
pub enum Look<T> {
    /// Nothing new.
    Same,
    /// A new set, which is in use from now on, with the product of `make`.
    Renewed(T),
    /// The files have changed and cannot be used, for a reason not reported before: the set in use stays.
    Refused(String),
}

/// Credentials that follow changes of their files.
#[derive(Clone)]
pub struct Renewal {
    files: CertificateFiles,
    used: Contents,
    current: Arc<Credentials>,
    /// Unusable contents, and the reason without the time of the check.
    refused: Option<(Contents, String)>,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The contents are secret.
        formatter.debug_struct("Renewal").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Renewal {
    /// Reads the files for the first time, as of `now_s`, in seconds since 1970. May block.
    pub fn start(files: CertificateFiles, now_s: i64) -> Result<Renewal, TlsError> {
        let used = files.read();
        let current = Arc::new(Credentials::parse(&files, &used, now_s)?);
        Ok(Renewal { files, used, current, refused: None })
    }

    /// As [`Renewal::start`], as of now. May block.
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

    /// Reads the files again. A new set is in use once `make` has succeeded in making from it what connections need. May block.
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
        // Refused contents are tried again: they may only have been early.
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

    /// Builds credentials from new contents, or returns the reason against it: once in full, and once without the current time.
    fn take<T, E: fmt::Display>(
        &self,
        contents: &Contents,
        now_s: i64,
        make: impl FnOnce(&Credentials) -> Result<T, E>,
    ) -> Result<(Credentials, T), (String, String)> {
        let said = |reason: String| (reason.clone(), reason);
        let credentials = Credentials::parse(&self.files, contents, now_s)
            .map_err(|error| (error.to_string(), error.undated().to_string()))?;
        // If the present certificate is not of a trusted authority, as where clients and nodes have different ones, the new one need
        // not be either.
        if self.current.check_chain(now_s.min(self.current.validity().until_s)).is_ok() {
            credentials.check_chain(now_s).map_err(|error| said(error.to_string()))?;
        }
        let made = make(&credentials).map_err(|error| said(error.to_string()))?;
        Ok((credentials, made))
    }
}

type Build = fn(&Credentials) -> Result<quinn::ClientConfig, TlsError>;

/// Configuration of outgoing connections. Changed files are picked up before each connection.
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

    /// As [`Outgoing::start`], with files that have been read already.
    pub fn with(renewal: Renewal, build: Build) -> Result<Outgoing, TlsError> {
        let used = Arc::new(Mutex::new((build(renewal.current())?, renewal.current().shown())));
        Ok(Outgoing { renewal: Arc::new(tokio::sync::Mutex::new(renewal)), used, build })
    }

    /// Configuration of the next connection.
    pub async fn config(&self) -> quinn::ClientConfig {
        // One read at a time, so that unreadable files hold no more than one thread.
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
            // A slower read takes effect for a later connection.
            let _ = tokio::time::timeout(READ_TIMEOUT, look).await;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Why a connection made with this configuration failed or ended.
    pub fn explain(&self, error: &quinn::ConnectionError) -> Reason {
        Reason::of(error, Some(&self.shown()))
    }

    /// What new connections present and trust.
    pub fn shown(&self) -> Shown {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Warns of certificates that expire soon, now and once a day. Never ends.
    pub async fn remind(&self) {
        loop {
            self.config().await;
            let current = Arc::clone(self.renewal.lock().await.current());
            report_warnings(&current, validity::now_s());
            tokio::time::sleep(REMIND_INTERVAL).await;
        }
    }
}

/// Logs certificates that have expired.
pub fn report_expired(credentials: &Credentials, now_s: i64) {
    for expired in credentials.expired(now_s) {
        tracing::error!("{expired}");
    }
}

/// Logs certificates that expire soon, or have expired.
pub fn report_warnings(credentials: &Credentials, now_s: i64) {
    report_expired(credentials, now_s);
    for warning in credentials.warnings(now_s) {
        tracing::warn!("{warning}");
    }
}

/// Logs that a new set of files is in use.
pub fn report_renewed(credentials: &Credentials) {
    let certificate = credentials.files().certificate.display();
    let valid_until = validity::Date(credentials.validity().until_s);
    tracing::info!(%certificate, %valid_until, "new certificate files are in use for new connections");
}

/// Logs that the changed files are not used.
pub fn report_refused(reason: &str) {
    tracing::warn!(
        reason,
        "the certificate files have changed and cannot be used; those that were read before stay in use"
    );
}
