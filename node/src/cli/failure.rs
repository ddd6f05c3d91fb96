//! Failure of a command: text on stderr for people, JSON for programs, and an exit code.

use norn_cli::{Exit, Output};
use norn_client::client::ConnectError;
use norn_node::runtime::caller::CallError;
use norn_node::runtime::certificates::CertificateError;
use norn_node::runtime::diagnostics;
use norn_node::runtime::server::start::StartError;
use norn_node::runtime::settings::SettingsError;
use norn_node::runtime::tls::TlsError;
use norn_store::StoreError;
use norn_wire::Error;
use std::fmt::Display;
use std::process::ExitCode;

/// Outcome of a command.
pub type Outcome = Result<ExitCode, Failure>;

/// Why a command did not do what was requested.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    exit: Exit,
}

impl Failure {
    /// Creates a refusal: exit code 1.
    pub fn refused(message: impl Into<String>) -> Self {
        Failure { error: Error::invalid(message), exit: Exit::Refused }
    }

    /// Creates a failure for a malformed command line: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure { error: Error::invalid(message), exit: Exit::Usage }
    }

    /// Creates a failure for a missing answer: exit code 3.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::unavailable(message).into()
    }

    /// Whether the command line is malformed.
    pub fn is_usage(&self) -> bool {
        self.exit == Exit::Usage
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Prepends what was being done.
    #[must_use]
    pub fn during(mut self, what: impl Display) -> Self {
        self.error.message = format!("{what}: {}", self.error.message);
        self
    }

    /// Appends what can be done about it.
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

refused!(CertificateError, StartError, StoreError, TlsError, std::io::Error);

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

/// Reports how the command ended.
pub fn finish(outcome: Outcome, json: bool) -> ExitCode {
    let failure = match outcome {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    if !json && diagnostics::is_json() {
        diagnostics::error(&failure.error.message);
        return failure.exit.into();
    }
    // If standard output is not writable, people may still read standard error. Otherwise the exit code remains.
    let mut output = Output::standard(json);
    if failure.tell(&mut output).is_err() {
        output.unwritten(&failure.error.message, None);
    }
    failure.exit.into()
}
