//! The `norn` binary: nodes, certificates, clusters, and every client verb.

mod cli;

/// Messages, tasks and records are many small pieces of memory, often freed by another thread than the one that asked for
/// them; this allocator does that in less time than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
