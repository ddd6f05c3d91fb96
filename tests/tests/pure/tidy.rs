//! Rules of style that no compiler checks, over every Rust file of the workspace.

use norn_tests::promises::Promises;
use norn_tests::source::{Source, sources};

/// Longest line, in characters.
const COLUMNS_MAX: usize = 140;
/// Longest file. Its tests, at the end, do not count.
const LINES_MAX: usize = 700;
/// Words without a role or a number, which comments do without.
const DIALECT: [&str; 5] = ["whoever", "somebody", "nobody", "is told", "so many"];
/// The only files of the tests that may sleep.
const PAUSES: [&str; 1] = ["tests/src/wait.rs"];

/// Complains about every line of every file for which `wrong` returns a complaint.
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

/// A macro call, composed here so that this file does not contain the text that it searches for.
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

/// Whether a comment in a line has one of the words of a private dialect: a sentence says which role or thing acts.
fn has_dialect(line: &str) -> Option<&'static str> {
    let comment = line.split_once("//")?.1.to_lowercase();
    let is_word = |word: &&str| {
        let bounded = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        comment.match_indices(*word).any(|(at, _)| {
            bounded(comment[..at].chars().next_back()) && bounded(comment[at + word.len()..].chars().next())
        })
    };
    DIALECT.into_iter().find(is_word)
}

#[test]
fn comments_name_roles_and_things() {
    no_line_is(|_, line| has_dialect(line).map(|word| format!("say which role or thing it is instead of `{word}`")));
    assert_eq!(has_dialect(&format!("let a = 1; // {}body waits.", "No")), DIALECT.get(2).copied());
    assert_eq!(has_dialect("// Anybody waits."), None);
}

#[test]
fn no_line_is_too_long() {
    no_line_is(|_, line| {
        let columns = line.chars().count();
        (columns > COLUMNS_MAX).then(|| format!("{columns} columns, at most {COLUMNS_MAX}"))
    });
}

/// Number of lines before the tests at the end of a file.
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

/// Comments that name promises have the required form, stand above tests, and name rows of a well-formed list.
#[test]
fn promises_are_named_as_they_are_listed() {
    if let Err(complaints) = Promises::read(include_str!("../../promises.txt"), &sources()) {
        panic!("\n{}", complaints.join("\n"));
    }
}

/// Tests of real processes wait for conditions, with the functions of the harness.
#[test]
fn tests_do_not_pause_for_a_fixed_time() {
    let pause = format!("{}(", "sleep");
    no_line_is(|source, line| {
        let of_tests = source.path.starts_with("tests/") && !PAUSES.contains(&source.path.as_str());
        (of_tests && line.contains(&pause)).then(|| "pauses; wait on a condition".to_owned())
    });
}
