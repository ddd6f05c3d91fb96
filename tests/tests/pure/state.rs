//! Who may touch the state of a node. What only one folder of the engine uses is in a struct of that folder, whose fields the others
//! do not see: the compiler refuses them. Here it is checked that the struct hides its fields, that nothing else is added to [`Node`]
//! beside what all folders share, and that a folder uses what the structs of folders below it offer. What still reaches upwards is
//! counted, and the counts may only shrink.
//!
//! [`Node`]: norn_engine::Node

use crate::calls::{ENGINE, ORDER, folder_of, methods, word};
use norn_tests::source::{Source, sources};
use std::collections::BTreeMap;

/// Fields of the node that all folders share.
const SHARED: [&str; 21] = [
    "founding",
    "config",
    "me",
    "boot",
    "now",
    "random",
    "outbox",
    "timers",
    "signals",
    "genesis",
    "roster",
    "partitions",
    "id_allocator",
    "pending_requests",
    "dirty_heads",
    "led",
    "starting",
    "stopping",
    "stop_deadline_us",
    "halted",
    "retired",
];
/// Uses of the struct of a folder above that are still to be undone: user, owner, how often.
const WAIVERS: [(&str, &str, usize); 6] = [
    ("membership", "payloads", 2),
    ("membership", "repair", 1),
    ("payloads", "repair", 1),
    ("payloads", "claims", 1),
    ("write_read", "repair", 2),
    ("write_read", "queries", 1),
];

/// The name of the struct of a folder: `WriteRead` of `write_read`.
fn type_of(folder: &str) -> String {
    let capital = |part: &str| part[..1].to_uppercase() + &part[1..];
    folder.split('_').map(capital).collect()
}

/// The lines of the fields of a struct, without attributes and comments.
fn fields<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let (_, behind) = text.split_once(&format!("pub struct {name} {{\n"))?;
    let (body, _) = behind.split_once("\n}")?;
    Some(body.lines().map(str::trim).filter(|line| !line.starts_with(['/', '#']) && line.contains(": ")).collect())
}

/// Fields that other folders can see, or that belong to no folder.
fn complaints(sources: &[Source]) -> Vec<String> {
    let text = |path: &str| sources.iter().find(|source| source.path == path).map(|source| source.text.as_str());
    let node = text(&format!("{ENGINE}lib.rs")).and_then(|text| fields(text, "Node")).expect("there is a node");
    let mut found = Vec::new();
    for field in node {
        let (name, of) = field.trim_end_matches(',').split_once(": ").expect("it has a type");
        if SHARED.contains(&name) {
            continue;
        }
        if !ORDER.contains(&name) || of != type_of(name) {
            found.push(format!("Node::{name} is state of a folder: put it into the folder's struct"));
            continue;
        }
        let own = text(&format!("{ENGINE}{name}/mod.rs")).and_then(|text| fields(text, of));
        let own = own.unwrap_or_else(|| panic!("{name}/mod.rs has no struct {of}"));
        let seen = own.into_iter().filter(|field| field.starts_with("pub"));
        found.extend(seen.map(|field| format!("{of}: `{field}` is seen outside of its folder")));
    }
    found
}

/// Uses of the struct of a folder above, by user and owner.
fn upwards(sources: &[Source]) -> BTreeMap<(&'static str, &'static str), usize> {
    let mut found = BTreeMap::new();
    for source in sources {
        let Some(user) = folder_of(&source.path) else { continue };
        let text = methods(&source.text);
        let uses =
            text.match_indices("self").filter_map(|(at, name)| text[at + name.len()..].trim_start().strip_prefix('.'));
        for field in uses.map(|behind| word(behind.trim_start())) {
            if let Some(owner) = ORDER.iter().position(|folder| *folder == field).filter(|owner| *owner > user) {
                *found.entry((ORDER[user], ORDER[owner])).or_default() += 1;
            }
        }
    }
    found
}

#[test]
fn each_folder_of_the_engine_hides_its_state() {
    let found = complaints(&sources());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn folders_of_the_engine_use_the_state_of_those_below() {
    let waived: BTreeMap<(&str, &str), usize> =
        WAIVERS.into_iter().map(|(from, to, count)| ((from, to), count)).collect();
    assert_eq!(upwards(&sources()), waived, "call down or report it, or lower the number in the list");
}

#[test]
fn a_field_that_others_see_is_noticed() {
    let complaints = |node: &str, claims: &str| {
        let source = |path: &str, text: String| Source { path: format!("{ENGINE}{path}"), text };
        let lib = source("lib.rs", format!("pub struct Node {{\n    /// Own.\n    me: NodeId,\n{node}}}\n"));
        complaints(&[lib, source("claims/mod.rs", format!("pub struct Claims {{\n    broker: Broker,\n{claims}}}\n"))])
    };
    let claims = "    claims: Claims,\n";
    assert_eq!(complaints(claims, ""), [""; 0]);
    assert_eq!(complaints(claims, "    /// All.\n    heads: Heads,\n"), [""; 0]);
    for seen in ["pub", "pub(crate)", "pub(super)", "pub(in crate::claims)"] {
        let found = complaints(claims, &format!("    {seen} heads: Heads,\n"));
        assert_eq!(found, [format!("Claims: `{seen} heads: Heads,` is seen outside of its folder")]);
    }
    let alone = "Node::heads is state of a folder: put it into the folder's struct";
    assert_eq!(complaints("    claims: Claims,\n    heads: Heads,\n", ""), [alone]);
}

#[test]
fn a_use_upwards_is_noticed() {
    let uses = |path: &str, body: &str| {
        let text = format!("impl Node {{\n    fn apply(&mut self) {{\n        {body}\n    }}\n}}\n");
        upwards(&[Source { path: format!("{ENGINE}{path}"), text }])
    };
    let noticed = BTreeMap::from([(("consensus", "claims"), 1)]);
    for body in ["self.claims.step_down(partition);", "self\n            .claims\n            .step_down(partition);"] {
        assert_eq!(uses("consensus/election.rs", body), noticed, "{body}");
    }
    for body in ["self.membership.disk();", "// self.claims.step_down();", "self.consensus.next_unsent();"] {
        assert_eq!(uses("consensus/election.rs", body), BTreeMap::new(), "{body}");
    }
    assert_eq!(uses("workflow/uniques.rs", "self.claims.step_down(partition);"), BTreeMap::new(), "down");
}
