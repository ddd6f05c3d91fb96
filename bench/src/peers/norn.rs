//! Norn: three nodes with default settings, reached over QUIC.

use super::peer::{About, LEASE, Peer, usage_of};
use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::system::{Answer, Client, System, Usage};
use crate::worker::QuicWorker;
use anyhow::Result;
use norn_wire::QueueName;

/// The node that is killed: the first clients start with it, and it leads as many partitions as any.
const VICTIM: usize = 0;

/// A running cluster.
pub struct Norn {
    cluster: Cluster,
    about: About,
}

impl Norn {
    /// Starts a cluster.
    pub async fn start(options: &ClusterOptions) -> Result<Norn> {
        let cluster = Cluster::start(options).await?;
        let mut settings = vec![format!("{} nodes", options.nodes), "sync=always (default)".to_owned()];
        settings.extend(options.settings.iter().cloned());
        let acknowledged = "synced on 2 of 3 nodes".to_owned();
        let about = About { version: cluster.version()?, settings, acknowledged };
        Ok(Norn { cluster, about })
    }
}

impl System for Norn {
    fn connect<'a>(&'a self, number: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Client>>> {
        Box::pin(async move {
            let worker = QuicWorker::connect(self.cluster.config(number), queue.clone(), Some(LEASE)).await?;
            Ok(Box::new(worker) as Box<dyn Client>)
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

    fn kill_one(&self) -> Answer<'_, Result<String>> {
        Box::pin(async {
            self.cluster.kill(VICTIM)?;
            Ok("one of three nodes killed; nothing else done".to_owned())
        })
    }
}
