//! `norn cluster`: founding, and the client crate's verbs that change a cluster.

use super::failure::Outcome;
use super::founding::{Wish, found};
use super::progress;
use super::{Global, block_on, examples, told, verbs, write_line};
use clap::Subcommand;
use norn_node::runtime::caller::Caller;
use norn_node::runtime::certificates::CertificateFiles;
use norn_wire::response::Member;
use std::time::Duration;

/// Time limit for the answer of one node.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time for that answer, even with a shorter wait for nodes.
const CALL_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Commands of `norn cluster`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Found a cluster of running nodes that wait for one. Once, from any machine; may be repeated.
    ///
    /// The command authenticates with the certificate in the directory of --certs, or that of the client.toml which NORN_CLIENT names.
    ///
    /// It waits for each node as long as --timeout says, by default 15s until it answers and 30s until it serves.
    #[command(after_help = examples::CLUSTER_INIT)]
    Init {
        /// Addresses of all nodes.
        #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true)]
        peers: Vec<String>,
        /// Name of the cluster, for people [default: norn].
        #[arg(long)]
        name: Option<String>,
        /// Number of partitions, a power of two [default: 256].
        #[arg(long)]
        partitions: Option<u32>,
        /// Replicas of each partition [default: 3, or the number of nodes if that is less].
        #[arg(long)]
        replicas: Option<u32>,
        /// Skip the check of the addresses that the nodes advertise, if this machine does not reach them.
        #[arg(long)]
        untried: bool,
    },
    /// Verbs of the client crate, also available at the prompt.
    #[command(flatten)]
    Verb(verbs::ClusterVerb),
}

/// Runs the command.
pub fn run(command: Command, global: Global) -> Outcome {
    match command {
        Command::Init { peers, name, partitions, replicas, untried } => {
            let files = verbs::own_files(&global, std::env::var_os("NORN_CLIENT"))?;
            let wish = Wish { name, partitions, replicas, patience: global.timeout(), untried };
            block_on(init(&peers, &wish, files, global.json))
        }
        Command::Verb(verb) => verbs::operate(verb, global),
    }
}

async fn init(peers: &[String], wish: &Wish, files: CertificateFiles, json: bool) -> Outcome {
    let call_timeout = wish.patience.map_or(CALL_TIMEOUT, |patience| patience.clamp(CALL_TIMEOUT_MIN, CALL_TIMEOUT));
    let caller = Caller::with(verbs::read_certificates(files)?, call_timeout)?;
    let what = || Some(format!("waiting until all of these nodes answer and serve: {}", peers.join(", ")));
    let founded = progress::waiting(progress::is_watched(json), found(&caller, peers, wish), what).await;
    caller.close().await;
    let founded = founded?;
    let genesis = &founded.genesis;
    let did = if founded.already { "already initialised as" } else { "initialised" };
    let did = format!("{did} cluster {} ({})", genesis.name, genesis.cluster);
    let effect = Some(did.as_str()).filter(|_| !founded.already);
    if json {
        let node = |member: &Member| {
            let id = member.node.to_string();
            serde_json::json!({ "node": id, "name": member.name, "address": member.address })
        };
        let nodes: Vec<_> = genesis.members.iter().map(node).collect();
        let summary = serde_json::json!({
            "cluster": genesis.cluster.to_string(),
            "name": genesis.name,
            "partitions": genesis.partitions,
            "replicas": genesis.replicas,
            "already": founded.already,
            "nodes": nodes,
        });
        return told(write_line(&summary.to_string()), effect);
    }
    let mut lines =
        vec![did.clone(), format!("{} partitions, {} replicas each, on", genesis.partitions, genesis.replicas)];
    let row = |member: &Member| format!("  {:<12} {:<24} {}", member.name, member.address, member.node);
    lines.extend(genesis.members.iter().map(row));
    told(write_line(&lines.join("\n")), effect)
}
