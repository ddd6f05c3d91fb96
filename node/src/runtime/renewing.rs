//! A node's certificate files, read again when they change and when an operator asks for it.
//!
//! New connections of both directions use the new set as soon as it can be used. Connections that are open go on, even if the
//! authority is another one: the certificate of the other side was verified when it connected, and to end them all at once would
//! interrupt every client and every link of a cluster for a routine renewal. An operator who gives up an authority because its key
//! has leaked restarts the nodes, one after the other.

use crate::runtime::certificates::CertificateFiles;
use crate::runtime::clock::unix_seconds;
use crate::runtime::server::{StartError, check_certificate};
use crate::runtime::tls::Credentials;
use crate::runtime::transport::{peer_config, server_config};
use norn_client::tls::{Look, REMIND_INTERVAL, Renewal, report_refused, report_renewed, report_warnings};
use norn_client::wire::Versions;
use quinn::{ClientConfig, Endpoint, ServerConfig};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The files before the node runs.
#[derive(Debug)]
pub struct Opened {
    renewal: Renewal,
    name: String,
    speaks: Versions,
}

impl Opened {
    /// Reads the files of a node of that name, and warns of what expires soon. May block.
    pub fn read(files: &CertificateFiles, name: &str, speaks: Versions) -> Result<Opened, StartError> {
        let opened = Renewal::start(files.clone(), unix_seconds()).map_err(crate::runtime::tls::TlsError::from)?;
        check_certificate(opened.current(), name)?;
        report_warnings(opened.current(), unix_seconds());
        Ok(Opened { renewal: opened, name: name.to_owned(), speaks })
    }

    /// The files as they were read.
    pub fn renewal(&self) -> &Renewal {
        &self.renewal
    }

    /// What the endpoint is bound with.
    pub fn server_config(&self) -> Result<ServerConfig, StartError> {
        Ok(server_config(self.renewal.current(), self.speaks)?)
    }

    /// What the first links are made with.
    pub fn peer_config(&self) -> Result<ClientConfig, StartError> {
        Ok(peer_config(self.renewal.current(), self.speaks)?)
    }

    /// Looks at the files again every `interval`, and when it is `asked` for. Ends with the receivers of `links`.
    pub async fn run(
        mut self,
        endpoint: Endpoint,
        links: watch::Sender<ClientConfig>,
        asked: Arc<Notify>,
        interval: Duration,
    ) {
        let mut remind_at = Instant::now() + REMIND_INTERVAL;
        loop {
            let is_asked = tokio::select! {
                () = tokio::time::sleep(interval) => false,
                () = asked.notified() => true,
                () = links.closed() => return,
            };
            // A disk that does not answer holds this task and one thread, and no more.
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
                Look::Renewed((server, peers)) => {
                    endpoint.set_server_config(Some(server));
                    links.send_replace(peers);
                    report_renewed(self.renewal.current());
                    report_warnings(self.renewal.current(), unix_seconds());
                    remind_at = Instant::now() + REMIND_INTERVAL;
                }
                Look::Refused(reason) => report_refused(&reason),
                Look::Same if is_asked => tracing::info!("the certificate files are those in use"),
                Look::Same => {}
            }
            if Instant::now() >= remind_at {
                report_warnings(self.renewal.current(), unix_seconds());
                remind_at = Instant::now() + REMIND_INTERVAL;
            }
        }
    }

    fn look(&mut self, is_asked: bool) -> Look<(ServerConfig, ClientConfig)> {
        if is_asked {
            self.renewal.report_again();
        }
        let (name, speaks) = (&self.name, self.speaks);
        self.renewal.look(unix_seconds(), |own: &Credentials| -> Result<_, StartError> {
            check_certificate(own, name)?;
            Ok((server_config(own, speaks)?, peer_config(own, speaks)?))
        })
    }
}
