//! What `node/docs/trust.md` states about tests is so in the source.

use norn_tests::binary;
use norn_tests::suite::PLAYS;
use std::fs;

/// The page.
const PAGE: &str = include_str!("../../../node/docs/trust.md");

/// Text of a file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(binary::workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Second column of the row of the page that begins so.
fn extent(means: &str) -> &'static str {
    let row = PAGE.lines().find_map(|line| line.strip_prefix(&format!("| {means}")));
    row.and_then(|row| row.split(" | ").nth(1)).unwrap_or_else(|| panic!("no row about {means}"))
}

/// Numbers of a text, in order: `50,000` is one.
fn numbers(text: &str) -> Vec<usize> {
    let words = text.split(|character: char| !character.is_ascii_digit() && character != ',');
    words.filter_map(|word| word.replace(',', "").parse().ok()).collect()
}

/// Asserts a floor that the page states: it is reached, and the page says more once there are twice as many.
fn at_least(means: &str, found: usize) {
    let stated = extent(means);
    let number = numbers(stated)[0];
    assert!(stated.starts_with("at least "), "{means}: {stated}");
    assert!(number <= found && found < 2 * number, "{means}: {stated}, and there are {found}");
}

/// Variants of the enum of planted bugs.
fn planted_bugs() -> usize {
    let config = text("node/model/src/config.rs");
    let (_, behind) = config.split_once("pub enum Mutant {\n").expect("bugs can be planted");
    let (body, _) = behind.split_once("\n}").expect("the list ends");
    body.lines().filter(|line| line.ends_with(',') && !line.trim_start().starts_with("//")).count()
}

// S55: what was done for it, and what was not, is stated and true
#[test]
fn what_the_page_on_trust_states_is_so() {
    assert_eq!(numbers(extent("promises of five")), [text("tests/promises.txt").matches("\n").count() - 5]);
    let (all, caught) = (planted_bugs(), norn_sim::mutants::ALL.len());
    assert_eq!(numbers(extent("planted bugs")), [all, caught, all - caught]);
    let changes = fs::read_dir(binary::workspace().join("tests/plants")).expect("it can be listed").flatten();
    at_least("planted changes", changes.filter(|entry| entry.path().extension().is_some_and(|e| e == "patch")).count());
    at_least("properties", text("sim/src/properties/mod.rs").matches("::default(),\n").count());
    at_least("scenes", PLAYS.len());
    let shapes = text("tests/tests/nodes/network.rs");
    at_least("shapes", shapes.matches("#[tokio::test").count());
    let fuzz = text("tests/fuzz/Cargo.toml");
    let targets: Vec<&str> = fuzz.split("[[bin]]\nname = \"").skip(1).filter_map(|bin| bin.split('"').next()).collect();
    let named: Vec<String> = targets.iter().map(|name| format!("`{name}`")).collect();
    assert_eq!(extent("fuzz targets"), format!("{}: {}", targets.len(), named.join(", ")));
    for target in targets {
        assert!(text(".ci/soak").lines().any(|line| line.contains("for name in") && line.contains(target)), "{target}");
    }
    let [points, states] = numbers(extent("crash points"))[..] else { panic!("points and states") };
    let asserted = format!("points >= {points} && *tried >= {}_{:03} &&", states / 1_000, states % 1_000);
    assert!(text("node/storage/src/log/tests/points.rs").contains(&asserted), "{asserted}");
}

/// Goal: what the page says in prose about gate, soak and builds is what these do.
#[test]
fn what_the_page_on_trust_says_of_gate_and_soak_is_so() {
    let (scenes, soak) = (text("tests/tests/pure/scenes.rs"), text(".ci/soak"));
    let page = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = |words: &str| page.contains(words);
    assert!(page("each scene with 2 seeds") && scenes.contains("play_alone(Conditions::Rough, 2);"));
    assert!(page("each scene with 50 seeds") && soak.contains("NORN_SEEDS=50"));
    assert!(page("3,000,000 states") && soak.contains("model --states 3000000"));
    assert!(page("every planted change") && soak.contains("tests/plants/prove"));
    assert!(page("a minute at a time") && soak.contains("-max_total_time=60"));
    let manifest = text("Cargo.toml");
    assert!(page("overflow checks") && manifest.contains("overflow-checks = true"));
    assert!(page("`unsafe` is forbidden") && manifest.contains("unsafe_code = \"forbid\""));
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("it has members");
    for member in members.trim_end_matches(']').split(", ").map(|member| member.trim_matches('"')) {
        let lints = text(&format!("{member}/Cargo.toml"));
        assert!(lints.contains("[lints]\nworkspace = true"), "{member} has lints of its own");
    }
}

#[test]
fn numbers_of_a_text_are_read_with_their_commas() {
    assert_eq!(numbers("at least 50 points with 50,000 states, 4: `a`"), [50, 50_000, 4]);
}
