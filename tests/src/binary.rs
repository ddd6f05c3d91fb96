//! The `norn` binary, and the examples, as built beside the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Names another program to be tested.
const VARIABLE: &str = "NORN_NEW_BINARY";

/// The binary of the same profile as the running test. If it is absent or older than its sources, it is built first. With
/// `NORN_NEW_BINARY`, that one, as it is.
pub fn norn() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(program) = std::env::var_os(VARIABLE) {
            return program.into();
        }
        fresh(profile().join("norn"), &["node", "client", "Cargo.lock"], &["--package", "norn-node", "--bin", "norn"])
    })
}

/// An example of the client library, by its name, of the same profile as the running test.
pub fn example(name: &str) -> PathBuf {
    let place = profile().join("examples").join(name);
    fresh(place, &["client", "Cargo.lock"], &["--package", "norn-client", "--example", name])
}

/// A program at its place. If it is absent or older than its sources, it is built first.
fn fresh(place: PathBuf, sources: &[&str], what: &[&str]) -> PathBuf {
    if is_stale(&place, sources) {
        build(what);
    }
    assert!(place.is_file(), "{} was not built", place.display());
    place
}

/// The directory of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in a workspace")
}

/// `target/<profile>` for a test that runs as `target/<profile>/deps/<test>`.
fn profile() -> PathBuf {
    let executable = std::env::current_exe().expect("a test knows its own file");
    let dependencies = executable.parent().expect("a file is in a directory");
    match dependencies.file_name() {
        Some(name) if name == "deps" => dependencies.parent().expect("it is below the profile's directory").to_owned(),
        _ => dependencies.to_owned(),
    }
}

fn is_stale(binary: &Path, sources: &[&str]) -> bool {
    let Ok(built) = binary.metadata().and_then(|metadata| metadata.modified()) else { return true };
    sources.iter().any(|source| newest(&workspace().join(source)) > built)
}

/// The latest change of a file, or of anything below a directory.
fn newest(path: &Path) -> SystemTime {
    if let Ok(entries) = std::fs::read_dir(path) {
        return entries.flatten().map(|entry| newest(&entry.path())).max().unwrap_or(SystemTime::UNIX_EPOCH);
    }
    path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn build(what: &[&str]) {
    let directory = profile();
    let target = directory.parent().expect("it is in the target directory");
    // The directory of the `dev` profile has another name than the profile.
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace()).args(["build", "--quiet", "--profile", profile]).args(what);
    // The gate sets this for the test harness; build scripts would take it for a nightly compiler, and all be built again.
    command.env_remove("RUSTC_BOOTSTRAP");
    let built = command.arg("--target-dir").arg(target).status();
    assert!(built.expect("cargo runs").success(), "`cargo build {}` failed", what.join(" "));
}
