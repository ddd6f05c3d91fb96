//! Checks of settings for a start, beyond the form of each value. Neither files nor addresses are looked up.

use super::{Effective, SettingsError};
use crate::runtime::certificates::check_name;
use norn_model::config::table;
use norn_model::config::table::Bounds;
use norn_model::config::table::RESERVES_FREE;
use norn_wire::address::parse_address;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Crates that log, besides those of this program.
const CRATES: [&str; 6] = ["mio", "quinn", "quinn_proto", "quinn_udp", "rustls", "tokio"];

impl Effective {
    /// Refuses the settings that a start refuses, except for a missing directory or missing certificates.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.log_filter()?;
        self.logs_json()?;
        self.invitation()?;
        self.peers()?;
        self.listen()?;
        self.advertise()?;
        self.zone()?;
        self.node_name()?;
        self.sync()?;
        self.disk_bytes_max()?;
        self.http()?;
        self.core().map(|_| ())
    }

    /// Limit on the bytes of the data directory: at least a new log, and space in which its reserve is written.
    pub fn disk_bytes_max(&self) -> Result<Option<u64>, SettingsError> {
        let bytes_max = self.number("disk_bytes_max");
        let bounds = self.bounds("disk_bytes_max");
        if let Some(Bounds { low: least, .. }) = bounds.filter(|bounds| !bounds.allow(bytes_max)) {
            let wanted = format!(
                "0, or at least {least}: a log as it begins, and {RESERVES_FREE} times `reserve_bytes`, which is written where so much \
                 is free"
            );
            return Err(self.refused("disk_bytes_max", self.text("disk_bytes_max"), &wanted));
        }
        if bytes_max > 0 && self.number("reserve_bytes") == 0 {
            // Without a reserve the log does not watch its space, so the limit would not be held.
            let wanted = "0 where `reserve_bytes` is 0: the limit is held by the reserve; set `reserve_bytes`, or leave the limit out";
            return Err(self.refused("disk_bytes_max", self.text("disk_bytes_max"), wanted));
        }
        Ok(Some(bytes_max).filter(|bytes_max| *bytes_max > 0))
    }

    /// The node's name, which must be valid in a certificate.
    fn node_name(&self) -> Result<(), SettingsError> {
        let name = self.text("name");
        match name.is_empty() {
            true => Ok(()),
            false => Ok(check_name(name)?),
        }
    }

    /// The log filter: a level, or levels of parts of the program, separated by commas.
    pub fn log_filter(&self) -> Result<Targets, SettingsError> {
        let text = self.text("log");
        let pieces: Vec<&str> = text.split(',').map(str::trim).filter(|piece| !piece.is_empty()).collect();
        // A part without a level would log everything from that part, and nothing from the others.
        let wrong = pieces.iter().find(|piece| !is_directive(piece));
        if pieces.is_empty() || wrong.is_some() {
            let value = wrong.map_or(text, |piece| piece);
            let spans = if value.contains('[') { "; it is not filtered by spans" } else { "" };
            let wanted = format!(
                "a level (`off`, `error`, `warn`, `info`, `debug` or `trace`), or one of a part of the program, as in \
                 `info,norn=debug`{spans}"
            );
            return Err(self.refused("log", value, &wanted));
        }
        pieces.join(",").parse().map_err(|error| self.refused("log", text, &format!("a filter: {error}")))
    }

    /// Whether the log format is JSON, and not text.
    pub fn logs_json(&self) -> Result<bool, SettingsError> {
        match self.text("log_format") {
            "text" => Ok(false),
            "json" => Ok(true),
            other => Err(self.refused("log_format", other, "`text` or `json`")),
        }
    }

    /// The address to bind; port 0 lets the system choose one.
    pub(super) fn listen(&self) -> Result<String, SettingsError> {
        self.address_to_bind("listen")
    }

    pub(super) fn address_to_bind(&self, name: &'static str) -> Result<String, SettingsError> {
        let listen = self.text(name);
        let named = listen.strip_suffix(":0").map_or_else(|| listen.to_owned(), |host| format!("{host}:1"));
        match parse_address(&named) {
            Some(_) => Ok(listen.to_owned()),
            None => Err(self.refused(name, listen, "an address; the form is HOST:PORT, or [HOST]:PORT of IPv6")),
        }
    }

    pub(super) fn refused(&self, name: &'static str, value: &str, wanted: &str) -> SettingsError {
        let origin = self.values[name].1.clone();
        SettingsError::Value { name, origin, value: value.to_owned(), wanted: wanted.to_owned() }
    }
}

/// Whether a piece of a filter is a level, a part of this program, or a part of any program with its level.
fn is_directive(piece: &str) -> bool {
    let is_path = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte));
    match piece.split_once('=') {
        Some((part, level)) => is_path(part) && level.parse::<LevelFilter>().is_ok(),
        None => {
            let first = piece.split("::").next().unwrap_or(piece);
            let is_part = is_path(piece) && (first.starts_with("norn") || CRATES.contains(&first));
            is_part || piece.parse::<LevelFilter>().is_ok()
        }
    }
}

/// Variables with the prefix of settings that are no settings: most likely mistyped. Empty ones count as not set.
pub fn unknown_variables(variables: impl Iterator<Item = (String, String)>) -> Vec<String> {
    /// Variables of commands and tests.
    const OTHERS: [&str; 13] = [
        "NORN_BINARY",
        "NORN_BLESS",
        "NORN_CLIENT",
        "NORN_CONFIG",
        "NORN_DOOR",
        "NORN_DOORS_PORT",
        "NORN_NETWORK_SECONDS",
        "NORN_NEW_BINARY",
        "NORN_OLD_BINARY",
        "NORN_SCENE",
        "NORN_SEEDS",
        "NORN_TRACE",
        "NORN_TRIAL_CLIENTS",
    ];
    let is_unknown = |name: &String| {
        let setting = name.strip_prefix("NORN_").map(str::to_lowercase);
        setting.is_some_and(|setting| table::find(&setting).is_none()) && !OTHERS.contains(&name.as_str())
    };
    let set = variables.filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    let mut unknown: Vec<String> = set.filter(is_unknown).collect();
    unknown.sort();
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn checked(name: &str, value: &str) -> Result<(), String> {
        checked_together([(name, value)])
    }

    fn checked_together<const N: usize>(settings: [(&str, &str); N]) -> Result<(), String> {
        let flags = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Effective::gather(None, std::iter::empty(), flags).unwrap().check().map_err(|error| error.to_string())
    }

    /// Goal: an operator who limits the data directory is not left without the limit.
    #[test]
    fn a_limit_that_would_not_be_held_is_refused() {
        let refusal = checked_together([("disk_bytes_max", "1073741824"), ("reserve_bytes", "0")]).unwrap_err();
        assert!(refusal.contains("set `reserve_bytes`"), "{refusal}");
        assert_eq!(checked_together([("disk_bytes_max", "1073741824"), ("reserve_bytes", "1048576")]), Ok(()));
        assert_eq!(checked_together([("disk_bytes_max", "0"), ("reserve_bytes", "0")]), Ok(()));
    }

    /// Goal: a mistyped level is refused, and does not turn the log off.
    #[test]
    fn a_log_filter_names_levels_and_parts_of_the_program() {
        for right in
            ["off", "info", "WARN", "info, norn_node=debug", "norn", "quinn_udp", "norn_node::runtime,warn", "h2=off"]
        {
            assert_eq!(checked("log", right), Ok(()), "{right:?}");
        }
        for wrong in [
            "",
            " , ",
            "warning",
            "loud",
            "inof",
            "info;debug",
            "info,lout",
            "norn_node=loud",
            "info;norn=debug",
            "a[b]=info",
        ] {
            let refusal = checked("log", wrong).unwrap_err();
            assert!(refusal.contains("log (flag)") && refusal.contains("`trace`"), "{wrong:?}: {refusal}");
        }
    }

    /// Goal: a node starts with the settings that `--print-config` prints.
    #[test]
    fn what_a_start_refuses_is_refused_without_one() {
        let wrong = [
            ("sync", "sometimes"),
            ("log_format", "xml"),
            ("retain", "7d, 8d"),
            ("peers", "beta"),
            ("heartbeat_ms", "200"),
            ("forget_after_ms", "1000"),
            ("join", "x"),
            ("advertise", "foo"),
            ("disk_bytes_max", "100"),
            ("disk_bytes_max", "27262975"),
            ("zone", "rack\u{7}"),
            ("zone", &"r".repeat(256)),
            ("name", "a b"),
            ("name", &"n".repeat(64)),
        ];
        for (name, value) in wrong {
            assert!(checked(name, value).is_err(), "{name} = {value:?}");
        }
        for value in ["22011", "[::1]", "::1:22011", "", ":7400", "a:b"] {
            assert!(checked("listen", value).unwrap_err().contains("HOST:PORT"), "{value:?}");
        }
        assert_eq!((checked("disk_bytes_max", "0"), checked("disk_bytes_max", "27262976")), (Ok(()), Ok(())));
        for value in ["127.0.0.1:0", "[::1]:22011", "localhost:7400", "0.0.0.0:7400"] {
            assert_eq!(checked("listen", value), Ok(()), "{value:?}");
        }
    }

    #[test]
    fn a_mistyped_variable_is_known_as_such() {
        let names = ["HOME", "NORN_ZONE", "NORN_CLIENT", "NORN_SEEDS", "NORN_BOGUS", "NORN_HEARTBEAT"];
        let set = names.map(|name| (name.to_owned(), "x".to_owned()));
        let empty = std::iter::once(("NORN_EMPTY".to_owned(), String::new()));
        assert_eq!(unknown_variables(set.into_iter().chain(empty)), ["NORN_BOGUS", "NORN_HEARTBEAT"]);
    }

    /// Goal: nodes that tests and the gate start do not warn of the variables of these.
    #[test]
    fn the_variables_of_tests_and_of_the_gate_are_known() {
        fn read(place: &Path, text: &mut String) {
            for entry in std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true => read(&entry, text),
                    false => text.push_str(&std::fs::read_to_string(&entry).unwrap_or_default()),
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut text = String::new();
        [".ci", "tests"].iter().for_each(|part| read(&root.join(part), &mut text));
        let ends = |character: char| !(character.is_ascii_uppercase() || character == '_');
        let names = text.split("NORN_").skip(1).map(|rest| rest.split(ends).next().unwrap());
        let names: BTreeSet<String> =
            names.filter(|name| !name.is_empty()).map(|name| format!("NORN_{name}")).collect();
        assert!(names.len() > 5, "{names:?}");
        let set = names.into_iter().map(|name| (name, "x".to_owned()));
        assert_eq!(unknown_variables(set), Vec::<String>::new());
    }
}
