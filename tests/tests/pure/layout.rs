//! Dependencies between the parts of a node.
//!
//! - The crates without IO name no crate that has any, so purity is the dependency graph.
//! - Modules of `norn-model` have an order, and each imports lower ones only.
//! - In `norn-engine`, files with methods of `Node`, and those with the state of a folder, are the *engine* proper. All other files
//!   are *plain*: data, and functions on it.
//!   They import nothing from the engine, so that each of them can be read, tested and moved without it.
//!
//! A path counts for the file that defines the item, whatever re-exports it goes through. Tests may import anything.

use norn_tests::source::{Source, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Root of the engine.
const ENGINE: &str = "node/engine/src/";
/// Crates of others without sockets, files, threads, clocks or randomness, as they are used here.
const PURE: [&str; 12] = [
    "chrono",
    "chrono-tz",
    "crc32c",
    "crdts",
    "croner",
    "memchr",
    "merkle_light",
    "rmp-serde",
    "serde",
    "serde_bytes",
    "thiserror",
    "xxhash-rust",
];
/// Root of the plain state.
const MODEL: &str = "node/model/src/";
/// Modules of the model from the lowest up. Each imports lower ones only, none of its own layer.
const LAYERS: [&[&str]; 9] = [
    &["encoded", "host", "limits", "sorted", "time", "viewstamp"],
    &["config", "ring", "rules", "schedules", "task"],
    &["clocks", "metadata", "data_loss"],
    &["cohort"],
    &["claim_table"],
    &["consensus"],
    &["replica"],
    &["message", "record"],
    &["snapshot"],
];
/// Known violations, as the test reports them. A violation that has been fixed must be removed from this list.
const WAIVERS: [&str; 0] = [];

type Path = Vec<String>;

/// A file without its tests.
struct Module {
    file: String,
    is_engine: bool,
    /// Paths of imports, by the name that each one binds.
    imports: BTreeMap<String, Path>,
    /// Paths of imports, and all other paths in the file, expanded by the imports.
    paths: Vec<Path>,
}

/// Modules by path: `crate::task`.
struct Core(BTreeMap<String, Module>);

fn segments(path: &str) -> Path {
    path.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// The path of the module in a file of the engine, tests apart.
fn module_of(file: &str) -> Option<String> {
    module_below(ENGINE, file)
}

/// The path of the module in a file below a crate's root, tests apart.
fn module_below(root: &str, file: &str) -> Option<String> {
    let inner = file.strip_prefix(root)?.strip_suffix(".rs")?;
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    let path = if inner == "lib" { String::new() } else { format!("::{}", inner.replace('/', "::")) };
    inner.split('/').all(|part| part != "tests").then(|| format!("crate{path}"))
}

/// The text without tests, comments, and the arguments of `pub(...)`.
fn code_of(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().expect("there is a first part");
    let lines = text.lines().map(|line| line.split("//").next().expect("there is a first part"));
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    let mut parts = code.split("pub(");
    let first = parts.next().expect("there is a first part").to_owned();
    parts.fold(first, |code, part| code + "pub" + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// Adds the names and paths of a tree of imports.
fn expand(before: &str, tree: &str, imports: &mut Vec<(String, Path)>) {
    let Some((head, body)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path = segments(&format!("{before}{path}"));
        path.truncate(path.len() - usize::from(path.last().is_some_and(|last| last == "self")));
        let name = if name.is_empty() { path.last().cloned().unwrap_or_default() } else { name.trim().to_owned() };
        return imports.push((name, path));
    };
    let (mut depth, before) = (0, format!("{before}{}", head.trim()));
    let body = body.rsplit_once('}').map_or(body, |(body, _)| body);
    let parts = body.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).for_each(|part| expand(&before, part.trim(), imports));
}

fn module(file: &str, text: &str) -> Module {
    let code = code_of(text);
    let is_engine = |line: &str| line.starts_with("impl Node {");
    // `claims/mod.rs` holds the state of its folder.
    let is_state = file.strip_prefix(ENGINE).and_then(|inner| inner.strip_suffix("/mod.rs"));
    let is_state = is_state.is_some_and(|folder| !folder.contains('/'));
    let is_engine = is_state || code.lines().any(is_engine);
    let (mut rest, mut statement, mut imports) = (String::new(), String::new(), Vec::new());
    for line in code.lines() {
        let bare = line.trim_start().trim_start_matches("pub ");
        match bare.strip_prefix("use ") {
            Some(tree) => statement = tree.to_owned(),
            None if statement.is_empty() => rest = rest + line + "\n",
            None => statement = statement + " " + bare,
        }
        if let Some((tree, _)) = statement.split_once(';') {
            expand("", tree, &mut imports);
            statement.clear();
        }
    }
    let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    // All imports count, even those that bind the same name, as globs do.
    let mut paths: Vec<Path> = imports.iter().map(|(_, path)| path.clone()).collect();
    let imports: BTreeMap<String, Path> = imports.into_iter().collect();
    let others = words.filter(|word| word.contains("::")).map(segments);
    paths.extend(others.map(|path| match path.first().and_then(|first| imports.get(first)) {
        Some(import) => [import, &path[1..]].concat(),
        None => path,
    }));
    Module { file: file.to_owned(), is_engine, imports, paths }
}

impl Core {
    fn new(sources: &[Source], module_of: impl Fn(&str) -> Option<String>) -> Core {
        let of_core = sources.iter().filter_map(|source| Some((module_of(&source.path)?, source)));
        Core(of_core.map(|(path, source)| (path, module(&source.path, &source.text))).collect())
    }

    /// The module that defines the item of a path as seen from another module, with re-exports followed.
    fn owner(&self, at: &str, path: &[String]) -> Option<&Module> {
        let Some((segment, rest)) = path.split_first() else { return self.0.get(at) };
        let child = format!("{at}::{segment}");
        match segment.as_str() {
            "crate" => self.owner("crate", rest),
            "self" => self.owner(at, rest),
            "super" => self.owner(at.rsplit_once("::")?.0, rest),
            _ if self.0.contains_key(&child) => self.owner(&child, rest),
            _ => match self.0.get(at)?.imports.get(segment) {
                Some(import) if import[0] != *segment => self.owner(at, &[import, rest].concat()),
                _ => self.0.get(at),
            },
        }
    }

    /// Imports from the engine in plain files.
    fn complaints(&self) -> BTreeSet<String> {
        let plain = self.0.iter().filter(|(_, module)| !module.is_engine);
        let paths = plain.flat_map(|(at, module)| module.paths.iter().map(move |path| (at, module, path)));
        let complaint = |(at, module, path): (&String, &Module, &Path)| {
            let owner = self.owner(at, path).filter(|owner| owner.is_engine)?;
            Some(format!("{} imports {} of {}", module.file, path.join("::"), owner.file))
        };
        paths.filter_map(complaint).collect()
    }
}

#[test]
fn plain_files_import_nothing_of_the_engine() {
    let core = Core::new(&sources(), module_of);
    assert!(core.0.values().filter(|module| module.is_engine).count() > 50, "the engine was not found");
    let (found, waived) = (core.complaints(), BTreeSet::from(WAIVERS.map(str::to_owned)));
    let new: Vec<&str> = found.difference(&waived).map(String::as_str).collect();
    assert!(new.is_empty(), "\n{}", new.join("\n"));
    assert_eq!(waived.difference(&found).next(), None, "this is waived and undone: take it out of the list");
}

#[test]
fn an_import_is_noticed_however_it_is_written() {
    let engine = ("claims.rs", "pub struct Calls;\n\nimpl Node {\n}\n");
    let root = ("lib.rs", "mod claims;\npub mod table;\npub use claims::{self as c, Calls};\n\nimpl Node {\n}\n");
    let complaints = |plain: &str| {
        let files = [engine, root, ("table.rs", "pub struct Table;\n"), ("plain.rs", plain)];
        let source = |(name, text): (&str, &str)| Source { path: format!("node/engine/src/{name}"), text: text.into() };
        Core::new(&files.map(source), module_of).complaints().into_iter().collect::<Vec<String>>()
    };
    let noticed = [
        ("use crate::claims::Calls;", "crate::claims::Calls"),
        ("pub(super) use super::{\n    table::Table,\n    claims::{Calls as Them, *},\n};", "super::claims::Calls"),
        ("use std::fmt;\nuse crate::Calls;", "crate::Calls"),
        ("use super::c;\nfn f(_: &c::Calls) {}", "super::c"),
        ("fn f() -> Option<super::claims::Calls> {\n    None\n}", "super::claims::Calls"),
        ("use super::claims;", "super::claims"),
        ("use super::claims::*;\nuse super::table::*;", "super::claims::*"),
        ("use super::claims as c;\nfn f(_: &c::Calls) {}", "super::claims::Calls"),
    ];
    for (text, path) in noticed {
        let complaint = format!("node/engine/src/plain.rs imports {path} of node/engine/src/claims.rs");
        assert!(complaints(text).contains(&complaint), "{text}: {:?}", complaints(text));
    }
    let allowed = [
        "use super::table::Table;\nuse std::sync::{self, Arc};",
        "/// See [`super::claims::Calls`].\npub(in crate::x) fn f() {}",
        "#[cfg(test)]\nmod tests {\n    use super::super::claims::Calls;\n}",
    ];
    allowed.into_iter().for_each(|text| assert_eq!(complaints(text), [""; 0], "{text}"));
    assert_eq!(complaints("impl Node {\n}\nuse super::claims::Calls;"), [""; 0], "the engine knows itself");
}

/// The first segment of a module's path below the crate, and its place in the order of [`LAYERS`].
fn layer_of(file: &str) -> (&str, Option<usize>) {
    let first = file.strip_prefix(MODEL).and_then(|inner| inner.split(['/', '.']).next()).unwrap_or(file);
    (first, LAYERS.iter().position(|layer| layer.contains(&first)))
}

/// Imports within the model that do not lead to a lower layer.
fn climbs(sources: &[Source]) -> BTreeSet<String> {
    let model = Core::new(sources, |file| module_below(MODEL, file).filter(|_| file != "node/model/src/lib.rs"));
    let mut complaints = BTreeSet::new();
    for (at, module) in &model.0 {
        let (own, layer) = layer_of(&module.file);
        if layer.is_none() {
            complaints.insert(format!("{} has no layer", module.file));
        }
        for path in &module.paths {
            let Some(owner) = model.owner(at, path) else { continue };
            let (other, lower) = layer_of(&owner.file);
            if other != own && lower >= layer {
                complaints.insert(format!("{} imports {} of {}", module.file, path.join("::"), owner.file));
            }
        }
    }
    complaints
}

#[test]
fn modules_of_the_model_import_lower_layers_only() {
    let found: Vec<String> = climbs(&sources()).into_iter().collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn an_import_that_climbs_is_noticed() {
    let complaints = |name: &str, text: &str| {
        let files = [("cohort.rs", "pub struct Cohort;\n"), ("task/mod.rs", "mod blob;\n"), (name, text)];
        let source = |(name, text): (&str, &str)| Source { path: format!("{MODEL}{name}"), text: text.into() };
        climbs(&files.map(source)).into_iter().collect::<Vec<String>>()
    };
    for text in
        ["use crate::cohort::Cohort;", "fn f(_: &crate::cohort::Cohort) {}", "use super::super::cohort::Cohort;"]
    {
        let found = complaints("task/blob.rs", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].ends_with("cohort::Cohort of node/model/src/cohort.rs"), "{found:?}");
    }
    assert_eq!(complaints("ring.rs", "use crate::task;").len(), 1, "of one layer");
    assert_eq!(complaints("else.rs", "use std::fmt;"), ["node/model/src/else.rs has no layer"]);
    assert_eq!(complaints("consensus.rs", "use crate::cohort::Cohort;\nuse norn_wire::TaskId;"), [""; 0]);
}

/// Dependencies that the manifest of a crate names, those of its tests apart.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let tables = manifest.lines().filter(|line| line.starts_with('[') && line.contains("dependencies"));
    let unknown: Vec<&str> = tables.filter(|line| !["[dependencies]", "[dev-dependencies]"].contains(line)).collect();
    assert!(unknown.is_empty(), "{unknown:?} may name anything");
    let (_, behind) = manifest.split_once("[dependencies]\n").expect("it has dependencies");
    let lines = behind.lines().take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect()
}

// E30: the log is a package that knows no engine
/// Goal: a crate without IO stays without. Method: each crate that it names is known to have none either.
#[test]
fn crates_without_io_name_none_that_has_any() {
    let below: [(&str, &[&str]); 4] = [
        ("node/model", &["norn-wire"]),
        ("node/storage", &["norn-model", "norn-wire"]),
        ("node/engine", &["norn-model", "norn-wire"]),
        ("node/restore", &["norn-engine", "norn-model", "norn-storage", "norn-wire"]),
    ];
    for (folder, norn) in below {
        let file = norn_tests::binary::workspace().join(folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&file).expect("it is there");
        let (own, others): (BTreeSet<&str>, BTreeSet<&str>) =
            dependencies(&manifest).into_iter().partition(|name| name.starts_with("norn-"));
        assert_eq!(own, BTreeSet::from_iter(norn.iter().copied()), "{folder}");
        let unknown: Vec<&&str> = others.iter().filter(|name| !PURE.contains(name)).collect();
        assert!(unknown.is_empty(), "{folder} names {unknown:?}");
    }
    assert_eq!(dependencies("[dependencies]\na = \"1\"\n\n[dev-dependencies]\nb = \"1\"\n"), BTreeSet::from(["a"]));
}
