//! A node that starts on the log of `norn_storage::double::sample`.

use super::Restorer;
use norn_engine::{Founding, Node};
use norn_model::config::Config;
pub(super) use norn_storage::double::sample::{CONFIG, IDENTITY, log};
use norn_storage::double::{Double, Files};
use norn_storage::{Identity, Log, Replayed};
use norn_wire::NodeId;

pub(super) fn node() -> Node {
    let Identity { node, incarnation } = IDENTITY;
    let (name, address, zone) = ("n0".to_owned(), "n0:1".to_owned(), String::new());
    Node::new(Founding { config: Config::default(), node, incarnation, name, address, zone }, 1)
}

/// Starts the node on these files, up to the point where it would serve.
pub(super) fn start(files: &Files) -> Result<(Node, Replayed), String> {
    let disk = Double::with_files(files);
    let started = start_on(&disk);
    assert!(started.is_ok() || disk.files() == *files, "a start that is refused changes nothing");
    started
}

pub(super) fn start_on(disk: &Double) -> Result<(Node, Replayed), String> {
    let draw = || Identity { node: NodeId(99), incarnation: 99 };
    let mut log = Log::open(disk.clone(), CONFIG, draw).map_err(|error| error.to_string())?;
    let mut node = node();
    if log.identity() != IDENTITY {
        return Err("another node".into());
    }
    let mut restorer = Restorer::new(&mut node);
    let replayed = log.read(|replay| restorer.take(replay)).map_err(|error| error.to_string())?;
    restorer.finish()?;
    log.mend().map_err(|error| error.to_string())?;
    Ok((node, replayed))
}
