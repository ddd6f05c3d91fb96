//! How a verb ends: exit codes, and failures for people and programs.

use super::text::duration;
use norn_wire::{Cause, Error, ErrorCode, Retry};
use std::io;

/// Exit of a verb, from best to worst, so that several results have a worst one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Exit {
    /// Success.
    #[default]
    Done,
    /// A claim found no task.
    NothingToClaim,
    /// Nothing was changed: the task had ended before.
    AlreadyEnded,
    /// `doctor` found something wrong.
    Ailing,
    /// Refused: not found, token superseded, invalid input.
    Refused,
    /// The command is malformed, or asks for a feature that does not exist yet.
    Usage,
    /// Too few nodes answered, or the outcome is unknown.
    Unavailable,
    /// Ctrl-C ended it before it was finished.
    Interrupted,
}

impl Exit {
    /// Returns the exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Unavailable => 3,
            Exit::NothingToClaim => 4,
            Exit::AlreadyEnded => 5,
            Exit::Ailing => 6,
            // As a shell reports a command that the signal has ended.
            Exit::Interrupted => 130,
        }
    }

    /// Returns the exit for an error of this code.
    pub fn of(code: ErrorCode) -> Exit {
        match code.retry() {
            _ if code == ErrorCode::Unsupported => Exit::Usage,
            Retry::Never => Exit::Refused,
            Retry::Now | Retry::Later => Exit::Unavailable,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Why a verb did not do what was requested.
#[derive(Debug)]
pub enum Failure {
    /// Error of a node or the session, or input that breaks a rule of the domain.
    Call(Error),
    /// Same, with a message that already says what to do.
    Explained(Error),
    /// Malformed command line.
    Usage(String),
    /// The result could not be written. A broken pipe means that the reader has had enough.
    Output(io::Error),
}

impl Failure {
    /// Creates a failure for input that breaks a rule of the domain: exit code 1.
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure::Call(Error::invalid(message))
    }

    /// Creates a failure for a flag whose feature does not exist yet: exit code 2.
    pub fn unsupported(flag: &str) -> Self {
        let message = format!("{flag} is not supported yet; nothing was done. Leave it out to go on without it");
        Failure::Call(Error::new(ErrorCode::Unsupported, message))
    }

    /// Returns the error as a program reads it; `None` if there is no reader left.
    pub fn error(&self) -> Option<Error> {
        match self {
            Failure::Call(error) | Failure::Explained(error) => Some(error.clone()),
            Failure::Usage(message) => Some(Error::invalid(message.clone())),
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Failure::Output(error) => Some(Error::invalid(format!("cannot write the result: {error}"))),
        }
    }

    /// Returns the exit.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Call(error) | Failure::Explained(error) => Exit::of(error.code),
            Failure::Usage(_) => Exit::Usage,
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Failure::Output(_) => Exit::Refused,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Call(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

impl From<norn_wire::ids::ParseError> for Failure {
    fn from(error: norn_wire::ids::ParseError) -> Self {
        Failure::invalid(error.0)
    }
}

/// Returns what a person can do about an error, if its message alone does not say. `adds`: the command adds tasks, so repeating it adds
/// others unless it names their ids.
pub fn advice(error: &Error, adds: bool) -> Option<String> {
    match error.code {
        ErrorCode::Unknown => Some(match error.id {
            Some(id) => format!("it may have taken effect; the same call for {id} is safe to repeat, `get {id}` looks"),
            None if adds => {
                "it may have taken effect; it is safe to repeat, but without an id it adds new tasks again".to_owned()
            }
            None => "it may have taken effect; look, or repeat it".to_owned(),
        }),
        // The message says what to do.
        _ if error.is_of_no_member() => None,
        _ if error.cause == Some(Cause::Unreached) => Some(
            "see that the nodes run and listen at these addresses, and that no firewall is between: `norn dev` starts a cluster here, \
             `norn start` a node"
                .to_owned(),
        ),
        ErrorCode::Unavailable | ErrorCode::NotReady => {
            Some("try again in a moment; `status` and `nodes` show who answers".to_owned())
        }
        ErrorCode::ClockAhead => {
            let how_long = error.after_ms.map_or_else(String::new, |after_ms| format!(" for {}", duration(after_ms)));
            Some(format!("only what needs a new id is refused{how_long}; a node that is added lends ids at once"))
        }
        // This message says what to do, too.
        ErrorCode::NoSpace if error.message.contains("disk_bytes_max") => None,
        ErrorCode::NoSpace => Some("make room on the disk, then try again".to_owned()),
        ErrorCode::Overloaded => Some("try again in a moment, with less at once".to_owned()),
        ErrorCode::Superseded => Some("stop working on the task; `get` shows who holds it now".to_owned()),
        ErrorCode::Stale => Some("ask again in a moment".to_owned()),
        _ => None,
    }
}
