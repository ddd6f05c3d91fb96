//! Certificate renewal: a node's certificate files are reread when they change, and when an operator requests it.
//!
//! New connections of both directions use the new set as soon as it is usable. Open connections continue, even if the authority has
//! changed: the other side's certificate was verified when it connected, and ending them all at once would interrupt every client and
//! every link of a cluster for a routine renewal. An operator who abandons an authority because its key has leaked restarts the
//! nodes, one after the other.

use crate::runtime::certificates::CertificateFiles;
use crate::runtime::server::start::{StartError, check_certificate};
use crate::runtime::tls::door_config;
use crate::runtime::transport::{PeerConfig, peer_config, server_config};
use norn_client::tls::{
    Credentials, Look, REMIND_INTERVAL, Renewal, report_expired, report_refused, report_renewed, report_warnings,
};
use norn_host::clock::unix_seconds;
use norn_wire::Versions;
use quinn::{Endpoint, ServerConfig};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Where new configurations go.
#[derive(Debug)]
pub struct Renewed {
    /// To the links between nodes.
    pub links: watch::Sender<PeerConfig>,
    /// To the HTTP listener.
    pub doors: watch::Sender<Arc<rustls::ServerConfig>>,
}

/// The certificate files before the node runs.
#[derive(Debug)]
pub struct Opened {
    renewal: Renewal,
    name: String,
    speaks: Versions,
}

impl Opened {
    /// Reads the files of a node of this name, and warns of certificates that expire soon. May block.
    pub fn read(files: &CertificateFiles, name: &str, speaks: Versions) -> Result<Opened, StartError> {
        let opened = Renewal::start(files.clone(), unix_seconds()).map_err(crate::runtime::tls::TlsError::from)?;
        check_certificate(opened.current(), name)?;
        report_warnings(opened.current(), unix_seconds());
        Ok(Opened { renewal: opened, name: name.to_owned(), speaks })
    }

    /// The files as read.
    pub fn renewal(&self) -> &Renewal {
        &self.renewal
    }

    /// Configuration for the endpoint.
    pub fn server_config(&self) -> Result<ServerConfig, StartError> {
        Ok(server_config(self.renewal.current(), self.speaks)?)
    }

    /// Configuration for the first links.
    pub fn peer_config(&self) -> Result<PeerConfig, StartError> {
        Ok(peer_config(self.renewal.current(), self.speaks)?)
    }

    /// Configuration of the HTTP listener.
    pub fn door_config(&self) -> Result<Arc<rustls::ServerConfig>, StartError> {
        Ok(door_config(self.renewal.current())?)
    }

    /// Rereads the files every `interval`, and when `asked` is notified. Ends with the receivers of the links.
    pub async fn run(mut self, endpoint: Endpoint, renewed: Renewed, asked: Arc<Notify>, interval: Duration) {
        let Renewed { links, doors } = renewed;
        let mut remind_at = Instant::now() + REMIND_INTERVAL;
        let mut expired = self.renewal.current().expired(unix_seconds());
        loop {
            let is_asked = tokio::select! {
                () = tokio::time::sleep(pause(self.renewal.current(), unix_seconds(), interval)) => false,
                () = asked.notified() => true,
                () = links.closed() => return,
            };
            // A disk that does not answer blocks this task and one thread, and no more.
            let looked = tokio::task::spawn_blocking(move || {
                let look = self.look(is_asked);
                (self, look)
            });
            let look = match looked.await {
                Ok((opened, look)) => {
                    self = opened;
                    look
                }
                Err(error) => return tracing::error!(%error, "the certificate files are not read again"),
            };
            match look {
                Look::Renewed((server, peers, door)) => {
                    doors.send_replace(door);
                    endpoint.set_server_config(Some(server));
                    links.send_replace(peers);
                    report_renewed(self.renewal.current());
                    report_warnings(self.renewal.current(), unix_seconds());
                    remind_at = Instant::now() + REMIND_INTERVAL;
                    expired = self.renewal.current().expired(unix_seconds());
                }
                Look::Refused(reason) => {
                    report_refused(&reason);
                    if is_asked {
                        report_expired(self.renewal.current(), unix_seconds());
                    }
                }
                Look::Same if is_asked => report_same(self.renewal.current(), unix_seconds()),
                Look::Same => {}
            }
            let current = self.renewal.current();
            let by_now = current.expired(unix_seconds());
            if Instant::now() >= remind_at {
                report_warnings(current, unix_seconds());
                remind_at = Instant::now() + REMIND_INTERVAL;
            } else if by_now != expired && !is_asked {
                report_expired(current, unix_seconds());
            }
            expired = by_now;
        }
    }

    fn look(&mut self, is_asked: bool) -> Look<(ServerConfig, PeerConfig, Arc<rustls::ServerConfig>)> {
        if is_asked {
            self.renewal.report_again();
        }
        let (name, speaks) = (&self.name, self.speaks);
        self.renewal.look(unix_seconds(), |own: &Credentials| -> Result<_, StartError> {
            check_certificate(own, name)?;
            Ok((server_config(own, speaks)?, peer_config(own, speaks)?, door_config(own)?))
        })
    }
}

/// Time until the files are reread, or a certificate in use expires.
fn pause(current: &Credentials, now_s: i64, interval: Duration) -> Duration {
    let left_s = current.next_end_s(now_s).and_then(|end_s| u64::try_from(end_s.saturating_sub(now_s)).ok());
    left_s.map_or(interval, |left_s| interval.min(Duration::from_secs(left_s)))
}

/// Answers an operator's request: unchanged files are no good news if they have expired.
fn report_same(current: &Credentials, now_s: i64) {
    match current.expired(now_s).is_empty() {
        true => tracing::info!("the certificate files are those in use"),
        false => {
            tracing::error!("the certificate files are those in use, and a certificate in them has expired");
            report_expired(current, now_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::certificates::{DAYS, Present, Role, create, create_authority};
    use crate::runtime::tests::Logged;

    /// Goal: the log reports when a certificate in use expires, and does not report success then. Method: checks at seconds around
    /// the end.
    #[test]
    fn an_end_wakes_the_node_and_is_said_to_whoever_asks() {
        let directory = tempfile::tempdir().unwrap();
        create_authority(directory.path(), 10 * DAYS).unwrap();
        let made = create(directory.path(), Role::Node, "n", &[], DAYS, Present::Kept).unwrap();
        let own = crate::runtime::tls::load(&made.files).unwrap();
        let (until_s, interval) = (made.validity.until_s, Duration::from_secs(3_600));
        let pauses = [-7_200, -2, 0, 1].map(|from_end_s| pause(&own, until_s + from_end_s, interval).as_secs());
        assert_eq!(pauses, [3_600, 3, 1, 3_600]);

        let logged = Logged::default();
        let writer = logged.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _subscribed = tracing::subscriber::set_default(subscriber);
        report_same(&own, until_s);
        assert!(logged.lines().iter().all(|line| line.contains("INFO")), "{:?}", logged.lines());
        report_same(&own, until_s + 1);
        let said = logged.lines();
        let expired =
            |line: &&String| line.contains("ERROR") && line.contains("node-n.crt: the certificate has expired on ");
        assert_eq!((said.len(), said.iter().filter(expired).count()), (3, 1), "{said:?}");
    }
}
