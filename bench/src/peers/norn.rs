//! Norn: three nodes with default settings, reached over QUIC.

use super::peer::{About, LEASE, Peer, usage_of};
use crate::ClusterOptions;
use crate::ahead::AheadWorker;
use crate::cluster::Cluster;
use crate::system::{Answer, Client, System, Usage};
use crate::worker::LibraryWorker;
use anyhow::Result;
use norn_wire::QueueName;

/// The node that is killed: the first clients start with it, and it leads as many partitions as any.
const VICTIM: usize = 0;

/// A running cluster.
pub struct Norn {
    cluster: Cluster,
    about: About,
    works_ahead: bool,
}

impl Norn {
    /// Starts a cluster. Clients wait for each answer, or work ahead.
    pub async fn start(options: &ClusterOptions, works_ahead: bool) -> Result<Norn> {
        let cluster = Cluster::start(options).await?;
        let mut settings = vec![format!("{} nodes", options.nodes), "sync=always (default)".to_owned()];
        settings.extend(options.settings.iter().cloned());
        let waits =
            if works_ahead { "; the client claims ahead, and waits for a completion at the next one" } else { "" };
        let acknowledged = format!("synced on 2 of 3 nodes{waits}");
        let about = About { version: cluster.version()?, settings, acknowledged };
        Ok(Norn { cluster, about, works_ahead })
    }
}

impl System for Norn {
    fn connect<'a>(&'a self, number: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Client>>> {
        Box::pin(async move {
            let (config, queue) = (self.cluster.config(number), queue.clone());
            Ok(match self.works_ahead {
                true => Box::new(AheadWorker::connect(config, queue, LEASE).await?) as Box<dyn Client>,
                false => Box::new(LibraryWorker::connect(config, queue, Some(LEASE)).await?),
            })
        })
    }

    fn usage(&self) -> Answer<'_, Result<Usage>> {
        Box::pin(async { usage_of(&self.pids()) })
    }
}

impl Peer for Norn {
    fn about(&self) -> &About {
        &self.about
    }

    fn pids(&self) -> Vec<u32> {
        self.cluster.pids()
    }

    fn prepare<'a>(&'a self, _: &'a QueueName) -> Answer<'a, Result<()>> {
        // The first task of a queue makes it.
        Box::pin(async { Ok(()) })
    }

    fn answers_each_call(&self) -> bool {
        !self.works_ahead
    }

    fn kill_one(&self) -> Answer<'_, Result<String>> {
        Box::pin(async {
            self.cluster.kill(VICTIM)?;
            Ok("one of three nodes killed; nothing else done".to_owned())
        })
    }
}
