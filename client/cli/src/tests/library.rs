//! Goal: a program can do with the library what the command line does. Method: the table of `client/docs/workers.md` names the calls for
//! each verb; this test makes each call for the compiler alone.

use super::examples::verbs;
use norn_client::client::{Client, LetterOptions, ListOptions, RedriveOptions, WorkerSession};
use norn_wire::Acks;
use std::collections::BTreeMap;
use std::time::Duration;

const WORKERS: &str = include_str!("../../../docs/workers.md");

/// Stands for any value. Nothing here runs.
fn any<T>() -> T {
    unreachable!("it is compiled, and not run")
}

fn is_there<T>(_: T) {}

macro_rules! calls {
    ($client:ident, $session:ident: $($name:literal $call:expr;)+) => {
        /// Compiling it proves that each call exists.
        #[expect(dead_code)]
        fn make_each($client: &Client, mut $session: impl FnMut() -> WorkerSession) {
            $(is_there($call);)+
        }

        /// Calls that the table may name, with their code.
        const CALLS: &[(&str, &str)] = &[$(($name, stringify!($call))),+];
    };
}

calls! { client, session:
    "Client::enqueue" client.enqueue(any());
    "Client::enqueue_with" client.enqueue_with(any(), Acks::All);
    "Client::enqueue_many" client.enqueue_many(any(), Acks::All);
    "Client::enqueue_unique" client.enqueue_unique(any());
    "Client::enqueue_after_known" client.enqueue_after_known(any(), Acks::All);
    "Client::enqueue_as" client.enqueue_as(any(), any());
    "Client::find" client.find(any());
    "Client::open_group" client.open_group(any(), "book");
    "Client::close_group" client.close_group(any(), 3);
    "Client::claim" client.claim(any());
    "Client::renew" client.renew(any(), any(), None);
    "Client::renew_many" client.renew_many(any(), None);
    "Client::update" client.update(any(), any(), 0, "half", Acks::All);
    "Client::complete" client.complete(any());
    "Client::complete_many" client.complete_many(any(), Acks::All);
    "Client::fail" client.fail(any());
    "Client::release" client.release(any(), any());
    "Client::cancel" client.cancel(any(), "not needed", Acks::All);
    "Client::transact" client.transact(any());
    "Client::redrive" client.redrive(any(), None, Acks::All);
    "Client::redrive_as" client.redrive_as(any(), any(), None, Acks::All);
    "Client::redrive_once" client.redrive_once(any(), None, Acks::All);
    "Client::redrive_queue" client.redrive_queue(any::<RedriveOptions>());
    "Client::redrive_letters" client.redrive_letters(any::<LetterOptions>());
    "Client::purge" client.purge(any(), Acks::All);
    "Client::choose" client.choose(any());
    "Client::choose_ended" client.choose_ended(any());
    "Client::get" client.get(any());
    "Client::wait" client.wait(any(), Duration::ZERO);
    "Client::watch" client.watch(any());
    "Client::why" client.why(any());
    "Client::members" client.members(any());
    "Client::list" client.list(any::<ListOptions>());
    "Client::count" client.count(None, None);
    "Client::queues" client.queues();
    "Client::change" client.change(any());
    "Client::dry_run" client.dry_run(any());
    "Client::cluster" client.cluster();
    "Client::invitation" client.invitation();
    "Client::node" client.node("localhost:7400");
    "Client::recover" client.recover(any(), any(), Duration::ZERO);
    "Client::open_session" client.open_session(Duration::ZERO, "host-7");
    "Client::resume_session" client.resume_session(any(), any());
    "WorkerSession::renew" session().renew();
    "WorkerSession::end" session().end();
    "Client::set_schedule" client.set_schedule("nightly", any());
    "Client::schedules" client.schedules();
    "Client::schedule" client.schedule("nightly");
    "Client::remove_schedule" client.remove_schedule("nightly");
    "Client::pause_schedule" client.pause_schedule("nightly", true);
    "Client::nodes" client.nodes();
    "Client::ring" client.ring();
    "Client::partitions" client.partitions();
    "Client::status" client.status();
}

/// Returns the texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns for each verb what the document says of it: its calls, or why it has none.
fn table() -> BTreeMap<&'static str, &'static str> {
    let table = WORKERS.split("| verb | in the library |").nth(1).expect("the table");
    let mut calls = BTreeMap::new();
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let [_, verbs, said, _] = row.split('|').collect::<Vec<_>>()[..] else { panic!("two columns: {row}") };
        for verb in quoted(verbs) {
            assert_eq!(calls.insert(verb, said.trim()), None, "`{verb}` is there twice");
        }
    }
    calls
}

#[test]
fn the_names_of_calls_are_those_of_the_calls() {
    for (name, call) in CALLS {
        let (_, function) = name.split_once("::").expect("a type and its function");
        assert!(call.contains(&format!(".{function}(")), "{name}: {call}");
    }
}

#[test]
fn the_document_names_a_call_of_the_library_for_each_verb() {
    let table = table();
    for (verb, _) in verbs() {
        let said = table
            .get(verb.as_str())
            .unwrap_or_else(|| panic!("`{verb}` has no row: name a call, or why there is none"));
        let names: Vec<&str> = quoted(said).filter(|name| name.contains("::")).collect();
        for name in &names {
            let is_known = CALLS.iter().any(|(call, _)| call == name) || !name.starts_with("Client::");
            assert!(is_known, "`{verb}`: {name} is none of the calls that are compiled here");
        }
        assert!(!names.is_empty() || said.starts_with("none: "), "`{verb}`: {said}");
    }
    let known = verbs();
    for verb in table.keys() {
        assert!(known.iter().any(|(name, _)| name == verb), "there is no verb `{verb}`");
    }
    for (call, _) in CALLS {
        assert!(table.values().any(|said| quoted(said).any(|name| name == *call)), "{call} belongs to no verb");
    }
}
