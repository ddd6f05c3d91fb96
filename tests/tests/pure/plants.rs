//! The changes of `tests/plants`, which `tests/plants/prove` makes: each still fits the code, and names a test that there is.

use norn_tests::binary;
use norn_tests::source::sources;
use std::fs;

/// Lines of a patch that stand in the code before it, one block for each place.
fn blocks(patch: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    for line in patch.lines().skip_while(|line| !line.starts_with("--- a/")).skip(2) {
        if line.starts_with("@@") {
            blocks.push(String::new());
        } else if let (Some(block), Some(kept)) =
            (blocks.last_mut(), line.strip_prefix(' ').or_else(|| line.strip_prefix('-')))
        {
            block.push_str(kept);
            block.push('\n');
        }
    }
    blocks
}

#[test]
fn each_planted_change_fits_the_code_and_names_a_test() {
    let root = binary::workspace();
    let sources = sources();
    let mut plants = 0;
    for entry in fs::read_dir(root.join("tests/plants")).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let patch = fs::read_to_string(&path).unwrap();
        let place = |line: &str| line.strip_prefix("--- a/").map(str::to_owned);
        let file = patch.lines().find_map(place).unwrap_or_else(|| panic!("{}: no file", path.display()));
        let text = fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let blocks = blocks(&patch);
        assert!(!blocks.is_empty(), "{}: it changes nothing", path.display());
        for block in blocks {
            assert!(text.contains(&block), "{}: the code has changed; make the change anew", path.display());
        }
        let test = patch.lines().find_map(|line| line.strip_prefix("Noticed-by: ")).unwrap_or_default();
        let name = format!("fn {}()", test.rsplit("::").next().unwrap_or_default());
        assert!(sources.iter().any(|source| source.text.contains(&name)), "{}: no test {test:?}", path.display());
        plants += 1;
    }
    assert!(plants >= 30, "{plants} changes");
}
