//! Scenes on real nodes: processes on loopback, with the client library.

use super::{CLIENTS, Host, NODES, Play};
use crate::{Cluster, ClusterOptions, wait};
use norn_client::client::Client;
use norn_client::session::Call;
use norn_wire::{Error, Response};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

const PARTITIONS: u32 = 16;

/// Real nodes as a host of scenes.
pub struct Real {
    cluster: RefCell<Cluster>,
    clients: Vec<Client>,
    started: Instant,
}

impl Real {
    /// Starts a cluster and its clients.
    pub async fn start() -> Rc<Real> {
        let cluster =
            Cluster::start_with(ClusterOptions { nodes: NODES, partitions: PARTITIONS, ..ClusterOptions::default() });
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(cluster.client().await);
        }
        Rc::new(Real { cluster: RefCell::new(cluster), clients, started: Instant::now() })
    }

    /// Plays these scenes at the same time until all have ended. Prints failures, and returns the names of the failed scenes.
    pub async fn play(self: &Rc<Self>, plays: &[Play]) -> Vec<&'static str> {
        let local = LocalSet::new();
        let timed = |play: &Play| {
            let (name, playing, began) = (play.name, (play.real)(self.clone()), self.now());
            let host = self.clone();
            local.spawn_local(async move {
                playing.await;
                eprintln!("{name}: {:.1} s", (host.now() - began).as_secs_f64());
            })
        };
        let scenes: Vec<_> = plays.iter().map(|play| (play.name, timed(play))).collect();
        let failed = local.run_until(async {
            let mut failed = Vec::new();
            for (name, scene) in scenes {
                if scene.await.is_err() {
                    failed.push(name);
                }
            }
            failed
        });
        failed.await
    }

    /// Waits, after the last scene, until all nodes serve and all replicas agree.
    pub async fn settle(self: Rc<Self>) {
        let real = Rc::into_inner(self).expect("no scene is played any more");
        real.cluster.into_inner().wait_agreed().await;
    }
}

impl Host for Real {
    async fn call(&self, client: usize, call: Call, patience: Duration) -> Result<Response, Error> {
        self.clients[client].call(call, Some(patience)).await
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn pass(&self, length: Duration) {
        wait::until_instant(Instant::now() + length).await;
    }

    fn patience(&self) -> Duration {
        wait::PATIENCE
    }

    fn scaled(&self, length: Duration) -> Duration {
        wait::scaled(length)
    }

    async fn heard(&self) {
        let looks = || async { self.cluster.borrow().have_heard_changes().then_some(()) };
        wait::eventually("all nodes have heard what was set", wait::PATIENCE, looks).await;
    }

    fn kill(&self, node: usize) {
        self.cluster.borrow_mut().kill(node);
    }

    fn restart(&self, node: usize) {
        let mut cluster = self.cluster.borrow_mut();
        cluster.restart(node);
        cluster.wait_ready(node);
    }
}
