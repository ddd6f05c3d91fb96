//! Goal: settings are merged from their sources, and unusable ones are refused by name.

use super::*;

fn pairs(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>().into_iter()
}

#[test]
fn retention_has_a_default_and_exceptions() {
    let read = retention("7d, mail/out = 1h,audit=0s").unwrap();
    let of = |queue: &str| read.of(Some(&QueueName::new(queue).unwrap()));
    assert_eq!((of("mail/out"), of("audit"), of("other"), read.of(None)), (3_600_000, 0, 604_800_000, 604_800_000));
    for wrong in ["", "week", "7d, mail", "7d, =1h", "7d, a b=1h", "7d, q=1h, q=2h"] {
        assert!(retention(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn an_advertised_address_that_no_cluster_takes_is_refused_by_name() {
    let advertise = |value: &str| {
        let effective = Effective::gather(None, pairs(&[]), pairs(&[("advertise", value)])).unwrap();
        effective.advertise().map_err(|error| error.to_string())
    };
    assert_eq!(advertise(""), Ok(None));
    for right in ["alpha.example.com:7400", "10.0.0.1:7400", "[2001:db8::1]:7400"] {
        assert_eq!(advertise(right), Ok(Some(right.to_owned())));
    }
    for wrong in ["foo", "foo:", ":7400", "foo:0", "foo:70000", "::1:7400", "a b:1", "0.0.0.0:7704", "[::]:7704"] {
        let refusal = advertise(wrong).unwrap_err();
        assert!(refusal.starts_with("advertise (flag): ") && refusal.contains(&format!("{wrong:?}")), "{refusal}");
    }
}

#[test]
fn the_later_source_wins_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("norn.toml");
    std::fs::write(&file, "heartbeat_ms = 40\nzone = \"a\"\nresend_ms = 100\n").unwrap();
    let environment = pairs(&[("NORN_ZONE", "b"), ("NORN_RESEND_MS", "150"), ("HOME", "x"), ("NORN_CLIENT", "y")]);
    let effective = Effective::gather(Some(&file), environment, pairs(&[("zone", "c")])).unwrap();
    let core = effective.core().unwrap();
    assert_eq!((core.heartbeat_ms, core.resend_ms, effective.text("zone")), (40, 150, "c"));
}

// E18: the default
#[test]
fn by_default_the_disk_is_synced_before_an_answer() {
    let effective = Effective::gather(None, pairs(&[]), pairs(&[])).unwrap();
    assert_eq!(effective.log().unwrap().sync, SyncPolicy::Always);
}

#[test]
fn defaults_are_those_of_the_core_and_within_limits() {
    let effective = Effective::gather(None, pairs(&[]), pairs(&[])).unwrap();
    assert_eq!(effective.core().unwrap(), Config::default());
    for setting in table::settings() {
        assert_eq!(check_form(setting.form, &setting.default_text()), Ok(()), "{}", setting.name);
    }
}

#[test]
fn what_is_unknown_or_out_of_limits_is_refused() {
    let gathered = |name, value| Effective::gather(None, pairs(&[]), pairs(&[(name, value)]));
    let wrong = [("heartbeat", "50"), ("heartbeat_ms", "1"), ("threads", "many"), ("threads", "-1")];
    for (name, value) in wrong.into_iter().chain([("memory_bytes_max", "512"), ("memory_bytes_max", "-1")]) {
        let error = gathered(name, value).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = gathered("memory_bytes_max", "67108863").unwrap_err().to_string();
    assert!(error.ends_with("is not 0, or a whole number from 67108864 to 1125899906842624"), "{error}");
    assert!(gathered("memory_bytes_max", "0").is_ok() && gathered("memory_bytes_max", "67108864").is_ok());
}

/// Goal: an empty variable counts as not set.
#[test]
fn an_empty_variable_is_as_one_that_is_not_set() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("norn.toml");
    std::fs::write(&file, "zone = \"a\"\n").unwrap();
    let empty: Vec<(String, String)> =
        table::settings().map(|setting| (format!("NORN_{}", setting.name.to_uppercase()), String::new())).collect();
    let effective = Effective::gather(Some(&file), empty.into_iter(), pairs(&[])).unwrap();
    effective.check().unwrap();
    assert_eq!((effective.text("zone"), effective.text("log")), ("a", "info"));
}

/// Goal: the document of the settings agrees with the table.
#[test]
fn the_document_of_the_settings_is_that_of_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    if std::env::var("NORN_BLESS").is_ok_and(|bless| bless == "1") {
        std::fs::write(&file, document()).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let bless = "NORN_BLESS=1 cargo test -p norn-node --lib the_document_of_the_settings";
    assert!(written == document(), "{} is not as the table of settings has it; `{bless}` writes it", file.display());
}

#[test]
fn amounts_are_shown_in_the_largest_unit_that_divides_them() {
    let shown =
        [(0, "ms"), (300, "ms"), (86_400_000, "ms"), (8 << 20, "B"), (1 << 14, "B/s"), (1 << 50, "tasks"), (5, "")];
    let shown = shown.map(|(value, unit)| document::amount(value, unit));
    assert_eq!(shown, ["0", "300 ms", "1 d", "8 MiB", "16 KiB/s", "2^50 tasks", "5"]);
}
