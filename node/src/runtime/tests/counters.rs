//! Counters of the host and the core are explained, and reach monitoring under lasting names.

use norn_cli::counters::meaning;
use norn_engine::COUNTED;
use norn_host::metrics::Counter;

#[test]
fn every_counter_has_a_lasting_name_in_the_metrics() {
    use norn_doors::metrics::table::{ELSEWHERE, of_today};
    let names = Counter::ALL.iter().map(|counter| counter.name()).chain(COUNTED).chain(norn_engine::STANDINGS);
    for name in names {
        let is_elsewhere = ELSEWHERE.iter().any(|(today, _)| *today == name);
        assert!(of_today(name).is_some() != is_elsewhere, "{name}");
    }
}

#[test]
fn every_counter_is_explained_to_people() {
    let names = Counter::ALL.iter().map(|counter| counter.name()).chain(COUNTED);
    let names = names.chain(norn_engine::STANDINGS).map(str::to_owned);
    for name in names.chain(norn_engine::CLOCKS.map(|clock| format!("{clock}.n2"))) {
        assert_ne!(meaning(&name), "", "{name}");
    }
}
