//! How a verb ends: exit codes, and failures for people and for programs.

use super::text::duration;
use norn_wire::{Cause, Error, ErrorCode, Retry};
use std::io;

/// How a verb ended. From better to worse, so that several results have a worst one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Exit {
    /// It was done.
    #[default]
    Done,
    /// A claim found no task.
    NothingToClaim,
    /// Nothing was changed: the task had ended before.
    AlreadyEnded,
    /// It was refused: not found, token superseded, invalid input.
    Refused,
    /// The command is not well formed, or asks for something that is not there yet.
    Usage,
    /// Too few nodes answered, or the outcome is not known.
    Unavailable,
    /// Ctrl-C ended it amid its work.
    Interrupted,
}

impl Exit {
    /// The code of the process.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Unavailable => 3,
            Exit::NothingToClaim => 4,
            Exit::AlreadyEnded => 5,
            // As a shell says it of a command that the signal has ended.
            Exit::Interrupted => 130,
        }
    }

    /// What an error of this kind ends in.
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

/// Why a verb did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// A node or the session says so, or the input breaks a rule of the domain.
    Call(Error),
    /// The same, and its message says what to do.
    Told(Error),
    /// The command line is not well formed.
    Usage(String),
    /// The result could not be written. With a broken pipe the reader has had enough.
    Output(io::Error),
}

impl Failure {
    /// Input that breaks a rule of the domain: exit code 1.
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure::Call(Error::invalid(message))
    }

    /// A flag whose feature is not there yet: exit code 2.
    pub fn unsupported(flag: &str) -> Self {
        let message = format!("{flag} is not supported yet; nothing was done. Leave it out to go on without it");
        Failure::Call(Error::new(ErrorCode::Unsupported, message))
    }

    /// The error as a program reads it; none if there is nobody left to read.
    pub fn error(&self) -> Option<Error> {
        match self {
            Failure::Call(error) | Failure::Told(error) => Some(error.clone()),
            Failure::Usage(message) => Some(Error::invalid(message.clone())),
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Failure::Output(error) => Some(Error::invalid(format!("cannot write the result: {error}"))),
        }
    }

    /// What it ends in.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Call(error) | Failure::Told(error) => Exit::of(error.code),
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

/// What a person can do about an error, where its message alone does not say. A command that `adds` tasks adds others when it is
/// repeated, unless it names their ids.
pub fn advice(error: &Error, adds: bool) -> Option<String> {
    match error.code {
        ErrorCode::Unknown => Some(match error.id {
            Some(id) => format!("it may have taken effect; the same call for {id} is safe to repeat, `get {id}` looks"),
            None if adds => {
                "it may have taken effect; it is safe to repeat, but without an id it adds new tasks again".to_owned()
            }
            None => "it may have taken effect; look, or repeat it".to_owned(),
        }),
        // Its message says it.
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
        // Its message says it, too.
        ErrorCode::NoSpace if error.message.contains("disk_bytes_max") => None,
        ErrorCode::NoSpace => Some("make room on the disk, then try again".to_owned()),
        ErrorCode::Overloaded => Some("try again in a moment, with less at once".to_owned()),
        ErrorCode::Superseded => Some("stop working on the task; `get` shows who holds it now".to_owned()),
        ErrorCode::Stale => Some("ask again in a moment".to_owned()),
        _ => None,
    }
}
