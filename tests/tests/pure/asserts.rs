//! Asserts in the engine and in the model, which stay in release builds: how many there are for each function. There may be more.
//!
//! What other nodes, clients, clocks or the disk get wrong is refused and not asserted, so the number says nothing of those checks.

use norn_tests::source::{Source, sources};

/// Crates, each with the fewest asserts for a hundred functions.
const LEAST: [(&str, usize); 2] = [("node/engine/src/", ENGINE), ("node/model/src/", MODEL)];
const ENGINE: usize = 17;
const MODEL: usize = 14;

/// Functions and asserts of a text: without tests, comments, and asserts of constants, which the compiler checks.
fn counted(text: &str) -> (usize, usize) {
    let code = text.split("#[cfg(test)]\nmod tests {").next().expect("there is a first part");
    let lines = code.lines().map(|line| line.split("//").next().expect("there is a first part"));
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("const _: ()")).collect();
    let begins = |line: &str, word: &str| {
        let at = line.find(word)?;
        let before = line[..at].trim();
        let is_item = before.split_whitespace().all(|it| matches!(it, "const" | "async") || it.starts_with("pub"));
        is_item.then_some(())
    };
    let functions = lines.iter().filter(|line| begins(line, "fn ").is_some()).count();
    let calls = ["assert!(", "assert_eq!(", "assert_ne!("];
    let asserts_in = |line: &str| {
        let found = calls.iter().flat_map(|call| line.match_indices(call));
        found.filter(|(at, _)| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_')).count()
    };
    (functions, lines.into_iter().map(asserts_in).sum())
}

/// Whether a file is a part of a crate below this folder, tests apart.
fn is_of(path: &str, root: &str) -> bool {
    let inner = path.strip_prefix(root).map(|inner| inner.trim_end_matches(".rs"));
    inner.is_some_and(|inner| inner.split('/').all(|part| part != "tests"))
}

/// What is wrong with a crate, if it has too few.
fn complaint(root: &str, least: usize, sources: &[Source]) -> Option<String> {
    let of_crate = sources.iter().filter(|source| is_of(&source.path, root)).map(|source| counted(&source.text));
    let (functions, asserts) = of_crate.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert!(functions > 0, "no function was found in {root}");
    let found = asserts * 100 / functions;
    (found < least)
        .then(|| format!("{root}: {asserts} asserts in {functions} functions, fewer than {least} in a hundred"))
}

#[test]
fn what_functions_rely_on_is_asserted() {
    let sources = sources();
    let complaints: Vec<String> = LEAST.iter().filter_map(|(root, least)| complaint(root, *least, &sources)).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Goal: the count sees what it should, and no more. Method: a planted text with one assert in four functions.
#[test]
fn too_few_asserts_are_found() {
    let text = "const _: () = assert!(A < B);\n\
                /// assert!(never counted).\n\
                pub(crate) fn one() {\n    debug_assert!(true);\n}\n\
                fn two() {\n    assert!(length > 0, \"there is nothing\"); // assert!(no)\n}\n\
                pub const fn three() {}\n\
                impl A {\n    pub fn four(&self) -> impl Fn() + '_ {}\n}\n\
                #[cfg(test)]\nmod tests {\n    fn five() {\n        assert!(true);\n    }\n}\n";
    assert_eq!(counted(text), (4, 1));
    let planted = |path: &str| [Source { path: path.to_owned(), text: text.to_owned() }];
    let root = "node/engine/src/";
    assert!(complaint(root, 25, &planted("node/engine/src/a.rs")).is_none());
    assert!(complaint(root, 26, &planted("node/engine/src/a/b.rs")).is_some());
    let apart = ["node/engine/src/tests.rs", "node/engine/src/tests/a.rs", "node/model/src/a.rs"];
    assert!(apart.iter().all(|path| !is_of(path, root)));
}
