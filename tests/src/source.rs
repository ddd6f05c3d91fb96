//! The Rust files of the workspace, for checks over all of them.

use crate::binary;
use std::fs;
use std::path::{Path, PathBuf};

/// Fewer files than this mean that the directory walk is broken.
const FILES_MIN: usize = 100;

/// A Rust file.
pub struct Source {
    /// Path relative to the workspace.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// All Rust files of the workspace, sorted by path.
pub fn sources() -> Vec<Source> {
    let root = binary::workspace();
    let mut files = Vec::new();
    walk(root, &mut files);
    files.sort();
    assert!(files.len() >= FILES_MIN, "only {} files were found", files.len());
    let read = |file: PathBuf| {
        let path = file.strip_prefix(root).expect("it is below the root").to_string_lossy().into_owned();
        Source { path, text: fs::read_to_string(&file).expect("source is UTF-8") }
    };
    files.into_iter().map(read).collect()
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("it can be listed").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            let skipped = name == "target" || name.to_string_lossy().starts_with('.');
            if !skipped {
                walk(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
