//! The `norn` binary: nodes, certificates, clusters, and every client verb.

mod cli;

/// Messages, tasks and records are many small allocations, often freed by a thread other than the allocating one; this allocator is
/// faster at that than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
