//! What a node prints beside its log. Both go to standard error: where the log is JSON, this is JSON of the same form, so that a
//! program that reads it reads nothing else.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::layer::SubscriberExt;

/// Set before anything is printed, as soon as the form is known.
static JSON: AtomicBool = AtomicBool::new(false);

/// Makes all that follows JSON, or text. Panics of any thread are of this form, too.
pub fn set_json(json: bool) {
    if !JSON.swap(json, Ordering::Relaxed) && json {
        let text = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match is_json() {
            true => error(&panic.to_string()),
            false => text(panic),
        }));
    }
}

/// Whether it is JSON.
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

/// A line as the log has them, whatever the log leaves out, and also before there is a log.
fn unfiltered(print: impl FnOnce()) {
    let layer = tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), print);
}

fn plain(label: &str, message: &str) {
    // With nobody left to read, the exit code still tells.
    let _ = writeln!(std::io::stderr(), "{label}: {message}");
}
