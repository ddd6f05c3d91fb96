//! `norn cert`: an authority and the certificates it signs.

use super::failure::{Failure, Outcome};
use super::{Global, say};
use clap::Subcommand;
use norn_node::runtime::certificates::{Role, create, create_authority};
use std::path::{Path, PathBuf};

/// What to make.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Makes the cluster's certificate authority: ca.crt and ca.key. Keep ca.key away from the nodes.
    Ca {
        /// Directory for the files.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Makes a node's certificate: node-NAME.crt and node-NAME.key.
    Node {
        /// Name of the node, unique in its cluster.
        name: String,
        /// A host name or IP address where the node is reached; may be repeated.
        #[arg(long = "host", value_name = "HOST", required = true, num_args = 1.., value_delimiter = ',')]
        hosts: Vec<String>,
        /// Directory with the authority, for the files.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Makes a client's certificate: client-NAME.crt and client-NAME.key.
    Client {
        /// Name of the client.
        name: String,
        /// Directory with the authority, for the files.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Makes it.
pub fn run(command: Command, global: Global) -> Outcome {
    match command {
        Command::Ca { dir } => {
            create_authority(&dir)?;
            tell(&global, &dir.join("ca.crt"), &dir.join("ca.key"))
        }
        Command::Node { name, hosts, dir } => {
            let files = create(&dir, Role::Node, &name, &hosts).map_err(Failure::from)?;
            tell(&global, &files.certificate, &files.key)
        }
        Command::Client { name, dir } => {
            let files = create(&dir, Role::Client, &name, &[]).map_err(Failure::from)?;
            tell(&global, &files.certificate, &files.key)
        }
    }
}

fn tell(global: &Global, certificate: &Path, key: &Path) -> Outcome {
    if global.json {
        return say(&serde_json::json!({ "certificate": certificate, "key": key }).to_string());
    }
    say(&format!("made {} and {}", certificate.display(), key.display()))
}
