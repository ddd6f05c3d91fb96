//! Rules of style that no compiler checks, over every Rust file of the workspace.

use norn_tests::binary;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest line, in characters.
const COLUMNS_MAX: usize = 140;
/// Longest file. Its tests, at the end, do not count.
const LINES_MAX: usize = 700;
/// The only places of the tests that may pause.
const PAUSES: [&str; 1] = ["tests/src/wait.rs"];
/// Fewer files than this would mean that the walk has gone astray.
const FILES_MIN: usize = 100;

/// A file: its path from the workspace, and its text.
struct Source {
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
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

/// Complains about every line of every file for which `wrong` has something to say.
fn no_line_is(wrong: impl Fn(&Source, &str) -> Option<String>) {
    let mut complaints = Vec::new();
    for source in sources() {
        for (index, line) in source.text.lines().enumerate() {
            if let Some(complaint) = wrong(&source, line) {
                complaints.push(format!("{}:{}: {complaint}", source.path, index + 1));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// A macro's call, put together here so that this file does not contain what it looks for.
fn call_of(name: &str) -> String {
    format!("{name}!(")
}

#[test]
fn nothing_is_left_to_do() {
    let macros = ["todo", "unimplemented", "dbg"].map(call_of);
    no_line_is(|_, line| {
        let found = macros.iter().find(|word| line.contains(word.as_str()))?;
        Some(format!("{found} is left"))
    });
}

#[test]
fn no_line_is_too_long() {
    no_line_is(|_, line| {
        let columns = line.chars().count();
        (columns > COLUMNS_MAX).then(|| format!("{columns} columns, at most {COLUMNS_MAX}"))
    });
}

/// Lines before the tests that a file ends with.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with("mod tests {"));
    tests.unwrap_or(lines.len())
}

#[test]
fn no_file_is_too_long() {
    let mut complaints = Vec::new();
    for Source { path, text } in sources() {
        let lines = lines_without_tests(&text);
        if lines > LINES_MAX {
            complaints.push(format!("{path}: {lines} lines, at most {LINES_MAX}"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// A comment that names a row of the list of requirements: a capital letter and a number, both without decoration,
/// several with `, ` between them or as a range.
fn names_rows(comment: &str) -> Option<Result<(), String>> {
    let words: Vec<&str> = comment.split([',', ' ']).filter(|word| !word.is_empty()).collect();
    let looks_like_row = |word: &&str| {
        let mut characters = word.chars();
        characters.next() == Some('S') && characters.next().is_some_and(|next| next.is_ascii_digit())
    };
    words.first().filter(|word| looks_like_row(word))?;
    let wrong = words.iter().filter(|word| looks_like_row(word)).find(|word| {
        let row = word.trim_end_matches([':', '.', ';']);
        let numbers: Vec<&str> = row.split('-').map(|part| part.strip_prefix('S').unwrap_or("")).collect();
        let is_number = |text: &&str| {
            (1..=3).contains(&text.len()) && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        numbers.is_empty() || numbers.len() > 2 || !numbers.iter().all(is_number)
    });
    Some(wrong.map_or(Ok(()), |word| Err(format!("{word:?} is no row; the form is S7, or S51-S54"))))
}

#[test]
fn rows_are_named_in_one_form() {
    let rows = |_: &Source, line: &str| {
        let comment = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim_start();
        names_rows(comment)?.err()
    };
    no_line_is(rows);
    assert_eq!(names_rows("S51: a cluster"), Some(Ok(())));
    assert_eq!(names_rows("S18, S25"), Some(Ok(())));
    assert_eq!(names_rows("S51-S54"), Some(Ok(())));
    assert_eq!(names_rows("Some text with S3"), None);
    for wrong in ["S01", "S5a", "S7, S5x", "S1234", "S5-7"] {
        assert!(names_rows(wrong).is_some_and(|named| named.is_err()), "{wrong}");
    }
}

/// Tests of real processes wait on conditions, by the harness.
#[test]
fn tests_do_not_pause_for_a_fixed_time() {
    let pause = format!("{}(", "sleep");
    no_line_is(|source, line| {
        let of_tests = source.path.starts_with("tests/") && !PAUSES.contains(&source.path.as_str());
        (of_tests && line.contains(&pause)).then(|| "pauses; wait on a condition".to_owned())
    });
}
