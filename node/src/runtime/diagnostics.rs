//! Messages that a node prints besides its log. Both go to standard error: if the log is JSON, these messages are JSON of the same
//! form, so that a program that reads the output finds nothing else.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::layer::SubscriberExt;

/// Set before anything is printed, as soon as the format is known.
static JSON: AtomicBool = AtomicBool::new(false);

/// Sets the format of all later messages to JSON or text. Panics of any thread use it, too.
pub fn set_json(json: bool) {
    if !JSON.swap(json, Ordering::Relaxed) && json {
        let text = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match is_json() {
            true => error(&panic.to_string()),
            false => text(panic),
        }));
    }
}

/// Whether the format is JSON.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Prints why the process ends.
pub fn error(message: &str) {
    match is_json() {
        true => unfiltered(|| tracing::error!("{message}")),
        false => plain("error", message),
    }
}

/// Prints a remark.
pub fn note(message: &str) {
    match is_json() {
        true => unfiltered(|| tracing::info!("{message}")),
        false => plain("note", message),
    }
}

/// Prints a line in the log's format, regardless of the log's filter, and also before there is a log.
fn unfiltered(print: impl FnOnce()) {
    let layer = tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), print);
}

fn plain(label: &str, message: &str) {
    // If standard error is closed, the exit code still shows the result.
    let _ = writeln!(std::io::stderr(), "{label}: {message}");
}
