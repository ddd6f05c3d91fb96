//! `norn start`: runs one node.

use super::failure::{Failure, Outcome};
use super::progress::Replay;
use super::{Global, say};
use clap::Args;
use norn_node::runtime::caller::Caller;
use norn_node::runtime::diagnostics;
use norn_node::runtime::joining::{JoinError, join};
use norn_node::runtime::server::{Readiness, Server};
use norn_node::runtime::settings::{Effective, Settings, SettingsError, unknown_variables};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Time limit for the answer of a member that is asked to admit this node.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Flags of settings. Every setting also has an environment variable and a line in the file; see `norn start --print-config`.
#[derive(Debug, Args)]
pub struct SettingFlags {
    /// Directory of the write-ahead log; the node draws its identity in an empty one. Must not be left out, here or in the settings.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// TOML file with settings; if left out, the file that the variable NORN_CONFIG names.
    // The parser would refuse an empty variable.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and UDP port to bind [default: 127.0.0.1:7400].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address at which others reach this node, if it differs from the bound one, and whenever a member moves [default: the address
    /// bound].
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Cluster to join, if the node has none: a token of `norn cluster token`, or HOST:PORT,... of members. If left out, the node waits
    /// until it is founded or added.
    #[arg(long, value_name = "TOKEN")]
    join: Option<String>,
    /// Address of a peer, whatever the cluster knows: for a start after all nodes have moved. May be repeated; if left out, the addresses
    /// that the cluster knows are used.
    #[arg(long = "peer", value_name = "NODE=HOST:PORT")]
    peers: Vec<String>,
    /// Failure domain: replicas are spread over zones. If left out, the node is in no zone.
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Name of the node, which selects node-NAME.crt of the certificates [default: the only one, else the one named as the data
    /// directory].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Log filter: a level, or directives such as `info,norn=debug` [default: info].
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Format of the log: `text` or `json` [default: text].
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any other setting. Settings that are left out come from the variables and the file, else from the defaults: see `norn start
    /// --print-config`.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
}

/// Flags of `norn start`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    settings: SettingFlags,
    /// Print the effective settings with the source of each, and end; with --json, an object for each.
    #[arg(long)]
    print_config: bool,
    /// End with the process of this number, which has started this one.
    #[arg(long, value_name = "PID", hide = true)]
    die_with_parent: Option<i32>,
}

/// Sources of settings, besides their defaults.
#[derive(Debug)]
pub struct Sources {
    /// The file, if one is named.
    pub file: Option<PathBuf>,
    /// Environment variables that are text.
    pub environment: Vec<(String, String)>,
    flags: Vec<(String, String)>,
}

impl Sources {
    /// Merges them.
    pub fn gather(&self) -> Result<Effective, SettingsError> {
        Effective::gather(self.file.as_deref(), self.environment.iter().cloned(), self.flags.iter().cloned())
    }
}

impl SettingFlags {
    /// Whether any of these flags is given.
    pub fn are_given(&self) -> bool {
        let SettingFlags { data, config, listen, advertise, join, peers, zone, name, log, log_format, settings } = self;
        let paths = [data, config].into_iter().any(Option::is_some);
        let texts = [listen, advertise, join, zone, name, log, log_format].into_iter().any(Option::is_some);
        paths || texts || !peers.is_empty() || !settings.is_empty()
    }

    /// Returns the sources: the flags, the variables, and the file that a flag or the variable NORN_CONFIG names.
    pub fn sources(&self, global: &Global) -> Result<Sources, Failure> {
        let flags = self.flags(global)?;
        let environment = texts(std::env::vars_os())?;
        let named = std::env::var_os("NORN_CONFIG").filter(|file| !file.is_empty()).map(PathBuf::from);
        Ok(Sources { file: self.config.clone().or(named), environment, flags })
    }

    fn flags(&self, global: &Global) -> Result<Vec<(String, String)>, Failure> {
        let path = |flag: &str, path: &Option<PathBuf>| match path {
            Some(path) => match path.to_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(Failure::usage(format!("{flag} {path:?}: the name is no text (UTF-8)"))),
            },
            None => Ok(None),
        };
        let named = [
            ("data", path("--data", &self.data)?),
            ("certs", path("--certs", &global.certs)?),
            ("listen", self.listen.clone()),
            ("advertise", self.advertise.clone()),
            ("zone", self.zone.clone()),
            ("join", self.join.clone()),
            ("peers", Some(self.peers.join(",")).filter(|_| !self.peers.is_empty())),
            ("name", self.name.clone()),
            ("log", self.log.clone()),
            ("log_format", self.log_format.clone()),
        ];
        let mut flags: Vec<(String, String)> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        if self.peers.iter().any(|peer| peer.trim().is_empty()) {
            return Err(Failure::usage("--peer wants NODE=HOST:PORT, not nothing"));
        }
        for setting in &self.settings {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("--set wants NAME=VALUE, not {setting:?}")))?;
            flags.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(flags)
    }
}

/// Runs a node until it is stopped.
pub fn run(options: Options, global: Global) -> Outcome {
    if let Some(parent) = options.die_with_parent {
        die_with(parent)?;
    }
    let sources = options.settings.sources(&global)?;
    let effective = sources.gather()?;
    if !options.print_config {
        diagnostics::set_json(effective.text("log_format") == "json");
    }
    effective.check()?;
    if options.print_config {
        let printed = if global.json { effective.print_json() } else { effective.print() };
        return say(printed.trim_end());
    }
    init_logging(effective.log_filter()?, effective.logs_json()?);
    let settings = effective.settings()?;
    for variable in unknown_variables(sources.environment.into_iter()) {
        tracing::warn!(variable, "no setting is called so: the variable has no effect");
    }
    let threads = effective.threads();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let outcome = runtime.block_on(serve(settings));
    // Tasks that still run have nothing to lose: log and answers are written.
    runtime.shutdown_background();
    outcome
}

/// Returns the environment variables that are valid text. Refuses a setting that is not, because it would be ignored as if absent.
fn texts(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<(String, String)>, Failure> {
    /// These name files, and a file may have any name.
    const FILES: [&str; 2] = ["NORN_CLIENT", "NORN_CONFIG"];
    let mut texts = Vec::new();
    for (name, value) in variables {
        let is_own = name.as_encoded_bytes().starts_with(b"NORN_") && !FILES.iter().any(|file| name == *file);
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => texts.push((name, value)),
            (Ok(name), Err(value)) if is_own => {
                return Err(Failure::usage(format!("environment {name}: {value:?} is no text (UTF-8)")));
            }
            (Err(name), _) if is_own => {
                return Err(Failure::usage(format!(
                    "environment {name:?}: the name of the variable is no text (UTF-8)"
                )));
            }
            (_, _) => {}
        }
    }
    Ok(texts)
}

/// Whether a command line runs a node that logs JSON, as far as that is visible before it is parsed; a file of settings is not read for
/// that.
pub fn logs_json(words: &[OsString], variable: Option<&OsStr>) -> bool {
    let Some(start) = words.iter().position(|word| word == "start") else { return false };
    let is_json = |pair: &[OsString]| match pair {
        [flag, value] if flag == "--log-format" => Some(value == "json"),
        [flag, value] if flag == "--set" => value.to_str()?.strip_prefix("log_format=").map(|value| value == "json"),
        [_, flag] => flag.to_str()?.strip_prefix("--log-format=").map(|value| value == "json"),
        _ => None,
    };
    let said = words[start..].windows(2).filter_map(is_json).next_back();
    said.unwrap_or_else(|| variable.is_some_and(|value| value == "json"))
}

/// Asks the system to send SIGTERM when the parent ends, and checks that it has not ended already.
fn die_with(parent: i32) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(std::io::Error::from)?;
    if getppid() == Pid::from_raw(parent) {
        return Ok(());
    }
    Err(Failure::refused("the process that started this node is gone"))
}

fn init_logging(filter: Targets, json: bool) {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match json {
        false => layer.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
        true => layer.json().boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
}

/// Ends a node that was stopped before it had started.
fn stopped_early() -> ExitCode {
    tracing::info!("stopped before it had started");
    ExitCode::SUCCESS
}

/// Reports the end of a node that was not asked to stop, whether it was ready or not.
fn stopped_by_itself(server: &Server) -> Failure {
    let why = server.metrics().ending().unwrap_or("its last messages say why");
    Failure::refused(format!("the node stopped by itself: {why}"))
}

async fn serve(settings: Settings) -> Outcome {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let data = settings.data.clone();
    let name = settings.name.clone();
    let invitation = settings.join.clone();
    let mut replay = Replay::new();
    let starting = Server::start(settings, move |replaying| replay.show(&replaying));
    // A node promises nothing before it has started, so ending midway is as safe as a crash.
    let server = tokio::select! {
        started = starting => started?,
        _ = terminate.recv() => return Ok(stopped_early()),
        _ = interrupt.recv() => return Ok(stopped_early()),
    };
    tracing::info!(%name, address = %server.address(), node = %server.identity(), data = %data.display(), "listening");
    if let Some(address) = server.http_address() {
        tracing::info!(%address, "listening for HTTP");
    }
    let reload = server.certificates_reload();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload.notify_one();
        }
    });
    let readiness = async {
        if let Some(invitation) = &invitation {
            let caller = Caller::with(server.certificates().clone(), CALL_TIMEOUT)?;
            let joined = join(&server, &caller, invitation).await;
            caller.close().await;
            joined.map_err(|error| match error {
                JoinError::Stopped => stopped_by_itself(&server),
                error => Failure::refused(error.to_string()),
            })?;
            return match server.serving().await {
                true => say("ready"),
                false => Err(stopped_by_itself(&server)),
            };
        }
        match server.ready().await {
            Some(Readiness::AwaitsCluster) => {
                diagnostics::note(&format!(
                    "{name} has no cluster yet and waits for `norn cluster init` or `add`; `--join` makes it a member by itself"
                ));
                say("ready")
            }
            Some(Readiness::Serving) => say("ready"),
            None => Err(stopped_by_itself(&server)),
        }
    };
    tokio::select! {
        ready = readiness => {
            if let Err(failure) = ready {
                server.shutdown().await;
                return Err(failure);
            }
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = server.stopped() => {
                    let failure = stopped_by_itself(&server);
                    server.shutdown().await;
                    return Err(failure);
                }
            }
        }
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    tokio::select! {
        () = server.shutdown() => {
            tracing::info!("stopped");
            Ok(ExitCode::SUCCESS)
        }
        // A second signal skips the handover; the log makes that as safe as a crash.
        _ = terminate.recv() => Err(Failure::refused("stopped without handing over")),
        _ = interrupt.recv() => Err(Failure::refused("stopped without handing over")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::config::table::find;
    use std::os::unix::ffi::OsStringExt;

    /// Goal: a setting in a variable is used or refused.
    #[test]
    fn a_variable_that_is_no_text_is_refused_by_name() {
        let broken = || OsString::from_vec(vec![b'r', 0xff]);
        let read = |name: &str| texts([("HOME".into(), "h".into()), (name.into(), broken())].into_iter());
        for name in ["NORN_ZONE", "NORN_BOGUS"] {
            let refusal = format!("{:?}", read(name).unwrap_err());
            assert!(refusal.contains(&format!("environment {name}: ")) && refusal.contains("is no text"), "{refusal}");
        }
        for name in ["LS_COLORS", "NORN_CONFIG", "NORN_CLIENT"] {
            assert_eq!(read(name).unwrap(), [("HOME".to_owned(), "h".to_owned())]);
        }
    }

    /// Goal: flags of settings show the defaults of the table of settings.
    #[test]
    fn flags_of_settings_show_the_defaults_of_the_table() {
        let command = Options::augment_args(clap::Command::new("start"));
        let shown = command.get_arguments().filter_map(|argument| {
            let default = find(argument.get_id().as_str())?.default_text();
            Some((default, argument.get_help().map(ToString::to_string).unwrap_or_default()))
        });
        let with_default: Vec<(String, String)> = shown.filter(|(default, _)| !default.is_empty()).collect();
        assert_eq!(with_default.len(), 3, "{with_default:?}");
        for (default, help) in with_default {
            assert!(help.ends_with(&format!("[default: {default}]")), "{help}");
        }
    }

    #[test]
    fn a_log_in_json_is_known_before_the_command_line_is_parsed() {
        let known = |line: &str, variable: Option<&str>| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            logs_json(&words, variable.map(OsStr::new))
        };
        for line in
            ["--log-format json", "--log-format=json", "--set log_format=json", "--log-format text --log-format=json"]
        {
            assert!(known(&format!("norn start {line} --nonsense"), None), "{line}");
        }
        assert!(known("norn start", Some("json")));
        for (line, variable) in
            [("norn start", None), ("norn start --log-format text", Some("json")), ("norn count", Some("json"))]
        {
            assert!(!known(line, variable), "{line}");
        }
    }
}
