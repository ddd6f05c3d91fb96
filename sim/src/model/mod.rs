//! Exhaustive exploration of the consensus group, where random schedules would rarely come: changes of the cohort that
//! cross elections, and replicas that lost something.
//!
//! Each case is a bounded world, explored breadth-first ([stateright](https://docs.rs/stateright)). Without a flaw no violation may
//! be found, and what is said to be reachable must be reached; each flaw must be found.

mod cohort;
mod consensus;
mod entry;
mod state;

use entry::Union;
use state::{Action, Bounds, Step};
use stateright::{Checker, Model};
use std::io::{self, Write};
use std::thread;
use std::time::Instant;

/// A mistake that the model can make, and that must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A crash forgets a vote that was sent.
    VoteNotDurable,
    /// A wiped replica keeps its name.
    SameIdentity,
    /// A replica acknowledges operations of an epoch below its promise.
    AcksAfterPromise,
    /// A replica votes for a table that is older than its own.
    VoteIgnoresStamp,
    /// A replica that lost its table votes and counts at once.
    LostTableVotes,
    /// A replica that lost its table counts again once it has a leader's installation.
    RegainsByInstall,
    /// While joint, a majority of the new cohort is enough.
    JointNewSideOnly,
    /// The new cohort counts alone before the joint one is committed.
    StableEarly,
    /// A leader changes the cohort without a joint one.
    NoJoint,
    /// A leader changes the cohort by one member, without a joint one, before its installation is committed.
    SwitchesEarly,
    /// A leader takes a change back before its installation is committed.
    RevertsEarly,
    /// A candidate reads the tables of a majority, and other replicas may vote for it, whatever their tables are.
    StateFromOthers,
    /// Half of the members is a majority.
    HalfCounts,
}

/// A bounded world and its name.
struct Case {
    name: &'static str,
    bounds: Bounds,
}

fn fixed(epochs: u8) -> Bounds {
    Bounds { replicas: 3, cohort: 3, epochs, appends: 1, ..Bounds::default() }
}

/// Three replicas, led by one of them.
fn led(epochs: u8) -> Bounds {
    Bounds { begin: Some(Vec::new()), ..fixed(epochs) }
}

/// Three replicas that may be changed for others.
fn changing(epochs: u8, replicas: u8, target: &[u8]) -> Bounds {
    Bounds { replicas, changes: 1, targets: vec![target.to_vec()], appends: 0, ..led(epochs) }
}

/// Worlds without a flaw.
fn sound() -> Vec<Case> {
    let case = |name, bounds| Case { name, bounds };
    vec![
        case("3 replicas, 2 epochs", fixed(2)),
        case("3 replicas, 3 epochs", fixed(3)),
        case("newer tables are fetched", Bounds { fetch: true, ..fixed(2) }),
        case("a table is lost", Bounds { losses: 1, ..led(2) }),
        case("a replica is wiped", Bounds { losses: 1, wipes: true, ..led(2) }),
        case("3 become 3, one is new", changing(2, 4, &[1, 2, 3])),
        case("3 become 1", changing(2, 4, &[3])),
        case("3 become 4", Bounds { candidates: vec![1, 3], ..changing(2, 4, &[0, 1, 2, 3]) }),
        case("a change is taken back", Bounds { begin: Some(abandoned()), ..changing(3, 5, &[0, 3, 4]) }),
    ]
}

/// Steps after which leader 0 has made the joint cohort count for all replicas, and has the new cohort alone in its own table only.
/// Then 1 wins an election among all.
fn abandoned() -> Vec<Step> {
    use Step::{Do, Hear};
    let joint = [Do(Action::Joint(0, 0)), Hear(1), Hear(3), Hear(0), Do(Action::Stable(0))];
    let election = [Do(Action::Campaign(1)), Hear(2), Hear(3), Hear(4), Hear(1)];
    joint.into_iter().chain(election).collect()
}

/// Four replicas. Leader 0 has added a fifth in its own table only; then 1 wins an election among the others, and takes 0 out
/// before its installation is committed.
fn added() -> Vec<Step> {
    use Step::{Do, Hear};
    let election = [Do(Action::Campaign(1)), Hear(2), Hear(3), Hear(1)];
    let begin = [Do(Action::Switch(0, 0))].into_iter().chain(election);
    begin.chain([Do(Action::Campaign(0)), Do(Action::Switch(1, 1))]).collect()
}

/// Worlds with a flaw, small enough for it to be found soon.
fn flawed() -> Vec<Case> {
    let case = |name, flaw, bounds| Case { name, bounds: Bounds { flaw: Some(flaw), ..bounds } };
    let losing = Bounds { losses: 1, ..led(2) };
    let one_by_one = Bounds {
        replicas: 5,
        cohort: 4,
        changes: 2,
        targets: vec![vec![0, 1, 2, 3, 4], vec![1, 2, 3]],
        candidates: vec![0],
        begin: Some(added()),
        ..changing(3, 5, &[])
    };
    vec![
        case("vote not durable", Flaw::VoteNotDurable, Bounds { crashes: 1, ..fixed(2) }),
        case("same identity after a wipe", Flaw::SameIdentity, Bounds { wipes: true, ..losing.clone() }),
        case("acknowledges after a promise", Flaw::AcksAfterPromise, led(2)),
        case("vote ignores the viewstamp", Flaw::VoteIgnoresStamp, led(2)),
        case("state is read from non-voters", Flaw::StateFromOthers, led(2)),
        case("half counts as a majority", Flaw::HalfCounts, Bounds { replicas: 4, cohort: 4, ..fixed(2) }),
        case("lost table votes at once", Flaw::LostTableVotes, losing.clone()),
        case("regains by an installation", Flaw::RegainsByInstall, losing),
        case("changes without a joint cohort", Flaw::NoJoint, changing(2, 4, &[3])),
        case("joint counts the new side only", Flaw::JointNewSideOnly, changing(2, 4, &[3])),
        case("stable before joint is committed", Flaw::StableEarly, changing(2, 4, &[3])),
        case("one by one, not established", Flaw::SwitchesEarly, one_by_one),
        case(
            "reverts before it is established",
            Flaw::RevertsEarly,
            Bounds { begin: Some(abandoned()), candidates: vec![0], ..changing(3, 5, &[0, 3, 4]) },
        ),
    ]
}

/// Result of a case.
struct Explored {
    states: usize,
    depth: usize,
    exhausted: bool,
    found: Option<(&'static str, usize)>,
    unreached: Option<&'static str>,
}

fn explore(case: &Case, states_max: usize, threads: usize) -> Explored {
    let checker = case.bounds.clone().checker().threads(threads).target_state_count(states_max).spawn_bfs().join();
    let found = checker.discovery("safe").map(|path| {
        let violation = path.last_state().violation.expect("it is not safe");
        (violation, path.into_actions().len())
    });
    let wanted = if case.bounds.targets.is_empty() { "committed in the last epoch" } else { "the cohort has changed" };
    let unreached = checker.discovery(wanted).is_none().then_some(wanted);
    let exhausted = checker.state_count() < states_max;
    Explored { states: checker.unique_state_count(), depth: checker.max_depth(), exhausted, found, unreached }
}

/// Explores the union of claim entries, which is sound only if each leader writes what it found again. Returns whether it came out so.
fn explore_unions(states_max: usize, threads: usize, out: &mut dyn Write) -> io::Result<bool> {
    let mut well = true;
    for (name, stamps_again) in
        [("union of claim entries, stamped again", true), ("union of claim entries as they are", false)]
    {
        let begin = Instant::now();
        let model = Union { stamps_again }.checker().threads(threads).target_state_count(states_max).spawn_bfs().join();
        let found = model.discovery("one holder").map(|path| path.into_actions().len());
        let outcome = match found {
            Some(steps) if stamps_again => format!("WRONG: two holders in {steps} steps"),
            Some(steps) => format!("caught: two holders in {steps} steps"),
            None if stamps_again => "holds as far as explored".to_owned(),
            None => "SURVIVES".to_owned(),
        };
        well &= !outcome.starts_with(['W', 'S']);
        let (states, depth, seconds) = (model.unique_state_count(), model.max_depth(), begin.elapsed().as_secs_f64());
        writeln!(out, "{name:<36} {states:>10} {depth:>6} {seconds:>8.1}  {outcome}")?;
    }
    Ok(well)
}

/// Explores all cases. Returns whether all came out as they must.
pub fn run(states_max: usize, out: &mut dyn Write) -> io::Result<bool> {
    let mut well = true;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    writeln!(out, "{:<36} {:>10} {:>6} {:>8}  outcome", "world", "states", "depth", "seconds")?;
    for (case, sound) in sound().iter().map(|case| (case, true)).chain(flawed().iter().map(|case| (case, false))) {
        let begin = Instant::now();
        let explored = explore(case, states_max, threads);
        let outcome = match (sound, explored.found) {
            (true, Some((violation, steps))) => format!("WRONG: {violation} in {steps} steps"),
            (true, None) => match explored.unreached {
                Some(never) => format!("WRONG: never {never}"),
                None if explored.exhausted => "holds, all explored".to_owned(),
                None => "holds as far as explored".to_owned(),
            },
            (false, Some((violation, steps))) => format!("caught: {violation} in {steps} steps"),
            (false, None) => "SURVIVES".to_owned(),
        };
        well &= !outcome.starts_with(['W', 'S']);
        let (states, depth, seconds) = (explored.states, explored.depth, begin.elapsed().as_secs_f64());
        writeln!(out, "{:<36} {states:>10} {depth:>6} {seconds:>8.1}  {outcome}", case.name)?;
        out.flush()?;
    }
    Ok(explore_unions(states_max, threads, out)? && well)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With several threads, the order in which they come to the states differs from run to run.
    const THREADS: usize = 1;
    /// States that are explored of each sound world.
    const STATES: usize = 20_000;
    /// States within which each flaw is found.
    const FLAWED_STATES: usize = 300_000;
    /// States within which the union of claim entries is found to be wrong.
    const UNION_STATES: usize = 1_000_000;

    /// Goal: a change of the rules that the model shares with the protocol is noticed by every test run. Method: as many states as
    /// are explored in seconds; `cargo sim -- model` goes deeper.
    #[test]
    fn sound_worlds_are_safe_as_far_as_explored() {
        for case in sound() {
            let explored = explore(&case, STATES, THREADS);
            assert_eq!(explored.found, None, "{}", case.name);
            assert!(explored.exhausted || explored.states > STATES / 4, "{}: {} states", case.name, explored.states);
        }
    }

    #[test]
    fn each_flaw_is_caught() {
        for case in flawed() {
            let explored = explore(&case, FLAWED_STATES, THREADS);
            assert!(explored.found.is_some(), "{} survives {} states", case.name, explored.states);
        }
    }

    #[test]
    fn a_union_of_cells_is_sound_only_if_it_is_stamped_again() {
        let mut output = Vec::new();
        let well = explore_unions(UNION_STATES, THREADS, &mut output).expect("output goes to memory");
        assert!(well, "{}", String::from_utf8_lossy(&output));
    }
}
