//! Redis with `appendfsync always`: one server, no replica. The usual recipe: a list, and a list of what is being processed.

use super::install::{self, Programs};
use super::peer::{About, Peer, failures_of_call, usage_of};
use super::place::{Place, Program, Server, free_ports};
use crate::system::{Answer, Client, System, Usage};
use anyhow::{Result, bail, ensure};
use norn_wire::QueueName;
use redis::aio::MultiplexedConnection;
use redis::{AsyncTypedCommands, pipe};
use rustix::process::Signal;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the server may take to become ready.
const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: [&str; 8] = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--bind", "127.0.0.1"];

/// A running server.
pub struct Redis {
    // The server ends before its directory goes.
    server: Mutex<Server>,
    program: Program,
    place: Place,
    port: u16,
    about: About,
}

impl Redis {
    /// Finds or installs the program and starts it.
    pub async fn start(programs: &Programs, directory: &Path) -> Result<Redis> {
        let (path, libraries) = match install::on_path("redis-server") {
            Some(found) => (found, String::new()),
            None => {
                let directory = programs.unpack_debian("redis", &["redis-server"])?;
                let program = install::installed(&directory, "usr/bin/redis-server")?;
                (program, install::library_path(&directory))
            }
        };
        let place = Place::new(directory, "redis")?;
        let port = free_ports(1)?[0];
        let program = Program::new(&path).variable("LD_LIBRARY_PATH", &libraries);
        let version = place.run(&program.clone().args(["--version"]))?.trim().to_owned();
        let program = program.args(SETTINGS).args(["--port", &port.to_string(), "--dir"]).path(&place.path(""));
        let mut server = place.start("redis", &program, Signal::KILL)?;
        let address = address(port);
        server.ready(PATIENCE, async || ping(&address).await).await?;
        let settings = vec!["appendonly yes".to_owned(), "appendfsync always".to_owned(), "save \"\"".to_owned()];
        let acknowledged = "synced on the only server: no replica".to_owned();
        let about = About { version, settings, acknowledged };
        Ok(Redis { server: Mutex::new(server), program, place, port, about })
    }
}

fn address(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

async fn connect(address: &str) -> Result<MultiplexedConnection> {
    // The default time limit would end a call that waits for a slow sync.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    Ok(redis::Client::open(address)?.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn ping(address: &str) -> Result<()> {
    let mut connection = connect(address).await?;
    let pong: String = redis::cmd("PING").query_async(&mut connection).await?;
    ensure!(pong == "PONG", "it says {pong}");
    Ok(())
}

impl System for Redis {
    fn connect<'a>(&'a self, _: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Client>>> {
        Box::pin(async move {
            let connection = connect(&address(self.port)).await?;
            let held = Vec::new();
            Ok(Box::new(Session { connection, queue: queue.to_string(), processing: processing(queue), held })
                as Box<_>)
        })
    }

    fn usage(&self) -> Answer<'_, Result<Usage>> {
        Box::pin(async { usage_of(&self.pids()) })
    }
}

fn processing(queue: &QueueName) -> String {
    format!("{queue}:processing")
}

impl Peer for Redis {
    fn about(&self) -> &About {
        &self.about
    }

    fn pids(&self) -> Vec<u32> {
        vec![self.server.lock().unwrap_or_else(PoisonError::into_inner).pid()]
    }

    fn prepare<'a>(&'a self, _: &'a QueueName) -> Answer<'a, Result<()>> {
        // A list is there once something is in it.
        Box::pin(async { Ok(()) })
    }

    fn kill_one(&self) -> Answer<'_, Result<String>> {
        Box::pin(async {
            let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
            server.kill()?;
            *server = self.place.start("redis", &self.program, Signal::KILL)?;
            Ok("the only server killed and started again at once".to_owned())
        })
    }

    fn recover<'a>(&'a self, queue: &'a QueueName) -> Answer<'a, Result<()>> {
        Box::pin(async move {
            let mut connection = connect(&address(self.port)).await?;
            let mut hand_back = redis::cmd("LMOVE");
            hand_back.arg(processing(queue)).arg(queue.to_string()).arg("RIGHT").arg("RIGHT");
            while hand_back.query_async::<Option<Vec<u8>>>(&mut connection).await?.is_some() {}
            Ok(())
        })
    }
}

/// A client.
struct Session {
    connection: MultiplexedConnection,
    queue: String,
    /// List of what workers hold.
    processing: String,
    held: Vec<Vec<u8>>,
}

impl Session {
    async fn try_claim(&mut self, max: usize) -> Result<Vec<Vec<u8>>> {
        let mut moves = pipe();
        for _ in 0..max {
            moves.cmd("LMOVE").arg(&self.queue).arg(&self.processing).arg("RIGHT").arg("LEFT");
        }
        let moved: Vec<Option<Vec<u8>>> = moves.query_async(&mut self.connection).await?;
        Ok(moved.into_iter().flatten().collect())
    }

    async fn try_complete(&mut self, held: &[Vec<u8>]) -> Result<u64> {
        let mut removals = pipe();
        for payload in held {
            removals.cmd("LREM").arg(&self.processing).arg(1).arg(payload);
        }
        let removed: Vec<u64> = removals.query_async(&mut self.connection).await?;
        let done = removed.iter().sum();
        if done < held.len() as u64 {
            bail!("{} tasks were no longer there", held.len() as u64 - done);
        }
        Ok(done)
    }
}

impl Client for Session {
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>> {
        Box::pin(
            async move { failures_of_call(self.connection.lpush(&self.queue, payloads).await.map_err(Into::into)) },
        )
    }

    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move {
            let payloads = self.try_claim(max).await?;
            self.held.extend(payloads.iter().cloned());
            Ok(payloads)
        })
    }

    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)> {
        Box::pin(async {
            let held = std::mem::take(&mut self.held);
            match self.try_complete(&held).await {
                Ok(done) => (done, Vec::new()),
                Err(error) => (0, vec![format!("{error:#}")]),
            }
        })
    }

    fn close(self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}
