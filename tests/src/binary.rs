//! The `norn` binary, and the examples, as built beside the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Names another program to test instead.
const VARIABLE: &str = "NORN_NEW_BINARY";

/// The binary of the same profile as the running test. If it is absent or older than its sources, cargo builds it first. If
/// `NORN_NEW_BINARY` is set, the program that it names, unchanged.
pub fn norn() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(program) = std::env::var_os(VARIABLE) {
            return program.into();
        }
        let sources = [
            "node/src",
            "node/Cargo.toml",
            "node/doors",
            "node/engine",
            "node/model",
            "node/restore",
            "node/storage",
            "client/src",
            "client/cli",
            "client/wire",
            "client/Cargo.toml",
            "Cargo.lock",
        ];
        // The `formats` test depends on the program. This command builds it with the same features as all other tests.
        fresh(profile().join("norn"), &sources, &["test", "--no-run", "--workspace", "--test", "formats"])
    })
}

/// An example of the client library by name, in the same profile as the running test.
pub fn example(name: &str) -> PathBuf {
    let sources = ["client/src", "client/wire", "client/examples", "client/Cargo.toml", "Cargo.lock"];
    fresh(profile().join("examples").join(name), &sources, &["build", "--workspace", "--example", name])
}

/// An example of the store in a process by name, in the same profile as the running test.
pub fn store_example(name: &str) -> PathBuf {
    let sources = ["client/src", "client/wire", "client/examples", "node", "Cargo.lock"];
    fresh(profile().join("examples").join(name), &sources, &["build", "--workspace", "--example", name])
}

/// The program at a path. If it is absent or older than its sources, cargo builds it first.
fn fresh(place: PathBuf, sources: &[&str], command: &[&str]) -> PathBuf {
    if is_stale(&place, sources) {
        cargo(command);
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

fn is_stale(program: &Path, sources: &[&str]) -> bool {
    let Ok(built) = program.metadata().and_then(|metadata| metadata.modified()) else { return true };
    sources.iter().any(|source| newest(&workspace().join(source)) > built)
}

/// The latest modification time of a file, or of anything below a directory except tests, which are not part of a program.
fn newest(path: &Path) -> SystemTime {
    const TESTS: [&str; 2] = ["tests", "tests.rs"];
    if let Ok(entries) = std::fs::read_dir(path) {
        let entries = entries.flatten().filter(|entry| TESTS.iter().all(|tests| entry.file_name() != *tests));
        return entries.map(|entry| newest(&entry.path())).max().unwrap_or(SystemTime::UNIX_EPOCH);
    }
    path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn cargo(arguments: &[&str]) {
    let directory = profile();
    let target = directory.parent().expect("it is in the target directory");
    // The directory of the `dev` profile is not named after the profile.
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace()).args(arguments).args(["--quiet", "--profile", profile]);
    // The gate sets this for the test harness. Build scripts would take it as the sign of a nightly compiler, and everything would be
    // rebuilt.
    command.env_remove("RUSTC_BOOTSTRAP");
    let built = command.arg("--target-dir").arg(target).status();
    assert!(built.expect("cargo runs").success(), "`cargo {}` failed", arguments.join(" "));
}
