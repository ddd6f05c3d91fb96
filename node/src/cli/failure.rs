//! How a command fails: for people on stderr, for programs as JSON, and as an exit code.

use norn_cli::{Exit, Output};
use norn_client::client::ConnectError;
use norn_node::runtime::caller::CallError;
use norn_node::runtime::certificates::CertificateError;
use norn_node::runtime::diagnostics;
use norn_node::runtime::server::StartError;
use norn_node::runtime::settings::SettingsError;
use norn_node::runtime::tls::TlsError;
use norn_wire::Error;
use std::fmt::Display;
use std::process::ExitCode;

/// What a command ends in.
pub type Outcome = Result<ExitCode, Failure>;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    exit: Exit,
}

impl Failure {
    /// Refused: exit code 1.
    pub fn refused(message: impl Into<String>) -> Self {
        Failure { error: Error::invalid(message), exit: Exit::Refused }
    }

    /// The command line makes no sense: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure { error: Error::invalid(message), exit: Exit::Usage }
    }

    /// Nobody answers: exit code 3.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::unavailable(message).into()
    }

    /// The same, with what was being done before it.
    #[must_use]
    pub fn during(mut self, what: impl Display) -> Self {
        self.error.message = format!("{what}: {}", self.error.message);
        self
    }

    /// The same, with what can be done about it behind it.
    #[must_use]
    pub fn advising(mut self, what: impl Display) -> Self {
        self.error.message = format!("{}; {what}", self.error.message);
        self
    }

    fn tell(&self, output: &mut Output) -> Result<(), norn_cli::Failure> {
        if output.json() {
            output.failure(&norn_cli::Failure::Call(self.error.clone()))?;
        } else {
            output.complain(&self.error.message)?;
        }
        output.flush()
    }
}

macro_rules! refused {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::refused(error.to_string())
            }
        })+
    };
}

refused!(CertificateError, StartError, TlsError, std::io::Error);

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoAddress | ConnectError::Address(_) => Failure::usage(error.to_string()),
            error => Failure::refused(error.to_string()),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Failure::usage(error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = Exit::of(error.code);
        Failure { error, exit }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(error) => error.into(),
            CallError::Tls(error) => error.into(),
            lasting @ (CallError::Connection(_) | CallError::Unreached(_)) if lasting.is_lasting() => {
                Failure::refused(lasting.to_string())
            }
            other => Failure::unavailable(other.to_string()),
        }
    }
}

/// Tells how the command ended.
pub fn finish(outcome: Outcome, json: bool) -> ExitCode {
    let failure = match outcome {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    if !json && diagnostics::is_json() {
        diagnostics::error(&failure.error.message);
        return failure.exit.into();
    }
    // Where standard output takes nothing, people are left to read. Where they are not, the exit code still tells.
    let mut output = Output::standard(json);
    if failure.tell(&mut output).is_err() {
        output.unwritten(&failure.error.message, None);
    }
    failure.exit.into()
}
