//! The order of moves, members declared gone, and the choice of voters.

use super::*;

fn add(metadata: &mut Metadata, number: u16, zone: &str) {
    let candidate = Candidate { zone: zone.into(), ..candidate(number) };
    let known = seen(metadata, &[]);
    carry_out(metadata, &Request::Add(candidate), &known);
}

#[test]
fn progress_tells_what_comes_goes_and_stays() {
    let mut metadata = metadata(4, 1, 3);
    let before = seen(&metadata, &[]);
    carry_out(&mut metadata, &Request::Drain { number: 3 }, &before);
    replan(&mut metadata);
    let moves = metadata.moves(&before.cohorts);
    assert_eq!(moves[&3], Share { come: 0, go: 12, stay: 0 });
    assert_eq!(moves.values().map(|progress| progress.come).sum::<u32>(), 12);
    let settled = metadata.moves(&seen(&metadata, &[]).cohorts);
    assert!(settled.values().all(|progress| (progress.come, progress.go) == (0, 0)));
    assert!(metadata.moves(&BTreeMap::new()).values().all(|progress| *progress == Share::default()));
}

#[test]
fn few_partitions_move_at_once_and_few_of_one_member() {
    let mut metadata = metadata(6, 1, 3);
    let known = seen(&metadata, &[]);
    metadata.settings = Settings { moves_at_once: 3, moves_at_once_each: 2, ..metadata.settings };
    add(&mut metadata, 7, "z0");
    replan(&mut metadata);
    let mut now = Seen { heard: seen(&metadata, &[]).heard, ..known };
    let first = metadata.next_moves(&now, &BTreeSet::new());
    assert_eq!(first.len(), 2, "all come to one member, two at once");
    let under_way: BTreeSet<PartitionId> = first.iter().map(|step| step.partition).collect();
    assert_eq!(under_way.len(), 2);
    assert_eq!(metadata.next_moves(&now, &under_way), []);
    for step in &first {
        now.cohorts.insert(step.partition, step.list.clone());
    }
    let second = metadata.next_moves(&now, &BTreeSet::new());
    assert!(second.len() == 2 && !second.iter().any(|step| under_way.contains(&step.partition)));
    metadata.settings.moves_at_once_each = 100;
    assert_eq!(metadata.next_moves(&now, &BTreeSet::new()).len(), 3, "three in the whole cluster");
    now.heard.remove(&6);
    assert_eq!(metadata.next_moves(&now, &BTreeSet::new()).len(), 3, "a list with a majority alive may begin");
    now.heard = BTreeSet::from([0]);
    assert_eq!(metadata.next_moves(&now, &BTreeSet::new()), [], "no majority of any cohort lives");
}

#[test]
fn partitions_are_healed_before_others_move() {
    let mut metadata = metadata(6, 1, 3);
    metadata.settings = Settings { moves_at_once: 100, moves_at_once_each: 100, ..metadata.settings };
    let known = seen(&metadata, &[0]);
    carry_out(&mut metadata, &Request::Remove { number: 0 }, &known);
    carry_out(&mut metadata, &Request::Drain { number: 5 }, &known);
    add(&mut metadata, 7, "z0");
    replan(&mut metadata);
    let moves = metadata.next_moves(&Seen { heard: seen(&metadata, &[]).heard, ..known.clone() }, &BTreeSet::new());
    let urgency = |step: &Move| match &known.cohorts[&step.partition] {
        cohort if cohort.contains(&0) => 0,
        cohort if cohort.contains(&5) => 1,
        _ => 2,
    };
    assert!(moves.is_sorted_by_key(urgency));
    assert_eq!(
        moves.iter().map(|step| step.heals).collect::<Vec<_>>(),
        moves.iter().map(|step| urgency(step) == 0).collect::<Vec<_>>()
    );
    assert_eq!(moves.iter().filter(|step| step.heals).count(), metadata.held_by(0, &known));
}

#[test]
fn everything_moves_in_the_end() {
    let mut metadata = metadata(5, 5, 3);
    let mut known = seen(&metadata, &[]);
    add(&mut metadata, 7, "z5");
    carry_out(&mut metadata, &Request::Drain { number: 0 }, &known);
    replan(&mut metadata);
    known.heard = seen(&metadata, &[]).heard;
    let mut steps = 0;
    loop {
        let moves = metadata.next_moves(&known, &BTreeSet::new());
        if moves.is_empty() {
            break;
        }
        assert!(moves.len() <= metadata.settings.moves_at_once as usize);
        known.cohorts.extend(moves.into_iter().map(|step| (step.partition, step.list)));
        steps += 1;
        assert!(steps < 100);
    }
    assert!(metadata.moves(&known.cohorts).values().all(|progress| (progress.come, progress.go) == (0, 0)));
    carry_out(&mut metadata, &Request::Remove { number: 0 }, &Seen { voters: BTreeSet::from([1, 2]), ..known });
}

const LONG_MS: u64 = 20 * 60_000;

/// Silence of some members; all others were just heard.
fn silent(metadata: &Metadata, members: &[(u16, u64)]) -> (BTreeMap<u16, u64>, Seen) {
    let mut silent_ms: BTreeMap<u16, u64> = metadata.present().map(|(number, _)| (number, 50)).collect();
    silent_ms.extend(members.iter().copied());
    let numbers: Vec<u16> = members.iter().map(|(number, _)| *number).collect();
    (silent_ms, seen(metadata, &numbers))
}

#[test]
fn one_member_is_declared_gone_after_a_long_silence() {
    let metadata = metadata(6, 3, 3);
    let heal = |members: &[(u16, u64)]| {
        let (silent_ms, seen) = silent(&metadata, members);
        metadata.heal(&silent_ms, &seen)
    };
    assert_eq!(heal(&[]), None);
    assert_eq!(heal(&[(4, LONG_MS)]), Some(4));
    assert_eq!(heal(&[(4, metadata.settings.heal_after_ms.unwrap() - 1)]), None);
    assert_eq!(heal(&[(4, LONG_MS), (5, LONG_MS + 1)]), Some(5), "one, and the one that was silent for longest");
    assert_eq!(heal(&[(4, LONG_MS), (5, LONG_MS)]), Some(4));
    assert_eq!(heal(&[(3, 11_000), (4, LONG_MS), (5, 11_000)]), None, "half of them are not visible");
    let (mut silent_ms, seen) = silent(&metadata, &[(4, LONG_MS)]);
    silent_ms.retain(|number, _| *number > 2);
    assert_eq!(metadata.heal(&silent_ms, &seen), None, "who was never heard is not visible");
}

#[test]
fn nobody_is_declared_gone_while_another_is_not_healed() {
    let mut metadata = metadata(7, 1, 3);
    let (silent_ms, seen_now) = silent(&metadata, &[(4, LONG_MS), (5, LONG_MS)]);
    let first = metadata.heal(&silent_ms, &seen_now).expect("one is gone");
    metadata.apply(&Operation::Remove { number: first }).expect("it fits");
    assert_eq!(metadata.heal(&silent_ms, &seen_now), None);
    replan(&mut metadata);
    assert_eq!(metadata.heal(&silent_ms, &seen_now), None, "cohorts still name it");
    let (_, mut healed) = silent(&metadata, &[(5, LONG_MS)]);
    assert_eq!(metadata.heal(&silent_ms, &healed), Some(5));
    healed.cohorts.pop_last();
    assert_eq!(metadata.heal(&silent_ms, &healed), None, "a cohort that is not known may name it");
}

#[test]
fn who_is_to_take_over_and_is_silent_too_is_declared_gone() {
    let mut metadata = metadata(7, 1, 3);
    let late = [(4, LONG_MS + 1), (5, LONG_MS)];
    let (silent_ms, before) = silent(&metadata, &late);
    assert_eq!(metadata.heal(&silent_ms, &before), Some(4));
    metadata.apply(&Operation::Remove { number: 4 }).expect("it fits");
    let planned = metadata.plan().expect("a member is gone");
    metadata.apply(&Operation::Layout(planned)).expect("it fits");
    // Moves to other members have ended; moves to member 5, which is silent too, cannot.
    let mut stuck = Seen { voters: BTreeSet::from([0, 1, 2]), ..before.clone() };
    for (partition, list) in (0..).map(PartitionId).zip(&metadata.layout.lists) {
        let old = stuck.cohorts.insert(partition, list.clone()).expect("it was known");
        if old.contains(&4) && list.contains(&5) && !old.contains(&5) {
            stuck.cohorts.insert(partition, old);
        }
    }
    assert!(metadata.held_by(4, &stuck) > 0, "something waits");
    assert_eq!(metadata.heal(&silent_ms, &stuck), Some(5));
    let not_yet = |number: u16, silent_ms: &BTreeMap<u16, u64>| {
        BTreeMap::from_iter(silent_ms.iter().map(|(at, ms)| (*at, if *at == number { 9_000 } else { *ms })))
    };
    assert_eq!(metadata.heal(&not_yet(5, &silent_ms), &stuck), None, "it may come back");
    assert_eq!(metadata.heal(&silent_ms, &Seen { voters: BTreeSet::from([0, 1, 4]), ..stuck.clone() }), None);
    // A partition that has lost its majority waits for its members to come back, and holds up nothing else.
    let mut lost = stuck.clone();
    let place = *lost.cohorts.iter().find(|(_, cohort)| !cohort.contains(&4)).expect("of seven").0;
    lost.cohorts.insert(place, vec![4, 5, 0]);
    assert_eq!(metadata.heal(&silent_ms, &lost), Some(5));
    // If one of the lists waits only for its own move, healing waits for that.
    let (partition, _) =
        before.cohorts.iter().find(|(_, old)| old.contains(&4) && !old.contains(&5)).expect("of seven");
    let mut lists = metadata.layout.lists.clone();
    lists[usize::from(partition.0)].retain(|number| *number != 5);
    let moving = Metadata { layout: Layout { lists, ..metadata.layout.clone() }, ..metadata.clone() };
    let mut seen = stuck.clone();
    seen.cohorts.insert(*partition, before.cohorts[partition].clone());
    assert_eq!(moving.heal(&silent_ms, &seen), None);
}

#[test]
fn who_cannot_be_missed_is_not_declared_gone() {
    let mut metadata = metadata(3, 3, 3);
    let (silent_ms, seen) = silent(&metadata, &[(2, LONG_MS)]);
    assert_eq!(metadata.heal(&silent_ms, &seen), None, "two members do not hold three replicas");
    metadata.replicas = 2;
    assert_eq!(metadata.heal(&silent_ms, &seen), Some(2));
    metadata.settings.heal_after_ms = None;
    assert_eq!(metadata.heal(&silent_ms, &seen), None, "operators decide");
}

#[test]
fn voters_are_few_and_in_different_zones() {
    for (count, wanted) in [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)] {
        let metadata = metadata(count, 3, 1);
        let voters = metadata.voters_wanted(&seen(&metadata, &[]));
        assert_eq!(voters.len(), wanted, "{count} members");
        let zones: BTreeSet<&str> = voters.iter().map(|number| metadata.members[number].zone.as_str()).collect();
        assert_eq!(zones.len(), wanted.min(3).min(usize::from(count)));
    }
}

#[test]
fn who_leaves_votes_until_enough_others_are_heard() {
    let mut metadata = metadata(5, 5, 3);
    let mut known = seen(&metadata, &[]);
    known.voters = BTreeSet::from([0, 1, 2]);
    carry_out(&mut metadata, &Request::Drain { number: 2 }, &known);
    known.heard = BTreeSet::from([0, 1, 2]);
    assert_eq!(metadata.voters_wanted(&known), [0, 1, 2], "two would not survive the loss of a disk");
    known.heard.insert(4);
    assert_eq!(metadata.voters_wanted(&known), [0, 1, 4]);
}

#[test]
fn voters_change_only_when_they_must() {
    let mut metadata = metadata(7, 7, 3);
    let mut known = seen(&metadata, &[]);
    known.voters = BTreeSet::from([0, 2, 4, 5, 6]);
    assert_eq!(metadata.voters_wanted(&known), [0, 2, 4, 5, 6]);
    known.heard.remove(&2);
    assert_eq!(metadata.voters_wanted(&known), [0, 2, 4, 5, 6], "the silent keep their vote");
    carry_out(&mut metadata, &Request::Remove { number: 2 }, &known);
    known.heard.remove(&1);
    assert_eq!(metadata.voters_wanted(&known), [0, 3, 4, 5, 6], "and get none");
    carry_out(&mut metadata, &Request::Drain { number: 0 }, &known);
    known.heard.insert(1);
    assert_eq!(metadata.voters_wanted(&known), [1, 3, 4, 5, 6]);
}
