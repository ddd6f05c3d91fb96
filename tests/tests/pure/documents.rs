//! Checks of the documents against the repository: their links resolve, and the files that they name exist.
//!
//! `node/src/cli/reference.rs` parses the commands that the documents show.

use norn_tests::binary;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Documents to be read at one sitting, and their maximal size in bytes.
const SIZES: [(&str, usize); 2] = [("README.md", 14 << 10), ("ARCHITECTURE.md", 25 << 10)];
/// A path in a document that starts with one of these folders must exist in the repository.
const FOLDERS: [&str; 5] = ["node/", "client/", "sim/", "tests/", "bench/"];
/// File endings that documents may use with a partial path.
const ENDINGS: [&str; 4] = [".rs", ".sh", ".md", ".toml"];
/// Beginnings of paths outside the repository: on a machine, in a home directory, or in a cluster of `norn dev`.
const ELSEWHERE: [&str; 3] = ["/", "~", ".norn/"];
/// Directories that the walk skips.
const LEFT_OUT: [&str; 3] = ["target", ".git", ".norn"];
/// Fewer documents than this mean that the directory walk is broken.
const DOCUMENTS_MIN: usize = 15;

/// All files and folders of the repository, relative to its root.
fn paths() -> BTreeSet<String> {
    fn walk(root: &Path, directory: &Path, all: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).expect("it can be listed").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                let below = path.strip_prefix(root).expect("it is below the root").to_string_lossy().into_owned();
                all.insert(below);
                if path.is_dir() {
                    walk(root, &path, all);
                }
            }
        }
    }
    let mut all = BTreeSet::new();
    walk(binary::workspace(), binary::workspace(), &mut all);
    all
}

/// A Markdown file of the repository.
struct Document {
    path: String,
    text: String,
}

impl Document {
    fn read_all(paths: &BTreeSet<String>) -> Vec<Document> {
        let documents = paths.iter().filter(|path| path.ends_with(".md"));
        let read = |path: &String| {
            let text = fs::read_to_string(binary::workspace().join(path)).expect("a document is UTF-8");
            Document { path: path.clone(), text }
        };
        let documents: Vec<Document> = documents.map(read).collect();
        assert!(documents.len() >= DOCUMENTS_MIN, "only {} documents were found", documents.len());
        documents
    }

    /// Lines outside code blocks, with their numbers. A line that ends inside backticks is joined with the next.
    fn prose(&self) -> Vec<(usize, String)> {
        let (mut is_code, mut lines) = (false, Vec::<(usize, String)>::new());
        for (index, line) in self.text.lines().enumerate() {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            match lines.last_mut() {
                _ if is_code || is_fence => {}
                Some((_, last)) if !line.is_empty() && last.matches('`').count() % 2 == 1 => {
                    *last += &format!(" {line}")
                }
                _ => lines.push((index + 1, line.to_owned())),
            }
        }
        lines
    }

    /// Anchors of all headings, as links use them.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::new();
        let prose = self.prose();
        let headings = prose.iter().filter(|(_, line)| line.starts_with('#'));
        headings.map(|(_, heading)| numbered(&mut seen, anchor(heading.trim_start_matches('#')))).collect()
    }
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = |character: &char| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_');
    let shown = without_targets(heading.trim());
    shown
        .chars()
        .filter(kept)
        .flat_map(char::to_lowercase)
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

/// Appends a number to the anchor of a heading that repeats an earlier one.
fn numbered(seen: &mut BTreeMap<String, usize>, anchor: String) -> String {
    let count = seen.entry(anchor.clone()).or_default();
    *count += 1;
    if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
}

/// A line without the targets of its links.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + part.split_once(')').map_or(part, |(_, behind)| behind))
}

/// The texts between backticks in a line, and the line without them.
fn code(line: &str) -> (Vec<&str>, String) {
    let parts: Vec<&str> = line.split('`').collect();
    let code = parts.iter().skip(1).step_by(2).copied().collect();
    (code, parts.iter().step_by(2).copied().collect::<Vec<_>>().join("`"))
}

/// The targets of the links in a line.
fn targets(line: &str) -> Vec<String> {
    let (_, prose) = code(line);
    let targets =
        prose.split("](").skip(1).filter_map(|part| part.split_once(')').map(|(target, _)| target.to_owned()));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// Converts a path relative to a document into one relative to the root.
fn resolve(document: &str, target: &str) -> String {
    let joined = Path::new(document).parent().unwrap_or(Path::new("")).join(target);
    let mut path = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}

/// The paths that a text between backticks names, if it looks like a path of the repository: `a/{b,c}.rs` names two.
fn named(text: &str) -> Vec<String> {
    let is_path = text.contains('/') && !text.contains([' ', '*', '<', '$', ':']) && !text.contains("...");
    let is_ours =
        FOLDERS.iter().any(|folder| text.starts_with(folder)) || ENDINGS.iter().any(|ending| text.ends_with(ending));
    if !is_path || !is_ours || ELSEWHERE.iter().any(|beginning| text.starts_with(beginning)) {
        return Vec::new();
    }
    match text
        .split_once('{')
        .and_then(|(before, rest)| rest.split_once('}').map(|(among, behind)| (before, among, behind)))
    {
        Some((before, among, behind)) => among.split(',').map(|one| format!("{before}{one}{behind}")).collect(),
        None => vec![text.to_owned()],
    }
}

fn is_there(paths: &BTreeSet<String>, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    paths.contains(path)
        || paths.iter().any(|whole| whole.strip_suffix(path).is_some_and(|before| before.ends_with('/')))
}

#[test]
fn links_of_documents_lead_to_files_and_to_their_headings() {
    let paths = paths();
    let documents = Document::read_all(&paths);
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        documents.iter().map(|document| (document.path.as_str(), document.anchors())).collect();
    let mut complaints = Vec::new();
    for document in &documents {
        for (number, line) in document.prose() {
            for target in targets(&line) {
                let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
                let path = if file.is_empty() { document.path.clone() } else { resolve(&document.path, file) };
                let has_heading = || anchors.get(path.as_str()).is_some_and(|anchors| anchors.contains(heading));
                if !paths.contains(&path) || !heading.is_empty() && !has_heading() {
                    complaints.push(format!("{}:{number}: {target} leads nowhere", document.path));
                }
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_readme_has_a_link_to_each_document() {
    let paths = paths();
    let readme = Document { path: "README.md".into(), text: include_str!("../../../README.md").into() };
    let linked: BTreeSet<String> = readme.prose().iter().flat_map(|(_, line)| targets(line)).collect();
    let absent = Document::read_all(&paths).into_iter().map(|document| document.path);
    let absent: Vec<String> = absent.filter(|path| *path != readme.path && !linked.contains(path)).collect();
    assert_eq!(absent, Vec::<String>::new());
}

#[test]
fn files_that_documents_name_are_there() {
    let paths = paths();
    let mut complaints = Vec::new();
    for document in Document::read_all(&paths) {
        for (number, line) in document.prose() {
            let absent = code(&line).0.into_iter().flat_map(named).filter(|path| !is_there(&paths, path));
            complaints.extend(absent.map(|path| format!("{}:{number}: there is no {path}", document.path)));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Pairs of a file and a name that a line places in it: `a.rs`: `run`, `stop`.
fn members(line: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = line.split('`').collect();
    let mut members = Vec::new();
    for (place, file) in parts.iter().enumerate().skip(1).step_by(2).filter(|(_, file)| file.ends_with(".rs")) {
        let behind = parts[place + 1..].chunks(2).enumerate();
        let listed = behind.take_while(|(index, chunk)| chunk[0] == if *index == 0 { ": " } else { ", " });
        members.extend(listed.filter_map(|(_, chunk)| chunk.get(1).map(|name| (*file, *name))));
    }
    members
}

#[test]
fn names_that_documents_place_in_files_are_in_them() {
    let paths = paths();
    let (mut count, mut complaints) = (0, Vec::new());
    for document in Document::read_all(&paths) {
        for (number, line) in document.prose() {
            for (file, name) in members(&line).into_iter().filter(|(file, _)| paths.contains(*file)) {
                count += 1;
                let text = fs::read_to_string(binary::workspace().join(file)).expect("source is UTF-8");
                if !name.split("::").all(|word| text.contains(word)) {
                    complaints.push(format!("{}:{number}: there is no {name} in {file}", document.path));
                }
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(count >= 10, "only {count} names were found");
}

#[test]
fn types_that_the_glossary_names_are_in_its_files() {
    let rows = include_str!("../../../node/docs/glossary.md").lines().filter(|line| line.starts_with('|')).skip(2);
    let mut complaints = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.split('|').map(|column| column.trim().trim_matches('`')).collect();
        let [_, word, _, name, file, ..] = columns[..] else { panic!("five columns: {row}") };
        let text = fs::read_to_string(binary::workspace().join(file)).unwrap_or_default();
        let is_there =
            ["struct ", "enum ", "trait ", "type "].iter().any(|kind| text.contains(&format!("{kind}{name}")));
        if name != "—" && !is_there {
            complaints.push(format!("{word}: there is no {name} in {file}"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn documents_to_begin_with_are_short() {
    for (path, bytes_max) in SIZES {
        let bytes = fs::metadata(binary::workspace().join(path)).expect("the document is there").len();
        assert!(bytes <= bytes_max as u64, "{path}: {bytes} bytes, at most {bytes_max}");
    }
}

#[test]
fn links_anchors_and_paths_are_read_as_they_are_meant() {
    let text =
        "# Lost `records`, and [more](a.md)\n```\n# none\n```\n## Lost records and more\n## `a_b`: c-d\n".to_owned();
    let anchors = Document { path: "a.md".into(), text }.anchors();
    let expected = ["a_b-c-d", "lost-records-and-more", "lost-records-and-more-1"];
    assert_eq!(anchors.into_iter().collect::<Vec<_>>(), expected);
    let line = "[a](b.md#c) `[no](no.md)` [w](https://x.y/z) [d](../e.md), [f](#g)";
    assert_eq!(targets(line), ["b.md#c", "../e.md", "#g"]);
    assert_eq!(code(line).0, ["[no](no.md)"]);
    assert_eq!(resolve("node/docs/a.md", "../../client/docs/b.md"), "client/docs/b.md");
    assert_eq!(resolve("README.md", "./a.md"), "a.md");
    assert_eq!(named("consistent/{grants,seals}.rs"), ["consistent/grants.rs", "consistent/seals.rs"]);
    assert_eq!(named("node/src/protocol"), ["node/src/protocol"]);
    for other in
        ["mail/out", "/etc/norn.toml", ".norn/client.toml", "node/src/**/tests", "cargo run tests/a.rs", "a.rs"]
    {
        assert_eq!(named(other), Vec::<String>::new());
    }
    let line = "in `a/b.rs`: `run`, `stop`; `c`, then `d.rs` and `e.rs`: `go`";
    assert_eq!(members(line), [("a/b.rs", "run"), ("a/b.rs", "stop"), ("e.rs", "go")]);
    let paths = BTreeSet::from(["node/src/consistent".to_owned(), "node/src/consistent/grants.rs".to_owned()]);
    let found = |path: &str| is_there(&paths, path);
    assert!(found("consistent/grants.rs") && found("node/src/consistent/") && !found("sistent/grants.rs"));
}
