//! Requests of operators: each rule on a small cluster, each refusal with its reason.

use super::*;

/// The only reason for which a request is refused.
fn refused(metadata: &Metadata, request: &Request, seen: &Seen) -> Reason {
    let Refusal(mut reasons) = metadata.admit(request, seen).expect_err("it is refused");
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    let reason = reasons.pop().expect("there is one");
    assert!(reason.to_string().len() > 10);
    reason
}

#[test]
fn a_node_is_added_under_the_next_number_and_once() {
    let mut metadata = metadata(3, 3, 3);
    let known = seen(&metadata, &[]);
    carry_out(&mut metadata, &Request::Add(candidate(7)), &known);
    assert_eq!((metadata.members[&3].node, metadata.members[&3].state), (NodeId(7), State::Joining));
    assert_eq!(metadata.admit(&Request::Add(candidate(7)), &known), Ok(Admission::Already(Some(3))));
    replan(&mut metadata);
    assert_eq!(metadata.members[&3].state, State::Up);
    assert!(metadata.layout.lists.iter().any(|list| list.contains(&3)));
    assert_eq!(metadata.admit(&Request::Add(candidate(7)), &known), Ok(Admission::Already(Some(3))));
}

#[test]
fn nodes_that_cannot_join_are_told_why() {
    let metadata = metadata(3, 3, 3);
    let known = seen(&metadata, &[2]);
    let refuse = |change: fn(&mut Candidate)| {
        let mut candidate = candidate(7);
        change(&mut candidate);
        refused(&metadata, &Request::Add(candidate), &known)
    };
    assert_eq!(refuse(|node| node.cluster = Some(ClusterId(1))), Reason::OtherCluster { theirs: ClusterId(1) });
    assert_eq!(refuse(|node| node.name = "n1".into()), Reason::NameTaken { name: "n1".into(), number: 1 });
    assert_eq!(refuse(|node| node.address = "n1:1".into()), Reason::AddressTaken { address: "n1:1".into(), number: 1 });
    assert_eq!(refuse(|node| node.name.clear()), Reason::Name { name: String::new() });
    assert_eq!(refuse(|node| node.zone = "\n".into()), Reason::Zone { zone: "\n".into() });
    assert_eq!(refuse(|node| node.weight = 0), Reason::Weight { weight: 0 });
    assert!(matches!(refuse(|node| node.name = "n".repeat(256)), Reason::TooLong { what: "name", bytes: 256, .. }));
    assert!(matches!(refuse(|node| node.zone = "n".repeat(256)), Reason::TooLong { what: "zone", .. }));
    assert!(matches!(refuse(|node| node.address = "n".repeat(300)), Reason::TooLong { what: "address", .. }));

    let known_at = |number: u16, address: &str| Candidate { address: address.into(), ..candidate(number) };
    let cloned = refused(&metadata, &Request::Add(known_at(1, "copy:1")), &known);
    assert_eq!(cloned, Reason::Cloned { number: 1, address: "n1:1".into() });
    let moved = refused(&metadata, &Request::Add(known_at(2, "elsewhere:1")), &known);
    assert_eq!(moved, Reason::Moved { number: 2, address: "n2:1".into() });
    let other = refused(&metadata, &Request::Add(Candidate { incarnation: 2, ..candidate(1) }), &known);
    assert_eq!(other, Reason::IdentityTaken { number: 1, name: "n1".into() });
}

#[test]
fn a_refusal_names_all_that_is_wrong() {
    let metadata = metadata(3, 3, 3);
    let wrong =
        Candidate { cluster: Some(ClusterId(1)), name: "n0".into(), address: "n1:1".into(), weight: 0, ..candidate(7) };
    let refusal = metadata.admit(&Request::Add(wrong), &seen(&metadata, &[])).expect_err("it is refused");
    assert_eq!(refusal.0.len(), 4);
    assert_eq!(refusal.text(|_| None).lines().count(), 4, "{refusal:?}");
}

#[test]
fn addresses_are_a_host_and_a_port() {
    for good in ["a:1", "a-b.c_d:65535", "10.0.0.1:7000", "[::1]:7", "localhost:4646"] {
        assert_eq!(members::check_address(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:+1",
        "::1:7",
        "[::1:7",
        "[a]:7",
        "0.0.0.0:1",
        "[::]:1",
        "a b:1",
        "a/b:1",
    ] {
        assert!(matches!(members::check_address(bad), Err(Reason::Address { .. })), "{bad}");
    }
}

#[test]
fn a_full_cluster_takes_nobody() {
    let mut metadata = metadata(NODES_MAX as u16, 4, 3);
    let known = seen(&metadata, &[]);
    assert!(matches!(
        refused(&metadata, &Request::Add(candidate(999)), &known),
        Reason::Full { present: NODES_MAX, gone: 0 }
    ));
    metadata.next_number = u16::MAX;
    metadata.members.pop_last();
    assert_eq!(refused(&metadata, &Request::Add(candidate(999)), &known), Reason::NumbersUsedUp);
}

#[test]
fn a_member_is_drained_and_then_removed_and_never_comes_back() {
    let mut metadata = metadata(4, 1, 3);
    let known = seen(&metadata, &[]);
    assert!(matches!(refused(&metadata, &Request::Remove { number: 3 }, &known), Reason::StillHolds { number: 3, .. }));
    carry_out(&mut metadata, &Request::Drain { number: 3 }, &known);
    assert_eq!(metadata.admit(&Request::Drain { number: 3 }, &known), Ok(Admission::Already(Some(3))));
    replan(&mut metadata);
    // The layout no longer names the member, but cohorts have not moved yet.
    assert!(matches!(refused(&metadata, &Request::Remove { number: 3 }, &known), Reason::StillHolds { number: 3, .. }));
    let mut known = seen(&metadata, &[]);
    let cohort = known.cohorts.remove(&PartitionId(0)).expect("it is known");
    let unknown = refused(&metadata, &Request::Remove { number: 3 }, &known);
    assert_eq!(unknown, Reason::MayHold { number: 3, partitions: 1 });
    known.cohorts.insert(PartitionId(0), cohort);
    known.voters = BTreeSet::from([0, 3]);
    assert_eq!(refused(&metadata, &Request::Remove { number: 3 }, &known), Reason::Votes { number: 3 });
    known.voters = BTreeSet::from([0, 1]);
    carry_out(&mut metadata, &Request::Remove { number: 3 }, &known);
    assert_eq!(metadata.admit(&Request::Remove { number: 3 }, &known), Ok(Admission::Already(Some(3))));

    let gone = Reason::Gone { number: 3, name: "n3".into() };
    assert_eq!(refused(&metadata, &Request::Undrain { number: 3 }, &known), gone);
    assert_eq!(refused(&metadata, &Request::SetWeight { number: 3, weight: 2 }, &known), gone);
    assert_eq!(refused(&metadata, &Request::Add(candidate(3)), &known), Reason::WasMember { node: NodeId(3) });
    assert_eq!(metadata.forgettable(&known), Some(3));
    metadata.apply(&Operation::Forget { number: 3 }).expect("nothing names it");
    assert_eq!((metadata.validate(), metadata.forgettable(&known)), (Ok(()), None));
    assert_eq!(refused(&metadata, &Request::Add(candidate(3)), &known), Reason::WasMember { node: NodeId(3) });
    assert_eq!(metadata.admit(&Request::Remove { number: 3 }, &known), Ok(Admission::Already(Some(3))));
    let anew = Candidate { node: NodeId(77), ..candidate(3) };
    carry_out(&mut metadata, &Request::Add(anew), &known);
    assert_eq!(metadata.members[&4].name, "n3", "the name is free, the number is not");
}

#[test]
fn a_leaving_member_may_stay() {
    let mut metadata = metadata(4, 1, 3);
    let known = seen(&metadata, &[]);
    assert_eq!(metadata.admit(&Request::Undrain { number: 3 }, &known), Ok(Admission::Already(Some(3))));
    carry_out(&mut metadata, &Request::Drain { number: 3 }, &known);
    carry_out(&mut metadata, &Request::Undrain { number: 3 }, &known);
    let lists = metadata.layout.lists.clone();
    replan(&mut metadata);
    assert_eq!((metadata.members[&3].state, &metadata.layout.lists), (State::Up, &lists));
}

#[test]
fn a_member_that_holds_nothing_is_drained_before_it_is_removed() {
    let mut metadata = metadata(4, 1, 3);
    metadata.apply(&Operation::Add { number: 4, member: members::joining(&candidate(9)) }).expect("it fits");
    let known = seen(&metadata, &[]);
    assert_eq!(refused(&metadata, &Request::Remove { number: 4 }, &known), Reason::Alive { number: 4 });
}

#[test]
fn a_dead_member_is_removed_at_once() {
    let mut metadata = metadata(4, 1, 3);
    let known = seen(&metadata, &[3]);
    carry_out(&mut metadata, &Request::Remove { number: 3 }, &known);
    assert_eq!(metadata.unhealed(&known).collect::<Vec<u16>>(), [3]);
    replan(&mut metadata);
    assert!(!metadata.layout.lists.iter().flatten().any(|number| *number == 3));
    assert_eq!(metadata.unhealed(&known).collect::<Vec<u16>>(), [3], "cohorts still have it");
    assert_eq!(metadata.unhealed(&seen(&metadata, &[])).next(), None);
}

#[test]
fn as_many_members_stay_as_replicas_are_wanted() {
    let metadata = metadata(3, 3, 3);
    let too_few = Reason::TooFew { number: 1, left: 2, replicas: 3 };
    assert_eq!(refused(&metadata, &Request::Drain { number: 1 }, &seen(&metadata, &[])), too_few);
    assert_eq!(refused(&metadata, &Request::Remove { number: 1 }, &seen(&metadata, &[1])), too_few);
    let refusal = metadata.admit(&Request::Remove { number: 1 }, &seen(&metadata, &[])).expect_err("it is refused");
    assert!(refusal.0.contains(&too_few) && refusal.0.len() == 3, "{refusal:?}");
}

#[test]
fn the_last_voter_that_lives_stays() {
    let metadata = metadata(5, 5, 3);
    let mut known = seen(&metadata, &[0, 1]);
    known.voters = BTreeSet::from([0, 1]);
    assert_eq!(refused(&metadata, &Request::Remove { number: 1 }, &known), Reason::LastVoter { number: 1 });
    known.heard.insert(0);
    assert!(metadata.admit(&Request::Remove { number: 1 }, &known).is_ok());
}

#[test]
fn a_majority_is_not_lost_at_once() {
    let mut metadata = metadata(5, 5, 2);
    let mut known = seen(&metadata, &[2, 3, 4]);
    known.voters = BTreeSet::from([0, 1]);
    carry_out(&mut metadata, &Request::Remove { number: 2 }, &known);
    carry_out(&mut metadata, &Request::Remove { number: 3 }, &known);
    let majority = Reason::Majority { number: 4, gone: 2, members: 5 };
    assert_eq!(refused(&metadata, &Request::Remove { number: 4 }, &known), majority);
    let with = Request::Replace { number: 4, with: candidate(8) };
    assert_eq!(refused(&metadata, &with, &known), majority);
}

#[test]
fn a_member_is_replaced_in_one_layout() {
    for silent in [&[][..], &[2]] {
        let mut metadata = metadata(3, 3, 3);
        let known = seen(&metadata, silent);
        let with = Candidate { zone: "z2".into(), ..candidate(7) };
        let replace = Request::Replace { number: 2, with };
        let held = metadata.held_by(2, &known);
        carry_out(&mut metadata, &replace, &known);
        let state = if silent.is_empty() { State::Leaving } else { State::Gone };
        assert_eq!((metadata.members[&2].state, metadata.members[&3].state), (state, State::Joining));
        assert_eq!(metadata.admit(&replace, &known), Ok(Admission::Already(Some(3))));
        replan(&mut metadata);
        let moves = metadata.moves(&known.cohorts);
        assert_eq!((moves[&3].come as usize, moves[&2].go as usize), (held, held));
    }
}

#[test]
fn who_takes_a_dead_members_place_may_have_its_name_and_address() {
    let mut metadata = metadata(3, 3, 3);
    let with = Candidate { node: NodeId(7), ..candidate(2) };
    let replace = Request::Replace { number: 2, with };
    let refusal = metadata.admit(&replace, &seen(&metadata, &[])).expect_err("the other is alive");
    assert_eq!(refusal.0.len(), 2);
    let known = seen(&metadata, &[2]);
    carry_out(&mut metadata, &replace, &known);
    assert_eq!(
        refused(&metadata, &Request::Replace { number: 9, with: candidate(8) }, &seen(&metadata, &[])),
        Reason::Unknown { number: 9 }
    );
    let itself = refused(&metadata, &Request::Replace { number: 1, with: candidate(1) }, &seen(&metadata, &[]));
    assert_eq!(itself, Reason::IdentityTaken { number: 1, name: "n1".into() });
}

#[test]
fn a_member_added_before_may_take_the_place_of_another() {
    let mut metadata = metadata(3, 3, 3);
    let known = seen(&metadata, &[]);
    carry_out(&mut metadata, &Request::Add(candidate(7)), &known);
    carry_out(&mut metadata, &Request::Replace { number: 0, with: candidate(7) }, &known);
    assert_eq!(metadata.members[&0].state, State::Leaving);
}

#[test]
fn replicas_are_as_many_as_members_can_hold() {
    let mut metadata = metadata(4, 4, 3);
    let known = seen(&metadata, &[]);
    let set = |replicas| Request::SetReplicas { replicas };
    assert_eq!(refused(&metadata, &set(0), &known), Reason::Replicas { replicas: 0 });
    assert_eq!(refused(&metadata, &set(8), &known), Reason::Replicas { replicas: 8 });
    assert_eq!(refused(&metadata, &set(5), &known), Reason::MoreThanMembers { replicas: 5, members: 4 });
    assert_eq!(metadata.admit(&set(3), &known), Ok(Admission::Already(None)));
    carry_out(&mut metadata, &set(4), &known);
    replan(&mut metadata);
    assert!(metadata.layout.lists.iter().all(|list| list.len() == 4));
}

#[test]
fn weights_zones_addresses_and_settings_are_set() {
    let mut metadata = metadata(3, 3, 1);
    let known = seen(&metadata, &[]);
    let settings = Settings { heal_after_ms: None, ..Settings::default() };
    for request in [
        Request::SetWeight { number: 1, weight: 5 },
        Request::SetZone { number: 1, zone: "other".into() },
        Request::SetAddress { number: 1, address: "other:1".into() },
        Request::SetSettings(settings),
    ] {
        carry_out(&mut metadata, &request, &known);
        assert!(matches!(metadata.admit(&request, &known), Ok(Admission::Already(_))), "{request:?}");
    }
    assert_eq!(metadata.settings, settings);
    replan(&mut metadata);
    assert!(metadata.held_by(1, &Seen::default()) > 2 * metadata.held_by(0, &Seen::default()));
    let weight = Request::SetWeight { number: 1, weight: 2_000_000 };
    assert_eq!(refused(&metadata, &weight, &known), Reason::Weight { weight: 2_000_000 });
    let address = Request::SetAddress { number: 1, address: "n0:1".into() };
    assert_eq!(refused(&metadata, &address, &known), Reason::AddressTaken { address: "n0:1".into(), number: 0 });
    let unknown = Request::SetZone { number: 9, zone: String::new() };
    assert_eq!(refused(&metadata, &unknown, &known), Reason::Unknown { number: 9 });
    let hasty = Request::SetSettings(Settings { heal_after_ms: Some(5), ..settings });
    let hasty = refused(&metadata, &hasty, &known).to_string();
    assert!(hasty.starts_with("heal-after is ") && hasty.ends_with(", not 5ms"), "as it is typed: {hasty}");
    let moves = Request::SetSettings(Settings { moves_at_once: 0, ..settings });
    assert!(refused(&metadata, &moves, &known).to_string().starts_with("moves is 1 to "));
}

/// Goal: a refusal names members by their names, and by their numbers only where they have no name.
#[test]
fn a_refusal_names_the_members() {
    let refusal = Refusal(vec![
        Reason::StillHolds { number: 1, partitions: 2 },
        Reason::TooFew { number: 1, left: 2, replicas: 3 },
        Reason::Alive { number: 12 },
        Reason::Unknown { number: 1 },
    ]);
    let text = refusal.text(|number| (number == 1).then(|| "n2".to_owned()));
    let begins =
        ["n2 is alive and holds 2 partitions", "without n2, 2 members", "member 12 is alive", "there is no member 1"];
    assert!(text.lines().zip(begins).all(|(line, begin)| line.starts_with(begin)), "{text}");
}
