//! The systems that can be measured.

use super::install::Programs;
use super::nats::Nats;
use super::norn::Norn;
use super::peer::Peer;
use super::postgres::Postgres;
use super::rabbitmq::RabbitMq;
use super::redis::Redis;
use crate::ClusterOptions;
use anyhow::{Result, ensure};
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Widest name of a system, for people.
pub const NAME_WIDTH: usize = 12;
/// Nodes of a cluster.
const NODES: usize = 3;

/// Kind of system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Norn, with three nodes.
    Norn,
    /// The same with clients that claim and complete ahead, as a worker of its library does.
    NornAhead,
    /// PostgreSQL with a synchronous standby.
    Postgres,
    /// RabbitMQ, three servers with quorum queues.
    Rabbitmq,
    /// NATS JetStream, three servers with three replicas.
    Nats,
    /// Redis, one server that syncs each write: the mark without replication.
    Redis,
}

/// A system to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Its name in tables.
    pub name: String,
    kind: Kind,
    /// The program, of Norn.
    program: Option<PathBuf>,
}

/// The systems of these kinds, Norn once for each of its programs.
pub fn subjects(kinds: &[Kind], norn: &[String]) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for kind in kinds {
        match kind {
            Kind::Norn | Kind::NornAhead if !norn.is_empty() => subjects.extend(norn.iter().map(|program| {
                let (label, file) = program.split_once('=').unwrap_or(("norn", program));
                let ahead = if *kind == Kind::NornAhead { "-ahead" } else { "" };
                Subject { name: format!("{label}{ahead}"), kind: *kind, program: Some(PathBuf::from(file)) }
            })),
            kind => {
                let name = kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
                subjects.push(Subject { name, kind: *kind, program: None });
            }
        }
    }
    let names: BTreeSet<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    ensure!(names.len() == subjects.len(), "two systems have the same name: give each Norn a label, as LABEL=FILE");
    Ok(subjects)
}

impl Subject {
    /// Starts the system with empty data; returns once it serves.
    pub async fn start(
        &self,
        programs: &Programs,
        directory: &Path,
        norn_settings: &[String],
    ) -> Result<Arc<dyn Peer>> {
        Ok(match self.kind {
            Kind::Norn | Kind::NornAhead => {
                let directory = Some(directory.to_owned());
                let settings = norn_settings.to_vec();
                let options = ClusterOptions { nodes: NODES, norn: self.program.clone(), directory, settings };
                Arc::new(Norn::start(&options, self.kind == Kind::NornAhead).await?)
            }
            Kind::Postgres => Arc::new(Postgres::start(programs, directory).await?),
            Kind::Rabbitmq => Arc::new(RabbitMq::start(programs, directory).await?),
            Kind::Nats => Arc::new(Nats::start(programs, directory).await?),
            Kind::Redis => Arc::new(Redis::start(programs, directory).await?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kinds: &[Kind], norn: &[&str]) -> Result<Vec<String>> {
        let norn: Vec<String> = norn.iter().map(|&program| program.to_owned()).collect();
        Ok(subjects(kinds, &norn)?.into_iter().map(|subject| subject.name).collect())
    }

    #[test]
    fn each_program_of_norn_is_a_system() {
        let kinds = [Kind::Norn, Kind::Postgres];
        assert_eq!(names(&kinds, &[]).expect("two"), ["norn", "postgres"]);
        assert_eq!(names(&kinds, &["/bin/norn"]).expect("two"), ["norn", "postgres"]);
        assert_eq!(names(&kinds, &["old=/a", "new=/b=c"]).expect("three"), ["old", "new", "postgres"]);
        let kinds = [Kind::Norn, Kind::NornAhead];
        assert_eq!(names(&kinds, &[]).expect("two"), ["norn", "norn-ahead"]);
        assert_eq!(names(&kinds, &["old=/a"]).expect("two"), ["old", "old-ahead"]);
    }

    #[test]
    fn two_systems_of_one_name_are_refused() {
        let refused = names(&[Kind::Norn], &["/a", "/b"]).expect_err("both are norn");
        assert!(refused.to_string().contains("LABEL=FILE"), "{refused}");
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_named() {
        let subject = subjects(&[Kind::Norn], &["x=/no/such/program".to_owned()]).expect("one").remove(0);
        let programs = Programs::new(PathBuf::from("/no/such/directory"));
        let started = subject.start(&programs, &std::env::temp_dir(), &[]).await;
        let error = format!("{:#}", started.err().expect("it cannot start"));
        assert!(error.contains("/no/such/program") && error.contains("--norn"), "{error}");
    }
}
