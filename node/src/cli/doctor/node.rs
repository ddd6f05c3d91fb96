//! Checks of a node: its settings, its certificates and its address.

use super::super::failure::Failure;
use super::super::start::Sources;
use super::{data, machine};
use norn_cli::doctor::Report;
use norn_client::api::Finding;
use norn_client::dial::addresses;
use norn_client::tls::Date;
use norn_doors::ListenError;
use norn_host::clock::unix_seconds;
use norn_host::disk::{Holder, holder_of};
use norn_node::runtime::caller::Caller;
use norn_node::runtime::certificates::find_node;
use norn_node::runtime::renewing::Opened;
use norn_node::runtime::server::start::StartError;
use norn_node::runtime::settings::{Effective, SettingsError, unknown_variables};
use norn_node::runtime::transport::{Granted, bind_first, try_bind};
use norn_storage::verify::Head;
use norn_wire::Versions;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpListener;

/// Time for the answer of the node that listens at the address.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(3);
/// Permissions of a key that other users have.
const OTHERS_MODE: u32 = 0o077;
/// Checks that need settings, after that of the settings themselves.
const OF_SETTINGS: [&str; 8] =
    ["certificates", "address", "udp_buffers", "http_address", "data_directory", "room", "sync_latency", "log"];

/// The machine of a node, and the node's settings.
pub struct Machine {
    sources: Sources,
    effective: Result<Effective, SettingsError>,
}

/// A node's certificates, as far as they are usable.
struct Own {
    name: String,
    opened: Opened,
}

impl Machine {
    /// Gathers the settings. An error is that of a flag: other faults are findings.
    pub fn new(sources: Sources) -> Result<Machine, Failure> {
        let effective = sources.gather().and_then(|effective| effective.check().map(|()| effective));
        match effective {
            Err(error) if error.is_of_flag() => Err(error.into()),
            effective => Ok(Machine { sources, effective }),
        }
    }

    /// The node's name, if one is set, and its data directory.
    pub fn name_and_data(&self) -> (Option<String>, PathBuf) {
        let text = |name| self.effective.as_ref().map_or("", |effective| effective.text(name));
        (Some(text("name").to_owned()).filter(|name| !name.is_empty()), PathBuf::from(text("data")))
    }

    /// The effective settings as a file, with the source of each.
    pub fn printed(&self) -> Option<String> {
        self.effective.as_ref().ok().map(Effective::print)
    }

    /// Makes all checks. Returns the heads of the log, as far as they could be read.
    pub async fn examine(&self, report: &mut Report) -> Vec<Head> {
        report.tell([self.settings()]);
        let mut heads = Vec::new();
        let mut process = None;
        match &self.effective {
            Ok(effective) => {
                let (_, directory) = self.name_and_data();
                let has_directory = !directory.as_os_str().is_empty();
                // A directory that is missing or unreadable is held by no node that this program could see.
                let holder = if has_directory { holder_of(&directory).ok().flatten() } else { None };
                let holder = holder.filter(|holder| holder.holds);
                process = holder.and_then(|holder| holder.process);
                let own = certificates(effective);
                let (finding, own) = own.map_or_else(|finding| (finding, None), |(finding, own)| (finding, own));
                report.tell([finding]);
                let (address, granted) = address(effective, own.as_ref(), holder).await;
                report.tell([address, machine::udp_buffers(granted), http_address(effective, holder).await]);
                match has_directory {
                    true => heads = data::examine(&directory, effective, holder, report).await,
                    false => {
                        let unnamed =
                            |check| Finding::not_checked(check, "no data directory is named", "give --data DIR");
                        report.tell(["data_directory", "room", "sync_latency", "log"].map(unnamed));
                    }
                }
            }
            Err(_) => {
                let refused = |check| Finding::not_checked(check, "the settings are refused", "see `settings`");
                report.tell(OF_SETTINGS.map(refused));
            }
        }
        report.tell([machine::open_files(process), machine::clock().await]);
        heads
    }

    fn settings(&self) -> Finding<'static> {
        const CHECK: &str = "settings";
        let effective = match &self.effective {
            Ok(effective) => effective,
            Err(error) => {
                let advice =
                    "correct it; `norn start --print-config` shows each setting, its bounds and where it comes from";
                return Finding::fail(CHECK, error.to_string(), advice);
            }
        };
        if effective.text("data").is_empty() {
            let missing = SettingsError::Missing("data");
            return Finding::fail(
                CHECK,
                missing.to_string(),
                "give the flags and the file with which the node is started",
            );
        }
        let unknown = unknown_variables(self.sources.environment.iter().cloned());
        if !unknown.is_empty() {
            let seen = format!("no setting is called like {}", unknown.join(", "));
            return Finding::warn(CHECK, seen, "correct the names of these variables, which have no effect");
        }
        let count = |(source, count): (String, usize)| format!("{count} by {source}");
        let counts: Vec<String> = effective.sources().into_iter().map(count).collect();
        Finding::ok(CHECK, format!("accepted; set {}, the others by default", counts.join(", ")))
    }
}

/// Checks the certificates as a start does, and that they are of each other.
fn certificates(effective: &Effective) -> Result<(Finding<'static>, Option<Own>), Finding<'static>> {
    const CHECK: &str = "certificates";
    const ADVICE: &str = "`norn cert node NAME --host HOST` makes a node's certificate and key; put both there, and the ca.crt of all \
                          nodes";
    let directory = effective.text("certs");
    if directory.is_empty() {
        return Err(Finding::not_checked(CHECK, "no directory of certificates is named", "give --certs DIR"));
    }
    let failed = |error: &dyn std::fmt::Display| Finding::fail(CHECK, error.to_string(), ADVICE);
    let name = Some(effective.text("name")).filter(|name| !name.is_empty());
    let (name, files) =
        find_node(Path::new(directory), name, Path::new(effective.text("data"))).map_err(|error| failed(&error))?;
    let opened = Opened::read(&files, &name, Versions::SPOKEN).map_err(|error| failed(&error))?;
    opened.server_config().map_err(|error| failed(&error))?;
    let (credentials, now_s) = (opened.renewal().current().clone(), unix_seconds());
    credentials.check_chain(now_s).map_err(|error| failed(&error))?;
    let mut warnings = credentials.warnings(now_s);
    let mode = fs::metadata(&files.key).map_or(0, |metadata| metadata.permissions().mode());
    if mode & OTHERS_MODE != 0 {
        let key = files.key.display();
        warnings.push(format!("{key}: other users have permissions ({:03o}) for this key", mode & 0o777));
    }
    let until = Date(credentials.validity().until_s);
    let finding = match warnings.is_empty() {
        true => Finding::ok(CHECK, format!("{} is of node {name}, valid until {until}", files.certificate.display())),
        false => {
            Finding::warn(CHECK, warnings.join("; "), format!("renew what ends; `chmod 600 {}`", files.key.display()))
        }
    };
    Ok((finding, Some(Own { name, opened })))
}

/// Checks that the node's address can be bound, or is bound by this node. Returns the buffers that were granted.
async fn address(
    effective: &Effective,
    own: Option<&Own>,
    holder: Option<Holder>,
) -> (Finding<'static>, Option<Granted>) {
    const CHECK: &str = "address";
    let listen = effective.text("listen").to_owned();
    let failed = |error: StartError, advice: &str| Finding::fail(CHECK, error.to_string(), advice);
    let lasting = "choose an address of this machine with --listen; `ip address` shows them";
    let found = match addresses(&listen).await {
        Ok(found) => found,
        Err(error) => return (failed(StartError::Listen(listen, error), lasting), None),
    };
    let bound = bind_first(&found, |address| try_bind(address).map(|granted| (address, granted)));
    match bound {
        Ok((address, granted)) => {
            let is_wild = address.ip().is_unspecified() && effective.text("advertise").is_empty();
            let finding = match holder {
                _ if is_wild => failed(StartError::Advertise(address), "add --advertise HOST:PORT"),
                Some(holder) => {
                    let seen = format!("{address} is free, and {} holds the data directory", process(holder));
                    let advice =
                        "look again if that node is just starting; else it runs with other settings than these";
                    Finding::warn(CHECK, seen, advice)
                }
                None => Finding::ok(CHECK, format!("{address} can be bound")),
            };
            (finding, Some(granted))
        }
        Err((address, error)) if error.kind() == ErrorKind::AddrInUse => (in_use(address, own, holder).await, None),
        Err((address, error)) => (failed(StartError::Listen(address.to_string(), error), lasting), None),
    }
}

/// Checks that the address for HTTP can be bound, or is in use while the node runs.
async fn http_address(effective: &Effective, holder: Option<Holder>) -> Finding<'static> {
    const CHECK: &str = "http_address";
    let listen = effective.text("http_listen");
    if listen.is_empty() {
        return Finding::ok(CHECK, "`http_listen` is not set: no HTTP listener is opened");
    }
    let failed = |error: std::io::Error| {
        let error = ListenError::Bind(listen.to_owned(), error);
        Finding::fail(
            CHECK,
            error.to_string(),
            "choose an address of this machine for `http_listen`; `ip address` shows them",
        )
    };
    let address = match addresses(listen).await {
        Ok(found) => match found.first() {
            Some(address) => *address,
            None => return failed(ErrorKind::NotFound.into()),
        },
        Err(error) => return failed(error),
    };
    match (TcpListener::bind(address).await, holder) {
        (Ok(_), None) => Finding::ok(CHECK, format!("{address} can be bound")),
        (Ok(_), Some(holder)) => {
            let seen = format!("{address} is free, and {} holds the data directory", process(holder));
            let advice = "look again if that node is just starting; else it runs with other settings than these";
            Finding::warn(CHECK, seen, advice)
        }
        (Err(error), Some(holder)) if error.kind() == ErrorKind::AddrInUse => {
            let seen = format!(
                "{address} is in use while {} holds the data directory; `norn health` asks it",
                process(holder)
            );
            Finding::ok(CHECK, seen)
        }
        (Err(error), None) if error.kind() == ErrorKind::AddrInUse => {
            let advice = format!(
                "`ss -tlpn 'sport = :{}'` names the process; end it, or set another `http_listen`",
                address.port()
            );
            Finding::fail(CHECK, format!("{address} is in use, and no node holds the data directory"), advice)
        }
        (Err(error), _) => failed(error),
    }
}

fn process(holder: Holder) -> String {
    holder.process.map_or_else(|| "a process".to_owned(), |process| format!("process {process}"))
}

/// Asks what listens at an address that is in use.
async fn in_use(address: SocketAddr, own: Option<&Own>, holder: Option<Holder>) -> Finding<'static> {
    const CHECK: &str = "address";
    let Some(own) = own else {
        let why = format!("{address} is in use, and without usable certificates its user cannot be asked");
        return Finding::not_checked(CHECK, &why, "see `certificates`");
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let target = SocketAddr::new(ip, address.port()).to_string();
    let identified = match Caller::with(own.opened.renewal().clone(), IDENTIFY_TIMEOUT) {
        Ok(caller) => {
            let identified = caller.identify_node(&target, &own.name).await;
            caller.close().await;
            identified
        }
        Err(error) => Err(error),
    };
    match (identified, holder) {
        (Ok(identity), _) => {
            let state = match (&identity.genesis, identity.serving) {
                (None, _) => "waits for a cluster".to_owned(),
                (Some(genesis), true) => format!("serves cluster {}", genesis.name),
                (Some(genesis), false) => {
                    format!("of cluster {} does not know the leader of each partition", genesis.name)
                }
            };
            Finding::ok(CHECK, format!("{address} is bound by node {}, which {state}", own.name))
        }
        (Err(error), Some(holder)) => {
            let seen = format!(
                "{address} is in use, {} holds the data directory, and node {} does not answer there: {error}",
                process(holder),
                own.name
            );
            Finding::warn(CHECK, seen, "look again if that node is just starting; else see its log")
        }
        (Err(error), None) => {
            let seen = format!("{address} is in use, and not by node {}: {error}", own.name);
            let advice = format!(
                "`ss -ulpn 'sport = :{}'` names the process; end it, or choose another address with --listen",
                address.port()
            );
            Finding::fail(CHECK, seen, advice)
        }
    }
}
