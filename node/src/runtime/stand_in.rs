//! Doubles of parts that are written elsewhere, to be replaced by them.
#![allow(missing_docs)]

use crate::protocol::{Effect, Event, Founding, Now, Record, Ticket};
use norn_client::wire::response::{Genesis, Identity as NodeIdentity, Member};
use norn_client::wire::{Error, ErrorCode, NodeId, Request, Response};
use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

// storage::Log, runtime::disk::FileDisk

#[derive(Debug)]
pub struct FileDisk(PathBuf);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

impl FileDisk {
    pub fn open(path: &Path) -> Result<FileDisk, OpenError> {
        fs::create_dir_all(path).map_err(|error| OpenError(error.to_string()))?;
        Ok(FileDisk(path.to_owned()))
    }
}

#[derive(Debug)]
pub struct LogConfig {
    pub segment_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Identity {
    pub node: NodeId,
    pub incarnation: u64,
}

#[derive(Debug)]
pub struct Replayed {
    pub records: u64,
}

#[derive(Debug)]
pub struct Log {
    file: fs::File,
    records: VecDeque<Record>,
    identity: Identity,
}

impl Log {
    pub fn open(disk: FileDisk, _: LogConfig, draw: impl FnOnce() -> Identity) -> Result<Log, OpenError> {
        let failed = |error: std::io::Error| OpenError(error.to_string());
        let path = disk.0.join("log");
        let bytes = fs::read(&path).unwrap_or_default();
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let mut records = VecDeque::new();
        let mut rest = &bytes[..];
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let (body, after) = tail.split_at(u32::from_be_bytes(*head) as usize);
            records.push_back(Record::decode(body).map_err(|error| OpenError(error.to_string()))?);
            rest = after;
        }
        let identity = match records.pop_front() {
            Some(Record::Identity { node, incarnation }) => Identity { node, incarnation },
            _ => {
                let drawn = draw();
                let record = Record::Identity { node: drawn.node, incarnation: drawn.incarnation };
                write_record(&mut file, &record).map_err(failed)?;
                drawn
            }
        };
        Ok(Log { file, records, identity })
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub fn replay(&mut self, mut visit: impl FnMut(Record) -> Result<(), String>) -> Result<Replayed, OpenError> {
        let records = self.records.len() as u64;
        self.records.drain(..).try_for_each(&mut visit).map_err(OpenError)?;
        Ok(Replayed { records })
    }

    pub fn append(&mut self, records: &[Record]) -> Result<(), OpenError> {
        records
            .iter()
            .try_for_each(|record| write_record(&mut self.file, record))
            .map_err(|error| OpenError(error.to_string()))
    }

    pub fn sync(&mut self) -> Result<(), OpenError> {
        self.file.sync_data().map_err(|error| OpenError(error.to_string()))
    }
}

fn write_record(file: &mut fs::File, record: &Record) -> std::io::Result<()> {
    let mut body = Vec::new();
    record.encode(&mut body);
    file.write_all(&(body.len() as u32).to_be_bytes())?;
    file.write_all(&body)
}

// protocol::ring::assign

pub fn assign(members: &[Member], partitions: u32, replicas: u32) -> Vec<Vec<u16>> {
    let count = members.len() as u32;
    (0..partitions).map(|partition| (0..replicas).map(|place| ((partition + place) % count) as u16).collect()).collect()
}

// protocol::Node

#[derive(Debug)]
pub struct Node {
    founding: Founding,
    genesis: Option<Arc<Genesis>>,
    tickets: u64,
}

impl Node {
    pub fn new(founding: Founding, _seed: u64) -> Node {
        Node { founding, genesis: None, tickets: 0 }
    }

    pub fn recover(&mut self, record: Record) -> Result<(), String> {
        if let Record::Genesis(genesis) = record {
            self.genesis = Some(genesis);
        }
        Ok(())
    }

    pub fn start(&mut self, _now: Now, effects: &mut Vec<Effect>) {
        if let Some(genesis) = self.genesis.clone() {
            effects.push(Effect::Joined { genesis });
        }
    }

    pub fn step(&mut self, _now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Shutdown => effects.push(Effect::Stopped),
            Event::Request { client, number, request, .. } => {
                let response = match request {
                    Request::Identify => Response::Identity(Box::new(self.identity())),
                    Request::Initialize(genesis) => {
                        let genesis = Arc::new(*genesis);
                        self.genesis = Some(Arc::clone(&genesis));
                        self.tickets += 1;
                        let records = vec![Record::Genesis(Arc::clone(&genesis))];
                        effects.push(Effect::Persist { ticket: Ticket(self.tickets), records });
                        effects.push(Effect::Joined { genesis });
                        Response::Done
                    }
                    other => Response::Error(Error::new(ErrorCode::Unsupported, other.verb())),
                };
                effects.push(Effect::Reply { client, number, response });
            }
            _ => {}
        }
    }

    pub fn next_wake(&self) -> Option<u64> {
        None
    }

    fn identity(&self) -> NodeIdentity {
        NodeIdentity {
            node: self.founding.node,
            incarnation: self.founding.incarnation,
            name: self.founding.name.clone(),
            address: self.founding.address.clone(),
            zone: self.founding.zone.clone(),
            genesis: self.genesis.as_ref().map(|genesis| Box::new((**genesis).clone())),
            serving: self.genesis.is_some(),
        }
    }
}

// norn_client::{client, command, repl}

pub mod client {
    use clap::{Args, Subcommand};
    use norn_client::wire::{Error, ErrorCode, Response};
    use std::path::{Path, PathBuf};
    use std::time::Duration;
    use tokio::io::{AsyncBufReadExt, BufReader};

    #[derive(Debug, Clone)]
    pub struct ClientConfig {
        pub addresses: Vec<String>,
        pub ca: PathBuf,
        pub certificate: PathBuf,
        pub key: PathBuf,
        pub name: String,
        pub request_timeout: Duration,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    pub struct ConnectError(pub String);

    impl ClientConfig {
        pub fn new<A: Into<String>>(
            addresses: impl IntoIterator<Item = A>,
            ca: impl Into<PathBuf>,
            certificate: impl Into<PathBuf>,
            key: impl Into<PathBuf>,
        ) -> Self {
            ClientConfig {
                addresses: addresses.into_iter().map(Into::into).collect(),
                ca: ca.into(),
                certificate: certificate.into(),
                key: key.into(),
                name: String::new(),
                request_timeout: Duration::from_secs(10),
            }
        }

        pub fn load(path: &Path) -> Result<Self, ConnectError> {
            Ok(ClientConfig::new(Vec::<String>::new(), path, path, path))
        }
    }

    #[derive(Debug, Clone)]
    pub struct Client;

    impl Client {
        pub async fn connect(_: ClientConfig) -> Result<Client, ConnectError> {
            Ok(Client)
        }

        pub async fn call(&self, _: Call, _: Option<Duration>) -> Result<Response, Error> {
            Err(Error::new(ErrorCode::Unsupported, "no client"))
        }

        pub async fn close(&self) {}
    }

    #[derive(Debug)]
    pub struct Call;

    pub trait Transport {
        fn call(&self, call: Call, timeout: Option<Duration>) -> impl Future<Output = Result<Response, Error>> + Send;
    }

    impl<T: Transport> Transport for &T {
        fn call(&self, call: Call, timeout: Option<Duration>) -> impl Future<Output = Result<Response, Error>> + Send {
            T::call(self, call, timeout)
        }
    }

    #[derive(Debug, Clone, Args)]
    pub struct HelpArguments {
        pub verb: Option<String>,
    }

    #[derive(Debug, Clone, Args)]
    pub struct StatusArguments {
        /// Again and again.
        #[arg(long)]
        pub watch: bool,
    }

    #[derive(Debug, Clone, Subcommand)]
    pub enum Verb {
        /// The node and the cluster in short
        Status(StatusArguments),
        /// Shows the verbs, or one of them
        Help(HelpArguments),
    }

    #[derive(Debug, Clone, Copy)]
    pub enum Exit {
        Done,
        Usage,
    }

    impl From<Exit> for std::process::ExitCode {
        fn from(exit: Exit) -> Self {
            (exit as u8 * 2).into()
        }
    }

    #[derive(Debug)]
    pub struct Failure(pub String);

    impl Failure {
        pub fn exit(&self) -> Exit {
            Exit::Usage
        }
    }

    #[derive(Debug)]
    pub struct Output;

    impl Output {
        pub fn standard(_json: bool) -> Self {
            Output
        }
    }

    pub fn print_help(mut command: clap::Command, _: Option<&str>, _: &mut Output) -> Result<Exit, Failure> {
        command.print_help().map_err(|error| Failure(error.to_string()))?;
        Ok(Exit::Done)
    }

    pub fn refuse_usage(error: &clap::Error, _: &mut Output) -> Result<Exit, Failure> {
        eprintln!("{error}");
        Ok(if error.use_stderr() { Exit::Usage } else { Exit::Done })
    }

    pub async fn execute(transport: impl Transport, verb: Verb, _: Output) -> Exit {
        eprintln!("{verb:?}: {:?}", transport.call(Call, None).await);
        Exit::Usage
    }

    #[derive(Debug, Default)]
    pub struct ReplOptions {
        pub json: bool,
        pub history: Option<PathBuf>,
        pub banner: Option<String>,
    }

    pub async fn run(transport: impl Transport, _: ReplOptions) -> Result<i32, std::io::Error> {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            if line.trim() == "quit" {
                break;
            }
            eprintln!("{line}: {:?}", transport.call(Call, None).await);
        }
        Ok(0)
    }
}
