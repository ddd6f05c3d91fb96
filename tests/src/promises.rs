//! The list of promises, and the tests that prove each.
//!
//! `tests/promises.txt` lists every promise of the five systems that Norn comes from, one row each. A test names the rows that it
//! proves in a plain comment above itself: `// S18, S25`, or `// S18, S25: why`. So does a property of the simulator, above its
//! `impl Property for`, and a scene of the suite, a function of a `Scene<H>` on any host. A test names a row only if it fails when the
//! promise is broken. A row about growth is named above the `pub async fn run` of a benchmark, which has to fail beyond a stated ratio
//! and to run in the soak: a measured time is asserted in no test. Where Norn decides differently from the system of a row, the row says
//! what Norn does, and often what that system did.

use crate::source::Source;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Letters of the five systems.
const SYSTEMS: &str = "TOSEC";
/// Longest line of the list, in characters.
const COLUMNS_MAX: usize = 140;
/// Required form of a comment.
const FORM: &str = "the form is `S18, S25`, or `S18, S25: why`";

/// Where benchmarks are: only there may a row stand above a `run`.
const BENCHMARKS: &str = "bench/src/";

/// One promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// A system's letter and a number.
    pub id: String,
    /// What is promised.
    pub statement: String,
}

/// A test, a scene, a property of the simulator, or a benchmark, and the rows that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Line of the comment, from 1.
    pub line: usize,
    /// Ids of the rows.
    pub rows: Vec<String>,
    /// Name of the test, scene, property or benchmark.
    pub name: String,
}

/// All promises in the order of the list, each with the tests that prove it.
#[derive(Debug)]
pub struct Promises(Vec<(Row, Vec<String>)>);

impl Promises {
    /// Reads the list and every comment in the sources, or returns what is wrong with them.
    pub fn read(list: &str, sources: &[Source]) -> Result<Self, Vec<String>> {
        let (rows, mut complaints) = rows(list);
        let mut tests: BTreeMap<&str, Vec<String>> = rows.iter().map(|row| (row.id.as_str(), Vec::new())).collect();
        for Source { path, text } in sources {
            let (proofs, wrong) = proofs(text, path.starts_with(BENCHMARKS));
            complaints.extend(wrong.into_iter().map(|(line, complaint)| format!("{path}:{line}: {complaint}")));
            for Proof { line, rows, name } in proofs {
                for row in rows {
                    match tests.get_mut(row.as_str()) {
                        Some(tests) => tests.push(format!("{path}::{name}")),
                        None => complaints.push(format!("{path}:{line}: there is no row {row}")),
                    }
                }
            }
        }
        if !complaints.is_empty() {
            return Err(complaints);
        }
        let with_tests = |row: &Row| (row.clone(), tests.remove(row.id.as_str()).unwrap_or_default());
        Ok(Self(rows.iter().map(with_tests).collect()))
    }

    /// Benchmarks that rows rest on, as `path::name`.
    pub fn benchmarks(&self) -> Vec<&str> {
        let tests = self.0.iter().flat_map(|(_, tests)| tests);
        tests.map(String::as_str).filter(|test| test.starts_with(BENCHMARKS) && test.ends_with("::run")).collect()
    }

    /// The tests that name a row, as `path::name`.
    pub fn tests_of(&self, id: &str) -> &[String] {
        self.0.iter().find(|(row, _)| row.id == id).map_or(&[], |(_, tests)| tests)
    }

    /// Every row with its tests, then the rows without tests. Only the latter if `missing`.
    pub fn to_text(&self, missing: bool) -> String {
        let mut text = String::new();
        let (proved, open): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, tests)| !tests.is_empty());
        if !missing {
            for (row, tests) in &proved {
                writeln!(text, "{:<4} {}", row.id, row.statement).expect("text takes anything");
                for test in tests {
                    writeln!(text, "       {test}").expect("text takes anything");
                }
            }
            writeln!(text, "\n{} of {} rows have a test. Without:", proved.len(), self.0.len())
                .expect("text takes anything");
        }
        for (row, _) in &open {
            writeln!(text, "{:<4} {}", row.id, row.statement).expect("text takes anything");
        }
        text
    }
}

/// Ids of the rows of a list that no planted change breaks. The changes are files `ROW.patch` and `ROW-WHAT.patch`.
pub fn unplanted(list: &str, files: &[String]) -> Vec<String> {
    let planted = |id: &str| {
        let rest = |file: &String| file.strip_prefix(id).is_some_and(|rest| rest == ".patch" || rest.starts_with('-'));
        files.iter().any(rest)
    };
    rows(list).0.into_iter().map(|row| row.id).filter(|id| !planted(id)).collect()
}

/// The rows of the list, and what is wrong with it. `# S: name` opens a section with the rows `S1`, `S2` and so on. Two spaces stand
/// between the id and the statement of a row.
fn rows(list: &str) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut complaints, mut seen) = (Vec::new(), Vec::new(), String::new());
    let mut next = 1;
    for (index, line) in list.lines().enumerate() {
        let mut complain = |what: String| complaints.push(format!("the list, line {}: {what}", index + 1));
        if line.chars().count() > COLUMNS_MAX {
            complain(format!("longer than {COLUMNS_MAX} columns"));
        }
        if let Some(heading) = line.strip_prefix("# ") {
            match heading.split_once(": ").map(|(letter, _)| letter) {
                Some(letter) if letter.len() == 1 && SYSTEMS.contains(letter) && !seen.contains(letter) => {
                    seen.push_str(letter);
                    next = 1;
                }
                _ => complain("a heading is `# S: name`, once for each system".to_owned()),
            }
            continue;
        }
        let expected = format!("{}{next}", seen.chars().last().unwrap_or('?'));
        match line.split_once("  ") {
            Some((id, statement)) if id == expected && !statement.is_empty() && statement.trim() == statement => {
                rows.push(Row { id: id.to_owned(), statement: statement.to_owned() });
            }
            _ => complain(format!("{expected} is next, then two spaces and a statement")),
        }
        next += 1;
    }
    (rows, complaints)
}

/// The rows that the tests, scenes and properties of a file name, and what is wrong with its comments, by line.
fn proofs(text: &str, is_benchmark: bool) -> (Vec<Proof>, Vec<(usize, String)>) {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let (mut proofs, mut complaints) = (Vec::new(), Vec::new());
    for (index, line) in lines.iter().enumerate() {
        let Some(comment) = line.strip_prefix("//") else { continue };
        let words = comment.trim_start_matches(['/', '!']).trim_start();
        if !begins_with_row(words) {
            continue;
        }
        let is_plain = comment.starts_with(' ');
        match (named(words).filter(|_| is_plain), item_below(&lines[index + 1..], is_benchmark)) {
            (None, _) => complaints.push((index + 1, format!("{FORM}, in a plain comment"))),
            (_, None) => {
                complaints.push((index + 1, "rows are named above a test, a scene or a property alone".to_owned()))
            }
            (Some(rows), Some(name)) => proofs.push(Proof { line: index + 1, rows, name: name.to_owned() }),
        }
    }
    (proofs, complaints)
}

fn begins_with_row(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|letter| SYSTEMS.contains(letter))
        && characters.next().is_some_and(|digit| digit.is_ascii_digit())
}

/// The rows that a comment names, if it has the right form.
fn named(comment: &str) -> Option<Vec<String>> {
    let rows = comment.split_once(": ").map_or(comment, |(rows, _)| rows);
    let is_id = |word: &str| begins_with_row(word) && !word[1..].starts_with('0') && word[1..].parse::<u16>().is_ok();
    rows.split(", ").map(|word| is_id(word).then(|| word.to_owned())).collect()
}

/// What marks a scene: the text that follows its name. A scene outside the table of scenes is dead code.
const SCENE: &str = "<H: Host>(scene: Scene<H>)";

/// Name of the test, property, scene or benchmark at the start of these lines, after comments and attributes.
fn item_below<'a>(lines: &[&'a str], is_benchmark: bool) -> Option<&'a str> {
    let mut is_test = false;
    for line in lines {
        if let Some(property) = line.strip_prefix("impl Property for ") {
            return property.split([' ', '{', '<']).next();
        } else if line.starts_with("#[") {
            is_test |= *line == "#[test]" || line.starts_with("#[tokio::test");
        } else if let Some(scene) = line.strip_prefix("pub(super) async fn ") {
            return scene.split_once(SCENE).map(|(name, _)| name);
        } else if is_benchmark && line.starts_with("pub async fn run(") {
            return Some("run");
        } else if !line.starts_with("//") {
            let function = line.trim_start_matches("async ").strip_prefix("fn ")?;
            return function.split(['(', '<']).next().filter(|_| is_test);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# T: one\nT1  First.\n# S: another\nS1  Second.\nS2  Third.\n";

    fn source(text: &str) -> Source {
        Source { path: "a.rs".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_list_has_rows_in_order_below_headings() {
        let (read, complaints) = rows(LIST);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(read.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["T1", "S1", "S2"]);
        assert_eq!(read[1].statement, "Second.");
        let too_long = format!("# T: one\nT1  {}\n", "x".repeat(COLUMNS_MAX));
        for wrong in [
            "T1  No heading.\n",
            "# T: one\nT2  Not the first.\n",
            "# T: one\nT1  Twice.\nT1  Twice.\n",
            "# T: one\nT1 One space.\n",
            "# T: one\nT1  \n",
            "# T: one\nT1  Then nothing.\n\n",
            "# T: one\n# T: one\n",
            "# X: one\n",
            "# one\n",
            &too_long,
        ] {
            assert!(!rows(wrong).1.is_empty(), "{wrong:?}");
        }
    }

    #[test]
    fn tests_and_properties_name_rows() {
        let text = "// S1, T1\n#[test]\nfn a_test() {}\n\n    // S2: because\n    // of this\n    /// What it does.\n    \
                    #[tokio::test(flavor = \"current_thread\")]\n    async fn another<T>() {}\n// S1\n\
                    impl Property for Leaders {\n// S2\n\
                    pub(super) async fn a_scene<H: Host>(scene: Scene<H>) {\n";
        let (found, complaints) = proofs(text, false);
        assert_eq!(complaints, []);
        let found: Vec<(usize, String, &str)> =
            found.iter().map(|proof| (proof.line, proof.rows.join("+"), proof.name.as_str())).collect();
        let expected = [(1, "S1+T1", "a_test"), (5, "S2", "another"), (10, "S1", "Leaders"), (12, "S2", "a_scene")];
        assert_eq!(found, expected.map(|(line, rows, name)| (line, rows.to_owned(), name)));
    }

    #[test]
    fn comments_of_another_form_or_elsewhere_are_refused() {
        for wrong in ["S01", "S5a", "S7,S8", "S7 S8", "S7, why", "S1-S2", "S12345678"] {
            let (found, complaints) = proofs(&format!("// {wrong}\n#[test]\nfn a_test() {{}}\n"), false);
            assert!(found.is_empty() && complaints.len() == 1, "{wrong}");
        }
        let of_a_scene = "// S1\npub(super) async fn open<H: Host>(scene: &Scene<H>) {}\n";
        let below = [
            "//S1\n#[test]\nfn a() {}\n",
            "/// S1: a\n#[test]\nfn a() {}\n",
            "// S1\nfn a() {}\n",
            "// S1\n",
            of_a_scene,
        ];
        for wrong in below {
            assert_eq!(proofs(wrong, false).1.len(), 1, "{wrong:?}");
        }
        for other in ["// Some text\n", "// C-2: a rule\n", "let text = \"// S1\";\n", "// See S1.\n"] {
            assert_eq!(proofs(other, false), (Vec::new(), Vec::new()), "{other:?}");
        }
    }

    #[test]
    fn rows_are_printed_with_their_tests_and_then_those_without() {
        let promises = Promises::read(LIST, &[source("// S1\n#[test]\nfn a() {}\n")]).expect("all is well");
        assert_eq!(promises.to_text(true), "T1   First.\nS2   Third.\n");
        let all = "S1   Second.\n       a.rs::a\n\n1 of 3 rows have a test. Without:\nT1   First.\nS2   Third.\n";
        assert_eq!(promises.to_text(false), all);
    }

    #[test]
    fn a_benchmark_names_rows_above_its_run_and_in_its_folder_alone() {
        let text = "// S1: grows\n/// Measures.\npub async fn run(options: &Options) -> Result<()> {\n".to_owned();
        let at = |path: &str| Source { path: path.to_owned(), text: text.clone() };
        let promises = Promises::read(LIST, &[at("bench/src/scaling.rs")]).expect("all is well");
        assert_eq!(promises.benchmarks(), ["bench/src/scaling.rs::run"]);
        assert_eq!(promises.tests_of("S1"), ["bench/src/scaling.rs::run"]);
        assert!(promises.tests_of("S2").is_empty());
        assert!(Promises::read(LIST, &[at("tests/src/scaling.rs")]).is_err(), "no benchmark stands there");
    }

    #[test]
    fn a_change_breaks_the_row_that_its_name_begins_with() {
        let files = ["S1-limit.patch", "S22.patch", "prove"].map(str::to_owned);
        assert_eq!(unplanted(LIST, &files), ["T1", "S2"]);
        assert_eq!(unplanted(LIST, &["T1.patch".to_owned()]), ["S1", "S2"]);
    }

    #[test]
    fn a_row_that_is_not_in_the_list_is_refused() {
        let complaints = Promises::read(LIST, &[source("\n// S1, S3\n#[test]\nfn a() {}\n")]).expect_err("no such row");
        assert_eq!(complaints, ["a.rs:2: there is no row S3"]);
    }
}
