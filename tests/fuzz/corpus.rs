//! Writes the valid samples to `corpus/TARGET/`, one file each, so that a fuzzer starts from well-formed inputs.

use norn_tests::fuzz::samples;
use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let mut messages = samples::messages();
    messages.extend(samples::bodies());
    let corpora = [
        ("frames", samples::frames()),
        ("directory", samples::directories()),
        ("record", samples::record_bodies()),
        ("wire", messages),
    ];
    for (target, samples) in corpora {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&directory)?;
        for (number, bytes) in samples.iter().enumerate() {
            fs::write(directory.join(format!("sample-{number:03}")), bytes)?;
        }
    }
    Ok(())
}
