//! Dependencies between crates: each part of Norn can be used without the others.

use std::process::Command;

/// Crates that provide sockets, threads and clocks.
const OF_SERVICES: [&str; 4] = ["tokio", "quinn", "rustls", "socket2"];

/// Names of all crates that a crate of the workspace depends on.
fn built_with(package: &str, more: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let output = command.args(["--package", package]).args(more).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("it says text");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The simulator runs the store and the client without any part of the service. The client does not depend on the store.
// T1
#[test]
fn store_and_client_do_without_the_service_and_the_client_without_the_store() {
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    let simulator = built_with("norn-sim", &[]);
    assert!(
        has(&simulator, "norn-engine") && has(&simulator, "norn-storage") && has(&simulator, "norn-client"),
        "{simulator:?}"
    );
    let client = built_with("norn-client", &["--features", "net"]);
    assert!(!has(&client, "norn-engine") && !has(&client, "norn-storage"), "{client:?}");
    let store = built_with("norn-store", &[]);
    assert!(has(&store, "norn-engine") && has(&store, "norn-storage") && has(&store, "norn-client"), "{store:?}");
    for name in ["norn-node", "norn-doors", "norn-cli", "hyper", "clap"] {
        assert!(!has(&store, name), "the store in a process is built with {name}");
    }
    let service = built_with("norn-node", &[]);
    assert!(!has(&simulator, "norn-node") && has(&service, "norn-engine"), "{service:?}");
    for name in OF_SERVICES {
        assert!(!has(&simulator, name), "the simulator is built with {name}");
        assert!(has(&service, name) || has(&client, name), "nothing is built with {name} any more");
    }
}
