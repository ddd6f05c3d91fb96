//! Client verbs and the REPL: finds the cluster and calls the client crate.

use super::carrier::Carrier;
use super::failure::{Failure, Outcome};
use super::interrupts::Interrupts;
use super::{Arguments, Global, block_on, named_logs};
use clap::CommandFactory;
use norn_cli::repl::{ReplOptions, run as run_repl};
use norn_cli::{Exit, Output, ShownIds, execute, print_help, refuse_usage, usage_summary};
use norn_client::client::ClientConfig;
use norn_client::tls::Renewal;
use norn_host::clock::unix_seconds;
use norn_node::runtime::certificates::{CertificateFiles, find_client};
use norn_node::runtime::diagnostics;
use norn_node::runtime::tls::TlsError;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub use norn_cli::{ClusterVerb, Verb};

/// Name of this program in the cluster's logs.
pub const CLIENT_NAME: &str = "norn";
/// File in the home directory with the lines of earlier sessions.
const HISTORY_FILE: &str = ".norn_history";
/// Time after which a command ends if no node can be reached: two attempts at each.
pub const UNREACHED_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time of a call if `--timeout` limits a command's wait and not each of its calls.
pub const CALL_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Least time to reach the first node, in the same case.
const UNREACHED_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Location of a cluster, with this client's certificate, or of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file of addresses and certificates.
    File(PathBuf),
    /// Both given on the command line.
    Said(Vec<String>, CertificateFiles),
    /// No cluster: the directory of a store in this process.
    Store(PathBuf),
}

impl Place {
    /// Finds it: `--store`, else `--connect` and `--certs`, else `$NORN_CLIENT`, else `.norn/client.toml` in the working directory.
    pub fn find(global: &Global, variable: Option<OsString>, working: &Path) -> Result<Self, Failure> {
        Place::find_if_named(global, variable, working)?.ok_or_else(|| {
            Failure::usage(
                "no cluster to talk to: start one here with `norn dev`, or say --connect HOST:PORT,... --certs DIR, \
                 or set NORN_CLIENT to a client.toml; --store DIR keeps tasks in a directory, without a cluster",
            )
        })
    }

    /// Same, or `None` if neither flags, the variable nor the directory name one.
    pub fn find_if_named(global: &Global, variable: Option<OsString>, working: &Path) -> Result<Option<Self>, Failure> {
        if let Some(directory) = &global.store {
            return Ok(Some(Place::Store(directory.clone())));
        }
        match (global.connect.is_empty(), &global.certs) {
            (false, Some(certificates)) => {
                return Ok(Some(Place::Said(global.connect.clone(), find_client(certificates)?)));
            }
            (false, None) => return Err(Failure::usage("--connect needs --certs DIR as well")),
            (true, Some(_)) => return Err(Failure::usage("--certs needs --connect HOST:PORT,... as well")),
            (true, None) => {}
        }
        if let Some(variable) = variable.filter(|value| !value.is_empty()) {
            let file = PathBuf::from(variable);
            if file.is_file() {
                return Ok(Some(Place::File(file)));
            }
            return Err(Failure::usage(format!("NORN_CLIENT names {}, which is no file", file.display())));
        }
        let file = working.join(".norn").join("client.toml");
        Ok(file.is_file().then_some(Place::File(file)))
    }

    /// Returns the configuration of a client of a cluster. For a command that `waits` for something that may take long, the timeout
    /// limits that wait.
    pub fn config(&self, timeout: Option<Duration>, waits: bool) -> Result<ClientConfig, Failure> {
        let mut config = match self {
            Place::File(file) => ClientConfig::load(file)?,
            Place::Said(addresses, files) => {
                ClientConfig::new(addresses.clone(), &files.authority, &files.certificate, &files.key)
            }
            Place::Store(directory) => {
                let message = format!("--store {}: this needs a cluster", directory.display());
                return Err(Failure::usage(message));
            }
        };
        config.name = CLIENT_NAME.to_owned();
        let set = config.unreached_timeout.unwrap_or(UNREACHED_TIMEOUT);
        let unreached = timeout.map_or(set, |timeout| timeout.max(UNREACHED_TIMEOUT_MIN));
        config.unreached_timeout = Some(if waits { unreached.min(set) } else { unreached });
        config.request_timeout = match timeout {
            Some(timeout) if waits => config.request_timeout.min(timeout.max(CALL_TIMEOUT_MIN)),
            Some(timeout) => timeout,
            None => config.request_timeout,
        };
        Ok(config)
    }
}

/// Loads this client's certificate. Fails if it is unusable, and warns if it expires soon: a command has no log for that.
pub fn read_certificates(files: CertificateFiles) -> Result<Renewal, Failure> {
    let certificates = Renewal::now(files).map_err(TlsError::from)?;
    for warning in certificates.current().warnings(unix_seconds()) {
        eprintln!("warning: {warning}");
    }
    Ok(certificates)
}

fn discover(global: &Global) -> Result<Place, Failure> {
    Place::find(global, std::env::var_os("NORN_CLIENT"), Path::new(""))
}

/// Returns the certificate files for a command that names the nodes itself: those of `--certs`, else of the file that `variable` names.
pub fn own_files(global: &Global, variable: Option<OsString>) -> Result<CertificateFiles, Failure> {
    if let Some(directory) = &global.certs {
        return Ok(find_client(directory)?);
    }
    let Some(variable) = variable.filter(|value| !value.is_empty()) else {
        return Err(Failure::usage("--certs DIR must be given, or NORN_CLIENT name a client.toml"));
    };
    let bare = Global { connect: Vec::new(), ..global.clone() };
    let config = Place::find(&bare, Some(variable), Path::new(""))?.config(None, false)?;
    Ok(CertificateFiles { authority: config.ca, certificate: config.certificate, key: config.key })
}

/// Runs one verb.
pub fn run(verb: Verb, global: Global) -> Outcome {
    if let Verb::Help(help) = &verb {
        return Ok(help_about(&help.verb, global.json));
    }
    let place = discover(&global)?;
    block_on(async move {
        let carrier = Carrier::connect(&place, &global, false).await?;
        // Other verbs hold nothing, and a signal ends them at once, whatever they wait for.
        let claims = matches!(verb, Verb::Claim(_) | Verb::Session(_) | Verb::Redrive(_));
        let done = execute(&carrier, verb, Output::standard(global.json), shown_ids());
        let code = if claims { Interrupts::beside(false)?.or(done).await } else { done.await.into() };
        carrier.close().await;
        Ok(code)
    })
}

/// Returns the store of shown ids in the user's cache directory, if there is one.
fn shown_ids() -> Option<ShownIds> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache =
        named.or_else(|| std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".cache")))?;
    Some(ShownIds::new(cache.join("norn")))
}

/// Prints help about the whole program, not only the verbs of the REPL. Needs no cluster.
fn help_about(verb: &[String], json: bool) -> ExitCode {
    let mut output = Output::standard(json);
    let verb = named_logs(verb);
    let outcome = print_help(Arguments::command(), &verb, &mut output);
    ended(outcome, &mut output)
}

/// Returns the exit of a command that runs without a cluster. A failure that cannot be written to standard output goes to standard error.
fn ended(outcome: Result<Exit, norn_cli::Failure>, output: &mut Output) -> ExitCode {
    let exit = outcome.unwrap_or_else(|failure| {
        let is_written = !matches!(failure, norn_cli::Failure::Output(_)) && output.failure(&failure).is_ok();
        if !is_written && let Some(error) = failure.error() {
            output.unwritten(&error.message, None);
        }
        failure.exit()
    });
    exit.into()
}

/// Prints what is wrong with a command line, or the help that a flag asks for.
pub fn refuse(error: &clap::Error, json: bool) -> ExitCode {
    if !json && error.use_stderr() && diagnostics::is_json() {
        diagnostics::error(&usage_summary(error));
        return Exit::Usage.into();
    }
    let mut output = Output::standard(json);
    let outcome = refuse_usage(error, &mut output);
    ended(outcome, &mut output)
}

/// Runs one verb of the group `cluster`.
pub fn operate(verb: ClusterVerb, global: Global) -> Outcome {
    let place = discover(&global)?;
    let json = global.json;
    block_on(async move {
        let carrier = Carrier::connect(&place, &global, verb.waits()).await?;
        let exit = norn_cli::operate(&carrier, verb, Output::standard(json)).await;
        carrier.close().await;
        Ok(exit.into())
    })
}

/// Runs `norn repl`.
pub fn repl(global: Global) -> Outcome {
    let place = discover(&global)?;
    block_on(async move { repl_at(&place, &global, None).await })
}

/// Runs a REPL on the cluster at a place until the end of the input.
pub async fn repl_at(place: &Place, global: &Global, banner: Option<String>) -> Outcome {
    let carrier = Carrier::connect(place, global, false).await?;
    let history = std::env::home_dir().map(|home| home.join(HISTORY_FILE));
    let mut failed = None;
    let read = async {
        match run_repl(&carrier, ReplOptions { json: global.json, history, banner, shown: shown_ids() }).await {
            Ok(exit) => exit,
            Err(error) => {
                failed = Some(Failure::refused(error.to_string()));
                Exit::Done
            }
        }
    };
    let at_prompt = std::io::stdin().is_terminal();
    let code = Interrupts::beside(at_prompt)?.or(read).await;
    carrier.close().await;
    failed.map_or(Ok(code), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::Cause;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    fn global(connect: &[&str], certificates: Option<&Path>) -> Global {
        let connect = connect.iter().map(|address| (*address).to_owned()).collect();
        Global { connect, certs: certificates.map(Path::to_owned), json: false, timeout: None, store: None }
    }

    /// Goal: a command that reaches no node ends as `--timeout` says, even if that limits a wait, and a cluster without a majority does
    /// not delay it further.
    #[test]
    fn the_timeout_bounds_the_way_to_a_node_as_well() {
        use norn_node::runtime::certificates::{DAYS, Present, Role, create, create_authority};
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        create_authority(here, DAYS).unwrap();
        let files = create(here, Role::Client, "c", &[], DAYS, Present::Kept).unwrap().files;
        let place = Place::Said(vec!["h:1".to_owned()], files);
        let seconds = Duration::from_secs;
        for (timeout, waits, unreached, request) in [
            (None, false, 5, 10),
            (None, true, 5, 10),
            (Some(seconds(1)), false, 1, 1),
            (Some(seconds(30)), false, 30, 30),
            (Some(seconds(3)), true, 3, 3),
            (Some(seconds(1)), true, 1, 2),
            (Some(seconds(900)), true, 5, 10),
            (Some(Duration::ZERO), true, 1, 2),
        ] {
            let config = place.config(timeout, waits).unwrap();
            let bounds = (config.unreached_timeout, config.request_timeout);
            assert_eq!(bounds, (Some(seconds(unreached)), seconds(request)), "{timeout:?}, {waits}");
        }
        let file = here.join("client.toml");
        let text =
            "addresses = [\"h:1\"]\nca = \"a\"\ncertificate = \"b\"\nkey = \"c\"\nunreached_timeout_ms = 20000\n";
        std::fs::write(&file, text).unwrap();
        let own = own_files(&global(&[], None), Some(file.clone().into())).unwrap();
        assert!(own.certificate.ends_with("b") && own_files(&global(&[], None), None).is_err(), "{own:?}");
        let place = Place::File(file);
        for (timeout, waits, unreached) in
            [(None, false, 20), (None, true, 20), (Some(seconds(2)), false, 2), (Some(seconds(30)), true, 20)]
        {
            let config = place.config(timeout, waits).unwrap();
            assert_eq!(config.unreached_timeout, Some(seconds(unreached)), "{timeout:?}, {waits}");
        }
    }

    /// Goal: if no node answers at an address, the message names the address, and does not send the operator to the rest of the cluster.
    #[test]
    fn a_node_that_does_not_answer_is_to_be_looked_for_at_its_address() {
        use norn_node::runtime::caller::CallError;
        let error = CallError::Timeout(Duration::from_secs(5)).answer("gamma:7400");
        assert_eq!((error.cause, error.passes()), (Some(Cause::Unreached), true), "{error}");
        assert!(error.message.contains("gamma:7400: no answer within 5s"), "{error}");
    }

    /// Goal: help that cannot be written is reported.
    #[test]
    fn help_that_cannot_be_written_is_said_on_standard_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        #[derive(Clone, Default)]
        struct Notes(Arc<Mutex<Vec<u8>>>);
        impl Write for Notes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        for json in [false, true] {
            let notes = Notes::default();
            let mut output = Output::new(Full, notes.clone(), json);
            let outcome = print_help(Arguments::command(), &["enqueue".to_owned()], &mut output);
            assert_eq!(ended(outcome, &mut output), ExitCode::FAILURE);
            let notes = String::from_utf8(notes.0.lock().unwrap().clone()).unwrap();
            assert!(notes.starts_with("error: cannot write the result"), "{notes}");
        }
    }

    #[test]
    fn flags_come_before_the_variable_and_the_variable_before_the_directory() {
        use norn_node::runtime::certificates::{DAYS, Present, Role, create, create_authority};
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let none = global(&[], None);
        assert!(Place::find(&none, None, here).is_err());
        std::fs::create_dir(here.join(".norn")).unwrap();
        let default = here.join(".norn").join("client.toml");
        std::fs::write(&default, "").unwrap();
        assert_eq!(Place::find(&none, None, here).unwrap(), Place::File(default.clone()));
        let other = here.join("other.toml");
        assert!(Place::find(&none, Some(other.clone().into()), here).is_err(), "a wrong variable is not passed over");
        std::fs::write(&other, "").unwrap();
        assert_eq!(Place::find(&none, Some(other.clone().into()), here).unwrap(), Place::File(other.clone()));

        create_authority(here, DAYS).unwrap();
        let files = create(here, Role::Client, "c", &[], DAYS, Present::Kept).unwrap().files;
        let said = Place::find(&global(&["h:1"], Some(here)), Some(other.into()), here).unwrap();
        assert_eq!(said, Place::Said(vec!["h:1".to_owned()], files));
        assert_eq!(own_files(&global(&[], Some(here)), None).unwrap(), find_client(here).unwrap());
        assert!(Place::find(&global(&["h:1"], None), None, here).is_err());
        assert!(Place::find(&global(&[], Some(here)), None, here).is_err());
    }
}
