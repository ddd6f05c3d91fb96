//! Rows of the promises that no single test proves: those of several pieces, and those that benchmarks prove.

use norn_model::config::table::{Form, settings};
use norn_tests::binary;
use norn_tests::promises::Promises;
use norn_tests::source::{Source, sources};
use std::fs;

/// The list.
const LIST: &str = include_str!("../../promises.txt");
/// What S49 lists, with the test that proves each piece.
const BEATEN: [(&str, &str, &str); 8] = [
    ("data lost at restarts", "node/engine/src/tests.rs", "everything_survives_a_restart_of_all_nodes"),
    ("claims that scan", "node/engine/src/tests/heads.rs", "a_claim_chooses_among_nothing_but_what_can_be_claimed"),
    ("trees with a leaf per task", "node/model/src/replica/tree.rs", "the_root_is_that_of_one_tree_over_all_buckets"),
    ("fixed timeouts", "tests/tests/pure/rows.rs", "each_timeout_of_a_node_is_a_setting"),
    ("lists in memory", "node/engine/src/tests.rs", "a_list_pages_through_everything_once"),
    ("lists in memory", "tests/tests/nodes/doors_rest.rs", "a_watched_group_ends_with_its_join"),
    ("idle detectors", "sim/src/properties/fenced.rs", "Fenced"),
    ("idle detectors", "node/model/src/clocks/tests.rs", "a_jump_to_a_wrong_time_fences_at_once_and_stays"),
];
/// Timeouts of Skuld's code, as settings here.
const TIMEOUTS: [&str; 5] =
    ["request_timeout_ms", "election_timeout_ms", "resend_ms", "clock_epsilon_ms", "forget_after_ms"];

/// Whether a file has a test of this name that runs, or a property.
fn runs(sources: &[Source], path: &str, name: &str) -> bool {
    let Some(source) = sources.iter().find(|source| source.path == path) else { return false };
    if source.text.contains(&format!("impl Property for {name} ")) {
        return true;
    }
    let Some((above, _)) = source.text.split_once(&format!("fn {name}(")) else { return false };
    let lines = above.trim_end_matches("async ").lines().map(str::trim).rev();
    let attributes = lines.take_while(|line| line.is_empty() || line.starts_with("#["));
    let attributes: String = attributes.collect();
    (attributes.contains("#[test]") || attributes.contains("#[tokio::test")) && !attributes.contains("#[ignore")
}

// S49: a row of several pieces
/// Goal: each drawback that the row lists is beaten by a test that runs.
#[test]
fn each_drawback_that_is_beaten_has_a_test() {
    let sources = sources();
    let row = LIST.lines().find_map(|line| line.strip_prefix("S49  Beaten: ")).expect("it is listed");
    let listed: Vec<&str> = row.trim_end_matches('.').split(", ").collect();
    for piece in &listed {
        assert!(BEATEN.iter().any(|(beaten, ..)| beaten == piece), "{piece}: no test is named");
    }
    for (piece, path, name) in BEATEN {
        assert!(listed.contains(&piece), "the row does not list {piece}");
        assert!(runs(&sources, path, name), "{piece}: {path} has no test {name} that runs");
    }
}

#[test]
fn a_test_that_is_gone_or_left_out_is_noticed() {
    let text = "// S1\n#[test]\nfn one() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn two() {}\n\nfn three() {}\n\n\
                    #[tokio::test]\n    async fn six() {}\n\nimpl Property for Four {\n}\n";
    let sources = [Source { path: "a.rs".to_owned(), text: text.to_owned() }];
    let found = ["one", "two", "three", "Four", "five", "six"].map(|name| runs(&sources, "a.rs", name));
    assert_eq!(found, [true, false, false, true, false, true]);
    assert!(!runs(&sources, "b.rs", "one"));
}

/// Goal: no timeout is fixed in the code of a node. Method: those that Skuld had fixed are settings with bounds around their default.
#[test]
fn each_timeout_of_a_node_is_a_setting() {
    for name in TIMEOUTS {
        let setting = settings().find(|setting| setting.name == name).unwrap_or_else(|| panic!("{name} is no setting"));
        let Form::Number(number) = setting.form else { panic!("{name} is no number") };
        assert!(number.unit == "ms" && number.low < number.default && number.default < number.high, "{name}");
    }
}

/// Goal: a benchmark that a row rests on can fail, and is run. Method: it ends with an error, and the soak has a stage that calls it.
#[test]
fn each_benchmark_that_proves_a_row_runs_in_the_soak_and_can_fail() {
    let promises = Promises::read(LIST, &sources()).expect("the list is whole");
    let benchmarks = promises.benchmarks();
    let soak = fs::read_to_string(binary::workspace().join(".ci/soak")).expect("there is a soak");
    assert!(!benchmarks.is_empty(), "rows about growth rest on benchmarks");
    for benchmark in benchmarks {
        let file = benchmark.trim_end_matches("::run");
        let text = fs::read_to_string(binary::workspace().join(file)).expect("it is there");
        assert!(text.contains("bail!(") && text.contains("_MIN: f64"), "{file}: it never fails");
        let name = file.trim_start_matches("bench/src/").trim_end_matches(".rs");
        assert!(soak.contains(&format!("/norn-bench\" {name}\n")), "{name}: the soak does not run it");
        let stage = soak.lines().find_map(|line| line.strip_prefix("turns=(")).expect("stages take turns");
        assert!(stage.split([' ', ')']).any(|turn| turn == name), "{name}: its stage has no turn");
    }
}
