//! Every scene of the suite in the simulator. `NORN_SCENE` selects scenes by a part of their names, and `NORN_SEEDS` sets the number
//! of seeds with which each is played. With `NORN_TRACE`, a scene that fails prints its whole trace.

use norn_model::config::Mutant;
use norn_sim::{Conditions, Keep};
use norn_tests::suite::{Simulated, chosen};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn seeds(usual: u64) -> std::ops::RangeInclusive<u64> {
    let asked = std::env::var("NORN_SEEDS").ok().map(|seeds| seeds.parse().expect("NORN_SEEDS is a number"));
    1..=asked.unwrap_or(usual)
}

fn keep() -> Keep {
    if std::env::var_os("NORN_TRACE").is_some() { Keep::All } else { Keep::Tail }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Plays each scene alone, with several seeds; reports all failures.
fn play_alone(conditions: Conditions, usual: u64) {
    let mut failed = Vec::new();
    for play in chosen(|_| true) {
        for seed in seeds(usual) {
            let simulated = Simulated::new(seed, conditions, keep());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| simulated.play(&[play]))) {
                eprintln!("{} with seed {seed}:\n{}", play.name, simulated.text());
                failed.push(format!("{} with seed {seed}: {}", play.name, text(&*panic)));
            }
        }
    }
    assert!(failed.is_empty(), "{conditions:?}:\n{}", failed.join("\n"));
}

#[test]
fn every_scene_is_played_in_the_simulator() {
    play_alone(Conditions::Calm, 2);
}

#[test]
fn every_scene_is_played_in_the_simulator_where_all_sorts_of_things_break() {
    play_alone(Conditions::Rough, 2);
}

#[test]
fn all_scenes_are_played_at_once_in_the_simulator_and_a_seed_decides_what_happens() {
    let play = |seed| {
        let simulated = Simulated::new(seed, Conditions::Calm, keep());
        simulated.play(&chosen(|play| !play.kills));
        simulated.trace_hash()
    };
    assert_eq!(play(1), play(1));
}

/// Goal: a scene fails where its subject is broken, independently of the simulator's properties. Method: known bugs are planted again.
#[test]
fn a_known_bug_is_noticed_by_the_scene_that_it_concerns() {
    let bugs = [
        (Mutant::RenewalShortens, "a_renewal_prolongs_and_never_shortens"),
        (Mutant::LeaseUnbounded, "a_queue_says_how_long_leases_are"),
        (Mutant::SealsSuperseded, "the_latest_holder_alone_completes_where_the_queue_says_so"),
        (Mutant::EndsEarly, "a_group_waits_for_the_groups_that_its_members_bring"),
        (Mutant::FollowsOnce, "a_task_waits_for_what_nobody_knows_yet"),
        (Mutant::LettersForgotten, "what_dies_leaves_a_letter"),
    ];
    for (bug, name) in bugs {
        let play = *norn_tests::suite::PLAYS.iter().find(|play| play.name == name).expect("there is such a scene");
        let played = catch_unwind(AssertUnwindSafe(|| Simulated::with_bug(1, bug).play(&[play])));
        assert!(played.is_err(), "{name} does not notice {bug:?}");
        Simulated::new(1, Conditions::Calm, keep()).play(&[play]);
    }
}
