//! The direction of calls within the engine. Its folders have an order, and a method of `Node` calls methods of its own folder and of
//! those below it, and none above. Only calls of `self` and of a `node` are looked at, not those of what a field of another folder offers.

use norn_tests::source::{Source, sources};
use std::collections::BTreeMap;

/// Root of the engine.
pub(crate) const ENGINE: &str = "node/engine/src/";
/// From what all folders use to what uses all of them. The files of no folder come last: step, dispatch, requests.
pub(crate) const ORDER: [&str; 14] = [
    "context",
    "membership",
    "payloads",
    "consensus",
    "write_read",
    "repair",
    "queries",
    "claims",
    "retention",
    "workflow",
    "controller",
    "recovery",
    "views",
    "node",
];
/// Calls upwards that are still to be undone: caller, callee, how often. The list may only shrink.
const WAIVERS: [(&str, &str, usize); 0] = [];

/// The folder of a file, as its place in [`ORDER`].
pub(crate) fn folder_of(path: &str) -> Option<usize> {
    let inner = path.strip_prefix(ENGINE).filter(|inner| !inner.split(['/', '.']).any(|part| part == "tests"))?;
    let first = inner.split_once('/').map_or("node", |(first, _)| first);
    Some(
        ORDER
            .iter()
            .position(|folder| *folder == first)
            .unwrap_or_else(|| panic!("{path} is in no folder of the order")),
    )
}

/// The methods of `Node` in a file, as text without comments.
pub(crate) fn methods(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().expect("there is a first part");
    let lines = text.lines().map(|line| line.split("//").next().expect("there is a first part"));
    let mut inside = false;
    let mut found = String::new();
    for line in lines {
        inside = line == "impl Node {" || inside && line != "}";
        if inside {
            found.extend([line, "\n"]);
        }
    }
    found
}

pub(crate) fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Names of the methods that are defined in such a text.
fn defined(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.lines().filter_map(|line| line.strip_prefix("    ").filter(|line| !line.starts_with(' ')));
    starts.filter_map(|line| Some(word(line.split_once("fn ")?.1)))
}

/// Names of the methods that such a text calls of `self` or of a `node`.
fn called(text: &str) -> impl Iterator<Item = &str> {
    let receivers = ["self", "node"].into_iter().flat_map(move |name| text.match_indices(name));
    receivers.filter_map(move |(at, name)| {
        let is_bounded = text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '.');
        let behind = text[at + name.len()..].trim_start().strip_prefix('.')?;
        let method = word(behind);
        (is_bounded && behind[method.len()..].starts_with('(')).then_some(method)
    })
}

/// Calls between folders, by caller and callee.
fn calls_between(sources: &[Source]) -> BTreeMap<(usize, usize), usize> {
    let files: Vec<(usize, String)> =
        sources.iter().filter_map(|source| Some((folder_of(&source.path)?, methods(&source.text)))).collect();
    let mut owners = BTreeMap::new();
    files.iter().for_each(|(folder, text)| owners.extend(defined(text).map(|name| (name.to_owned(), *folder))));
    let mut found = BTreeMap::new();
    for (folder, text) in &files {
        for callee in called(text).filter_map(|name| owners.get(name)).filter(|callee| *callee != folder) {
            *found.entry((*folder, *callee)).or_default() += 1;
        }
    }
    found
}

/// Calls of folders above, by caller and callee.
fn upwards(sources: &[Source]) -> BTreeMap<(usize, usize), usize> {
    calls_between(sources).into_iter().filter(|((from, to), _)| to > from).collect()
}

#[test]
fn folders_of_the_engine_call_down_but_for_what_is_waived() {
    let sources = sources();
    assert!(calls_between(&sources).len() > ORDER.len(), "the methods were not found");
    let found = upwards(&sources);
    let name = |place: usize| ORDER[place];
    let found: BTreeMap<(&str, &str), usize> =
        found.into_iter().map(|((from, to), count)| ((name(from), name(to)), count)).collect();
    let waived: BTreeMap<(&str, &str), usize> =
        WAIVERS.into_iter().map(|(from, to, count)| ((from, to), count)).collect();
    let complaint = |(from, to): &(&str, &str)| {
        let (now, allowed) =
            (found.get(&(*from, *to)).copied().unwrap_or(0), waived.get(&(*from, *to)).copied().unwrap_or(0));
        let advice = if now > allowed { "call down, or report it" } else { "lower the number in the list" };
        (now != allowed).then(|| format!("{from} calls {to} {now} times, {allowed} are waived: {advice}"))
    };
    let all = found.keys().chain(waived.keys()).collect::<std::collections::BTreeSet<_>>();
    let complaints: Vec<String> = all.into_iter().filter_map(complaint).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn a_call_upwards_is_noticed() {
    let source = |path: &str, text: &str| Source { path: format!("{ENGINE}{path}"), text: text.into() };
    let claims = source("claims/calls.rs", "impl Node {\n    pub(crate) fn arm_expiry(&mut self) {\n    }\n}\n");
    let calls = |path: &str, body: &str| {
        let text = format!("impl Node {{\n    fn apply(&mut self) {{\n        {body}\n    }}\n}}\n");
        upwards(&[Source { path: claims.path.clone(), text: claims.text.clone() }, source(path, &text)])
    };
    let place = |name: &str| ORDER.iter().position(|folder| *folder == name).expect("it is a folder");
    let noticed = BTreeMap::from([((place("consensus"), place("claims")), 1)]);
    for body in
        ["self.arm_expiry();", "self\n            .arm_expiry();", "let see = |node: &mut Node| node.arm_expiry();"]
    {
        assert_eq!(calls("consensus/election.rs", body), noticed, "{body}");
    }
    for body in ["self.claims.arm_expiry();", "// self.arm_expiry();", "itself.arm_expiry();", "self.arm_expiry_of();"]
    {
        assert_eq!(calls("consensus/election.rs", body), BTreeMap::new(), "{body}");
    }
    assert_eq!(calls("workflow/uniques.rs", "self.arm_expiry();"), BTreeMap::new(), "down");
    assert_eq!(calls("lib.rs", "self.arm_expiry();"), BTreeMap::new(), "from above all");
}
