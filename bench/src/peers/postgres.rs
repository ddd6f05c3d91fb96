//! PostgreSQL with a synchronous standby: the usual queue in a table, with `SKIP LOCKED`, leases and tokens.

use super::install::{self, Programs};
use super::peer::{About, LEASE, Peer, failures_of_call, usage_of};
use super::place::{Place, Program, Server, free_ports};
use crate::system::{Answer, Client, System, Usage};
use anyhow::{Context, Result, ensure};
use norn_wire::QueueName;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tokio_postgres::{NoTls, Row, Statement};

/// Directories of versions on Debian, below the root or an installed directory.
const DEBIAN: &str = "usr/lib/postgresql";
/// How long a server may take to become ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Settings of both servers, beside addresses.
const SETTINGS: [&str; 4] = [
    "max_connections = 200",
    "shared_buffers = 512MB",
    "synchronous_commit = on",
    "synchronous_standby_names = 'standby'",
];
/// The index serves a claim in one range scan, oldest first. A claimed task is one that becomes visible later.
const SCHEMA: &str = "
    CREATE TABLE tasks (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        queue text NOT NULL,
        visible_at timestamptz NOT NULL DEFAULT now(),
        token bigint NOT NULL DEFAULT 0,
        payload bytea NOT NULL
    );
    CREATE INDEX tasks_visible ON tasks (queue, visible_at, id);";
const ENQUEUE: &str = "INSERT INTO tasks (queue, payload) SELECT $1, unnest($2::bytea[])";
/// The array keeps the planner from joining with the whole table where it knows the limit's value badly.
const CLAIM: &str = "
    UPDATE tasks SET token = token + 1, visible_at = now() + make_interval(secs => $3) WHERE id = ANY (ARRAY(
        SELECT id FROM tasks WHERE queue = $1 AND visible_at <= now()
        ORDER BY visible_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING id, token, payload";
const COMPLETE: &str = "DELETE FROM tasks WHERE id = $1 AND token = $2";
const COMPLETE_MANY: &str = "
    DELETE FROM tasks WHERE id = ANY ($1) AND (id, token) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]))";

/// A running primary with its standby.
pub struct Postgres {
    // Servers end before their directory goes.
    primary: Mutex<Option<Server>>,
    standby: Server,
    programs: PathBuf,
    place: Place,
    ports: [u16; 2],
    about: About,
}

impl Postgres {
    /// Finds or installs the programs, makes both servers and waits until they replicate.
    pub async fn start(programs: &Programs, directory: &Path) -> Result<Postgres> {
        let (programs, libraries) = find(programs)?;
        let place = Place::new(directory, "postgres")?;
        let ports = free_ports(2)?;
        let ports = [ports[0], ports[1]];
        let tool = |name: &str| Program::new(programs.join(name)).variable("LD_LIBRARY_PATH", &libraries);
        place.run(&tool("initdb").args(INITDB).args(["--pgdata"]).path(&place.path("primary")))?;
        let own = ["listen_addresses = '127.0.0.1'", "unix_socket_directories = ''"];
        let settings = SETTINGS.iter().chain(&own).fold(String::new(), |text, line| text + line + "\n");
        place.write("primary/postgresql.auto.conf", &settings)?;
        let mut primary = server(&place, &tool("postgres"), "primary", ports[0], &[])?;
        let address = format!("host=127.0.0.1 port={} user=bench", ports[0]);
        primary.ready(PATIENCE, async || connect(&format!("{address} dbname=postgres")).await).await?;
        let backup = tool("pg_basebackup").args(["--write-recovery-conf", "--checkpoint", "fast", "--dbname"]);
        let backup = backup.args([format!("{address} application_name=standby").as_str(), "--pgdata"]);
        place.run(&backup.path(&place.path("standby")))?;
        // What it has as a primary, once it is promoted: nothing to wait for.
        let alone = ["-c", "synchronous_standby_names="];
        let mut standby = server(&place, &tool("postgres"), "standby", ports[1], &alone)?;
        let admin = connect(&format!("{address} dbname=postgres")).await?;
        let replicates = "SELECT sync_state FROM pg_stat_replication WHERE sync_state = 'sync'";
        standby.ready(PATIENCE, async || Ok(admin.query_one(replicates, &[]).await?)).await?;
        admin.batch_execute(SCHEMA).await?;
        let settings = SETTINGS.map(str::to_owned).to_vec();
        let acknowledged = "synced on the primary and on its standby".to_owned();
        let about =
            About { version: install::version(&programs.join("postgres"), "--version")?, settings, acknowledged };
        Ok(Postgres { primary: Mutex::new(Some(primary)), standby, programs, place, ports, about })
    }

    /// Address of whichever server is the primary.
    fn address(&self) -> String {
        let [primary, standby] = self.ports;
        format!(
            "host=127.0.0.1,127.0.0.1 port={primary},{standby} user=bench dbname=postgres \
             target_session_attrs=read-write connect_timeout=2"
        )
    }
}

const INITDB: [&str; 6] = ["--username", "bench", "--auth", "trust", "--encoding=UTF8", "--locale=C"];

/// The directory of the programs, and that of their libraries.
fn find(programs: &Programs) -> Result<(PathBuf, String)> {
    if let Some(found) = newest(&Path::new("/").join(DEBIAN)) {
        return Ok((found, String::new()));
    }
    if let Some(postgres) = install::on_path("postgres") {
        let directory = fs::canonicalize(postgres)?.parent().context("a program lies in a directory")?.to_owned();
        return Ok((directory, String::new()));
    }
    let directory = programs.unpack_debian("postgres", &["postgresql"])?;
    let found = newest(&directory.join(DEBIAN)).context("the package has no programs")?;
    Ok((found, install::library_path(&directory)))
}

/// The programs of the newest version in a directory of versions.
fn newest(versions: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(versions).ok()?.flatten().map(|entry| entry.path().join("bin"));
    let complete = entries.filter(|bin| bin.join("postgres").is_file() && bin.join("pg_basebackup").is_file());
    let number = |bin: &PathBuf| bin.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    complete.max_by_key(number)
}

fn server(place: &Place, postgres: &Program, name: &str, port: u16, more: &[&str]) -> Result<Server> {
    let postgres = postgres.clone().args(["-D"]).path(&place.path(name)).args(["-p", &port.to_string()]);
    // An immediate shutdown: the next start recovers as after a crash, and no shared memory is left behind.
    place.start(name, &postgres.args(more.iter().copied()), Signal::QUIT)
}

async fn connect(address: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    // Its end shows at the next call.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

impl System for Postgres {
    fn connect<'a>(&'a self, _: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Client>>> {
        Box::pin(async move {
            let client = connect(&self.address()).await?;
            let enqueue = client.prepare(ENQUEUE).await?;
            let claim = client.prepare(CLAIM).await?;
            let complete = client.prepare(COMPLETE).await?;
            let complete_many = client.prepare(COMPLETE_MANY).await?;
            let (queue, held) = (queue.to_string(), Vec::new());
            Ok(Box::new(Session { client, enqueue, claim, complete, complete_many, queue, held }) as Box<dyn Client>)
        })
    }

    fn usage(&self) -> Answer<'_, Result<Usage>> {
        Box::pin(async { usage_of(&self.pids()) })
    }
}

impl Peer for Postgres {
    fn about(&self) -> &About {
        &self.about
    }

    fn pids(&self) -> Vec<u32> {
        let primary = self.primary.lock().ok().and_then(|primary| primary.as_ref().map(Server::pid));
        primary.into_iter().chain([self.standby.pid()]).collect()
    }

    fn prepare<'a>(&'a self, _: &'a QueueName) -> Answer<'a, Result<()>> {
        // All queues are in one table.
        Box::pin(async { Ok(()) })
    }

    fn filled(&self) -> Answer<'_, Result<()>> {
        // Without it the planner guesses until the next run of autovacuum.
        Box::pin(async { Ok(connect(&self.address()).await?.batch_execute("VACUUM ANALYZE tasks").await?) })
    }

    fn kill_one(&self) -> Answer<'_, Result<String>> {
        Box::pin(async {
            let primary = self.primary.lock().ok().and_then(|mut primary| primary.take());
            drop(primary.context("the primary is dead already")?);
            let promote = Program::new(self.programs.join("pg_ctl")).args(["promote", "-D"]);
            self.place.run(&promote.path(&self.place.path("standby")))?;
            Ok("primary stopped at once; standby promoted right then by the benchmark: nothing detects it".to_owned())
        })
    }
}

/// A client with its prepared statements.
struct Session {
    client: tokio_postgres::Client,
    enqueue: Statement,
    claim: Statement,
    complete: Statement,
    complete_many: Statement,
    queue: String,
    /// Claimed tasks with their tokens.
    held: Vec<(i64, i64)>,
}

impl Session {
    async fn try_enqueue(&self, payloads: &[Vec<u8>]) -> Result<()> {
        let rows = self.client.execute(&self.enqueue, &[&self.queue, &payloads]).await?;
        ensure!(rows == payloads.len() as u64, "{rows} of {} tasks are in", payloads.len());
        Ok(())
    }

    async fn try_complete(&self, held: &[(i64, i64)]) -> Result<u64> {
        Ok(match held {
            [(id, token)] => self.client.execute(&self.complete, &[id, token]).await?,
            several => {
                let (ids, tokens): (Vec<i64>, Vec<i64>) = several.iter().copied().unzip();
                self.client.execute(&self.complete_many, &[&ids, &tokens]).await?
            }
        })
    }
}

impl Client for Session {
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>> {
        Box::pin(async move { failures_of_call(self.try_enqueue(payloads).await) })
    }

    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move {
            let rows = self.client.query(&self.claim, &[&self.queue, &(max as i64), &LEASE.as_secs_f64()]).await?;
            let held = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            self.held.extend(held.collect::<Result<Vec<(i64, i64)>>>()?);
            rows.iter().map(|row: &Row| Ok(row.try_get(2)?)).collect()
        })
    }

    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)> {
        Box::pin(async {
            let held = std::mem::take(&mut self.held);
            match self.try_complete(&held).await {
                Ok(done) if done == held.len() as u64 => (done, Vec::new()),
                Ok(done) => (done, vec![format!("{} tokens were late", held.len() as u64 - done)]),
                Err(error) => (0, vec![format!("{error:#}")]),
            }
        })
    }

    fn close(self: Box<Self>) -> Answer<'static, ()> {
        // The server ends the session when the connection goes.
        Box::pin(async move { drop(self) })
    }
}
