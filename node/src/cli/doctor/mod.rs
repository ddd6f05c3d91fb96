//! `norn doctor`: checks of a node's machine, offline, and of a cluster.
//!
//! The checks use what a node and the verbs use: the same settings, certificates, sockets and answers. The machine's half changes nothing
//! and may run beside the node. A check that is not possible says so; it never passes silently.

mod bundle;
mod data;
mod machine;
mod node;
mod sync_latency;
#[cfg(test)]
mod tests;

use super::carrier::Carrier;
use super::failure::{Failure, Outcome};
use super::start::SettingFlags;
use super::verbs::Place;
use super::{Global, block_on};
use bundle::Bundle;
use clap::Args;
use node::Machine;
use norn_cli::Output;
use norn_cli::doctor::{ClusterSeen, Report, unreached};
use norn_client::api::Finding;
use norn_host::clock::unix_seconds;
use norn_node::runtime::certificates::find_node;
use norn_wire::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variables that name a node, like flags.
const NODE_VARIABLES: [&str; 2] = ["NORN_CONFIG", "NORN_DATA"];

/// Arguments of `norn doctor`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    settings: SettingFlags,
    /// Also write what was found to this new file, a tar archive: findings, effective settings, status, nodes, partitions, versions, heads
    /// of the log. It has no payload, result, key of a task, or private key. If left out, nothing is written.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// Runs the checks that apply.
pub fn run(options: &Options, global: &Global) -> Outcome {
    let bundle = options.bundle.as_deref().map(Bundle::new).transpose()?;
    let is_named = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_node = options.settings.are_given() || NODE_VARIABLES.iter().any(is_named);
    let machine = match is_node {
        true => Some(Machine::new(options.settings.sources(global)?)?),
        false => None,
    };
    let place = place(global, machine.as_ref(), std::env::var_os("NORN_CLIENT"), Path::new(""))?;
    if machine.is_none() && place.is_none() {
        return Err(Failure::usage(
            "nothing to check: name a node of this machine by --config FILE or --data DIR with --certs DIR, as for `norn start`; or a \
             cluster by --connect HOST:PORT,... with --certs DIR, or by a client.toml that NORN_CLIENT names",
        ));
    }
    let report = Report::new(Output::standard(global.json));
    block_on(examine(machine, place, bundle, report, global))
}

/// Finds the cluster. The directory of --certs may be that of a node alone, whose certificate then serves for both halves.
fn place(
    global: &Global,
    machine: Option<&Machine>,
    variable: Option<OsString>,
    working: &Path,
) -> Result<Option<Place>, Failure> {
    let is_said = !global.connect.is_empty();
    let Some(certificates) = global.certs.as_ref().filter(|_| machine.is_some()) else {
        if !is_said && global.certs.is_some() {
            return Err(Failure::usage(
                "--certs needs --connect HOST:PORT,... as well, to check a cluster, or --data DIR or --config FILE, to check a node",
            ));
        }
        return Place::find_if_named(global, variable, working);
    };
    if !is_said {
        return Place::find_if_named(&Global { certs: None, ..global.clone() }, variable, working);
    }
    Place::find_if_named(global, variable, working).or_else(|failure| {
        let (name, data) = machine.map(Machine::name_and_data).unwrap_or_default();
        let (_, files) = find_node(certificates, name.as_deref(), &data).map_err(|_| failure)?;
        Ok(Some(Place::Said(global.connect.clone(), files)))
    })
}

async fn examine(
    machine: Option<Machine>,
    place: Option<Place>,
    bundle: Option<Bundle>,
    mut report: Report,
    global: &Global,
) -> Outcome {
    // What is wrong with the command line is said before the first check.
    let carrier = match &place {
        None => None,
        Some(place) => match Carrier::connect(place, global, false).await {
            Err(failure) if failure.is_usage() => return Err(failure),
            connected => Some(connected.map_err(|failure| failure.error().clone())),
        },
    };
    let mut heads = Vec::new();
    match &machine {
        Some(machine) => heads = machine.examine(&mut report).await,
        None => report.tell([Finding::not_checked(
            "node",
            "no node of this machine is named",
            "run this on each node's machine, with the flags of its `norn start`",
        )]),
    }
    let cluster = match carrier {
        Some(carrier) => examine_cluster(carrier, &mut report).await,
        None => {
            let advice = "add --connect HOST:PORT,... --certs DIR, or set NORN_CLIENT to a client.toml";
            report.tell([Finding::not_checked("cluster", "no cluster is named", advice)]);
            None
        }
    };
    let written = bundle.map(|bundle| {
        let settings = machine.as_ref().and_then(Machine::printed);
        bundle.write(report.findings(), settings, cluster.as_ref(), &heads)
    });
    let exit = report.finish();
    written.transpose()?;
    Ok(exit.into())
}

async fn examine_cluster(carrier: Result<Carrier, Error>, report: &mut Report) -> Option<ClusterSeen> {
    let seen = match carrier {
        Ok(carrier) => {
            let seen = ClusterSeen::ask(&carrier).await;
            carrier.close().await;
            seen
        }
        Err(error) => Err(error),
    };
    match seen {
        Ok(seen) => {
            report.tell(seen.findings(unix_seconds()));
            Some(seen)
        }
        Err(error) => {
            report.tell(unreached(&error));
            None
        }
    }
}
