//! Client verbs and the REPL: finds the cluster and hands over to the client crate.

use super::failure::{Failure, Outcome};
use super::{Global, block_on};
use norn_node::runtime::certificates::{CertificateFiles, find_client};
use norn_node::runtime::stand_in::client;
pub use norn_node::runtime::stand_in::client::Verb;
use std::path::{Path, PathBuf};

/// Where the cluster is and how this side shows who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file of addresses and certificates.
    File(PathBuf),
    /// Both said on the command line.
    Said(Vec<String>, CertificateFiles),
}

/// `--connect` and `--certs`, else `$NORN_CLIENT`, else `.norn/client.toml`.
pub fn place(global: &Global, variable: Option<PathBuf>, directory: &Path) -> Result<Place, Failure> {
    match (global.connect.is_empty(), &global.certs) {
        (false, Some(certificates)) => {
            return Ok(Place::Said(global.connect.clone(), find_client(certificates)?));
        }
        (false, None) => return Err(Failure::usage("--connect needs --certs DIR as well")),
        (true, Some(_)) => return Err(Failure::usage("--certs needs --connect HOST:PORT,... as well")),
        (true, None) => {}
    }
    if let Some(file) = variable {
        if file.is_file() {
            return Ok(Place::File(file));
        }
        return Err(Failure::usage(format!("NORN_CLIENT names {}, which is no file", file.display())));
    }
    let file = directory.join(".norn").join("client.toml");
    if file.is_file() {
        return Ok(Place::File(file));
    }
    Err(Failure::usage(
        "no cluster to talk to: start one here with `norn dev`, or say --connect HOST:PORT,... --certs DIR, \
         or set NORN_CLIENT to a client.toml",
    ))
}

fn discover(global: &Global) -> Result<Place, Failure> {
    let variable = std::env::var_os("NORN_CLIENT").filter(|value| !value.is_empty()).map(PathBuf::from);
    place(global, variable, Path::new(""))
}

/// Runs one verb.
pub fn run(verb: Verb, global: Global) -> Outcome {
    let place = discover(&global)?;
    block_on(async move { client::execute(verb, &format!("{place:?}")).map_err(|what| Failure::not_there_yet(&what)) })
}

/// `norn cluster status` is the verb `status`.
pub fn status(watch: bool, global: Global) -> Outcome {
    run(Verb::Status { watch }, global)
}

/// `norn repl`.
pub fn repl(global: Global) -> Outcome {
    let place = discover(&global)?;
    block_on(async move { repl_at(&place, global.json).await })
}

/// Reads commands for the cluster at a place until the end of the input.
pub async fn repl_at(place: &Place, json: bool) -> Outcome {
    client::repl(&format!("{place:?}"), json).await.map_err(Failure::refused)
}
