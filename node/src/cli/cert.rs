//! `norn cert`: an authority and the certificates that it signs.

use super::failure::{Failure, Outcome};
use super::{Global, examples, told, write_line};
use clap::{Args, Subcommand};
use norn_client::tls::Date;
use norn_node::runtime::certificates::{AUTHORITY_DAYS, DAYS, DAYS_MAX, Made, Present, Role, create, create_authority};
use std::path::PathBuf;

/// Commands of `norn cert`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the cluster's certificate authority: ca.crt and ca.key. Keep ca.key away from the nodes.
    #[command(after_help = examples::CERT_CA)]
    Ca {
        /// Directory for the files.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Days for which the authority is valid.
        #[arg(long, value_name = "N", default_value_t = AUTHORITY_DAYS, value_parser = days())]
        days: u32,
    },
    /// Make a node's certificate: node-NAME.crt and node-NAME.key.
    #[command(after_help = examples::CERT_NODE)]
    Node {
        /// Name of the node, unique in its cluster.
        name: String,
        /// Host name or IP address at which the node is reached; may be repeated.
        #[arg(long = "host", value_name = "HOST", required = true, num_args = 1.., value_delimiter = ',')]
        hosts: Vec<String>,
        #[command(flatten)]
        signed: Signed,
    },
    /// Make a client's certificate: client-NAME.crt and client-NAME.key.
    #[command(after_help = examples::CERT_CLIENT)]
    Client {
        /// Name of the client.
        name: String,
        #[command(flatten)]
        signed: Signed,
    },
}

/// Arguments of all certificates that an authority signs.
#[derive(Debug, Args)]
pub struct Signed {
    /// Directory of the authority, where the files are written.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Days for which the certificate is valid; at most as long as its authority is.
    #[arg(long, value_name = "N", default_value_t = DAYS, value_parser = days())]
    days: u32,
    /// Replace the certificate and the key of this name, if they exist.
    #[arg(long)]
    renew: bool,
}

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX))
}

impl Signed {
    fn make(&self, role: Role, name: &str, hosts: &[String]) -> Result<Made, Failure> {
        let present = if self.renew { Present::Replaced } else { Present::Kept };
        Ok(create(&self.dir, role, name, hosts, self.days, present)?)
    }
}

/// Runs the command.
pub fn run(command: Command, global: Global) -> Outcome {
    let made = match command {
        Command::Ca { dir, days } => create_authority(&dir, days)?,
        Command::Node { name, hosts, signed } => signed.make(Role::Node, &name, &hosts)?,
        Command::Client { name, signed } => signed.make(Role::Client, &name, &[])?,
    };
    tell(&global, &made)
}

fn tell(global: &Global, made: &Made) -> Outcome {
    let (certificate, key) = (&made.files.certificate, &made.files.key);
    let files = format!("made {} and {}", certificate.display(), key.display());
    if global.json {
        let until_ms = made.validity.until_s.saturating_mul(1_000);
        let made = serde_json::json!({ "certificate": certificate, "key": key, "valid_until_ms": until_ms });
        return told(write_line(&made.to_string()), Some(&files));
    }
    let until = Date(made.validity.until_s);
    let why = if made.shortened { ", when its authority ends" } else { "" };
    told(write_line(&format!("{files}, valid until {until}{why}")), Some(&files))
}
