//! Signals that end a command: it closes its connections in order, so that it is granted nothing any more.

use norn_cli::Exit;
use std::future::Future;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Offset that a shell adds to the number of the signal that ended a command.
const SIGNALLED: u8 = 128;

/// Signals that end a command.
pub struct Interrupts {
    terminate: Signal,
    hangup: Signal,
    /// Absent if the command handles Ctrl-C itself.
    interrupt: Option<Signal>,
}

impl Interrupts {
    /// Listens to the signals, without Ctrl-C for a command that handles it `itself`.
    pub fn beside(itself: bool) -> std::io::Result<Interrupts> {
        let interrupt = if itself { None } else { Some(signal(SignalKind::interrupt())?) };
        Ok(Interrupts { terminate: signal(SignalKind::terminate())?, hangup: signal(SignalKind::hangup())?, interrupt })
    }

    /// Returns the exit code of a command, which is dropped if a signal comes first.
    pub async fn or(mut self, command: impl Future<Output = Exit>) -> ExitCode {
        let interrupted = async {
            match &mut self.interrupt {
                Some(interrupt) => interrupt.recv().await,
                None => std::future::pending().await,
            }
        };
        let kind = tokio::select! {
            biased;
            exit = command => return exit.into(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
            _ = interrupted => SignalKind::interrupt(),
        };
        ExitCode::from(SIGNALLED.saturating_add(u8::try_from(kind.as_raw_value()).unwrap_or_default()))
    }
}
