//! The `norn` binary: nodes, certificates, clusters, and every client verb.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
