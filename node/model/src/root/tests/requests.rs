//! Requests of operators: each rule on a small cluster, each refusal with its reason.

use super::*;

/// The only reason for which a request is refused.
fn refused(root: &Root, request: &Request, seen: &Seen) -> Reason {
    let Refusal(mut reasons) = root.admit(request, seen).expect_err("it is refused");
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    let reason = reasons.pop().expect("there is one");
    assert!(reason.to_string().len() > 10);
    reason
}

#[test]
fn a_node_is_added_under_the_next_number_and_once() {
    let mut root = root(3, 3, 3);
    let known = seen(&root, &[]);
    carry_out(&mut root, &Request::Add(candidate(7)), &known);
    assert_eq!((root.members[&3].node, root.members[&3].state), (NodeId(7), State::Joining));
    assert_eq!(root.admit(&Request::Add(candidate(7)), &known), Ok(Admission::Already(Some(3))));
    replan(&mut root);
    assert_eq!(root.members[&3].state, State::Up);
    assert!(root.layout.lists.iter().any(|list| list.contains(&3)));
    assert_eq!(root.admit(&Request::Add(candidate(7)), &known), Ok(Admission::Already(Some(3))));
}

#[test]
fn nodes_that_cannot_join_are_told_why() {
    let root = root(3, 3, 3);
    let known = seen(&root, &[2]);
    let refuse = |change: fn(&mut Candidate)| {
        let mut candidate = candidate(7);
        change(&mut candidate);
        refused(&root, &Request::Add(candidate), &known)
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
    let cloned = refused(&root, &Request::Add(known_at(1, "copy:1")), &known);
    assert_eq!(cloned, Reason::Cloned { number: 1, address: "n1:1".into() });
    let moved = refused(&root, &Request::Add(known_at(2, "elsewhere:1")), &known);
    assert_eq!(moved, Reason::Moved { number: 2, address: "n2:1".into() });
    let other = refused(&root, &Request::Add(Candidate { incarnation: 2, ..candidate(1) }), &known);
    assert_eq!(other, Reason::IdentityTaken { number: 1, name: "n1".into() });
}

#[test]
fn a_refusal_names_all_that_is_wrong() {
    let root = root(3, 3, 3);
    let wrong =
        Candidate { cluster: Some(ClusterId(1)), name: "n0".into(), address: "n1:1".into(), weight: 0, ..candidate(7) };
    let refusal = root.admit(&Request::Add(wrong), &seen(&root, &[])).expect_err("it is refused");
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
    let mut root = root(NODES_MAX as u16, 4, 3);
    let known = seen(&root, &[]);
    assert!(matches!(
        refused(&root, &Request::Add(candidate(999)), &known),
        Reason::Full { present: NODES_MAX, gone: 0 }
    ));
    root.next_number = u16::MAX;
    root.members.pop_last();
    assert_eq!(refused(&root, &Request::Add(candidate(999)), &known), Reason::NumbersUsedUp);
}

#[test]
fn a_member_is_drained_and_then_removed_and_never_comes_back() {
    let mut root = root(4, 1, 3);
    let known = seen(&root, &[]);
    assert!(matches!(refused(&root, &Request::Remove { number: 3 }, &known), Reason::StillHolds { number: 3, .. }));
    carry_out(&mut root, &Request::Drain { number: 3 }, &known);
    assert_eq!(root.admit(&Request::Drain { number: 3 }, &known), Ok(Admission::Already(Some(3))));
    replan(&mut root);
    // The layout no longer names the member, but cohorts have not moved yet.
    assert!(matches!(refused(&root, &Request::Remove { number: 3 }, &known), Reason::StillHolds { number: 3, .. }));
    let mut known = seen(&root, &[]);
    let cohort = known.cohorts.remove(&PartitionId(0)).expect("it is known");
    let unknown = refused(&root, &Request::Remove { number: 3 }, &known);
    assert_eq!(unknown, Reason::MayHold { number: 3, partitions: 1 });
    known.cohorts.insert(PartitionId(0), cohort);
    known.voters = BTreeSet::from([0, 3]);
    assert_eq!(refused(&root, &Request::Remove { number: 3 }, &known), Reason::Votes { number: 3 });
    known.voters = BTreeSet::from([0, 1]);
    carry_out(&mut root, &Request::Remove { number: 3 }, &known);
    assert_eq!(root.admit(&Request::Remove { number: 3 }, &known), Ok(Admission::Already(Some(3))));

    let gone = Reason::Gone { number: 3, name: "n3".into() };
    assert_eq!(refused(&root, &Request::Undrain { number: 3 }, &known), gone);
    assert_eq!(refused(&root, &Request::SetWeight { number: 3, weight: 2 }, &known), gone);
    assert_eq!(refused(&root, &Request::Add(candidate(3)), &known), Reason::WasMember { node: NodeId(3) });
    assert_eq!(root.forgettable(&known), Some(3));
    root.apply(&Operation::Forget { number: 3 }).expect("nothing names it");
    assert_eq!((root.validate(), root.forgettable(&known)), (Ok(()), None));
    assert_eq!(refused(&root, &Request::Add(candidate(3)), &known), Reason::WasMember { node: NodeId(3) });
    assert_eq!(root.admit(&Request::Remove { number: 3 }, &known), Ok(Admission::Already(Some(3))));
    let anew = Candidate { node: NodeId(77), ..candidate(3) };
    carry_out(&mut root, &Request::Add(anew), &known);
    assert_eq!(root.members[&4].name, "n3", "the name is free, the number is not");
}

#[test]
fn a_leaving_member_may_stay() {
    let mut root = root(4, 1, 3);
    let known = seen(&root, &[]);
    assert_eq!(root.admit(&Request::Undrain { number: 3 }, &known), Ok(Admission::Already(Some(3))));
    carry_out(&mut root, &Request::Drain { number: 3 }, &known);
    carry_out(&mut root, &Request::Undrain { number: 3 }, &known);
    let lists = root.layout.lists.clone();
    replan(&mut root);
    assert_eq!((root.members[&3].state, &root.layout.lists), (State::Up, &lists));
}

#[test]
fn a_member_that_holds_nothing_is_drained_before_it_is_removed() {
    let mut root = root(4, 1, 3);
    root.apply(&Operation::Add { number: 4, member: members::joining(&candidate(9)) }).expect("it fits");
    let known = seen(&root, &[]);
    assert_eq!(refused(&root, &Request::Remove { number: 4 }, &known), Reason::Alive { number: 4 });
}

#[test]
fn a_dead_member_is_removed_at_once() {
    let mut root = root(4, 1, 3);
    let known = seen(&root, &[3]);
    carry_out(&mut root, &Request::Remove { number: 3 }, &known);
    assert_eq!(root.unhealed(&known).collect::<Vec<u16>>(), [3]);
    replan(&mut root);
    assert!(!root.layout.lists.iter().flatten().any(|number| *number == 3));
    assert_eq!(root.unhealed(&known).collect::<Vec<u16>>(), [3], "cohorts still have it");
    assert_eq!(root.unhealed(&seen(&root, &[])).next(), None);
}

#[test]
fn as_many_members_stay_as_replicas_are_wanted() {
    let root = root(3, 3, 3);
    let too_few = Reason::TooFew { number: 1, left: 2, replicas: 3 };
    assert_eq!(refused(&root, &Request::Drain { number: 1 }, &seen(&root, &[])), too_few);
    assert_eq!(refused(&root, &Request::Remove { number: 1 }, &seen(&root, &[1])), too_few);
    let refusal = root.admit(&Request::Remove { number: 1 }, &seen(&root, &[])).expect_err("it is refused");
    assert!(refusal.0.contains(&too_few) && refusal.0.len() == 3, "{refusal:?}");
}

#[test]
fn the_last_voter_that_lives_stays() {
    let root = root(5, 5, 3);
    let mut known = seen(&root, &[0, 1]);
    known.voters = BTreeSet::from([0, 1]);
    assert_eq!(refused(&root, &Request::Remove { number: 1 }, &known), Reason::LastVoter { number: 1 });
    known.heard.insert(0);
    assert!(root.admit(&Request::Remove { number: 1 }, &known).is_ok());
}

#[test]
fn a_majority_is_not_lost_at_once() {
    let mut root = root(5, 5, 2);
    let mut known = seen(&root, &[2, 3, 4]);
    known.voters = BTreeSet::from([0, 1]);
    carry_out(&mut root, &Request::Remove { number: 2 }, &known);
    carry_out(&mut root, &Request::Remove { number: 3 }, &known);
    let majority = Reason::Majority { number: 4, gone: 2, members: 5 };
    assert_eq!(refused(&root, &Request::Remove { number: 4 }, &known), majority);
    let with = Request::Replace { number: 4, with: candidate(8) };
    assert_eq!(refused(&root, &with, &known), majority);
}

#[test]
fn a_member_is_replaced_in_one_layout() {
    for silent in [&[][..], &[2]] {
        let mut root = root(3, 3, 3);
        let known = seen(&root, silent);
        let with = Candidate { zone: "z2".into(), ..candidate(7) };
        let replace = Request::Replace { number: 2, with };
        let held = root.held_by(2, &known);
        carry_out(&mut root, &replace, &known);
        let state = if silent.is_empty() { State::Leaving } else { State::Gone };
        assert_eq!((root.members[&2].state, root.members[&3].state), (state, State::Joining));
        assert_eq!(root.admit(&replace, &known), Ok(Admission::Already(Some(3))));
        replan(&mut root);
        let moves = root.moves(&known.cohorts);
        assert_eq!((moves[&3].come as usize, moves[&2].go as usize), (held, held));
    }
}

#[test]
fn who_takes_a_dead_members_place_may_have_its_name_and_address() {
    let mut root = root(3, 3, 3);
    let with = Candidate { node: NodeId(7), ..candidate(2) };
    let replace = Request::Replace { number: 2, with };
    let refusal = root.admit(&replace, &seen(&root, &[])).expect_err("the other is alive");
    assert_eq!(refusal.0.len(), 2);
    let known = seen(&root, &[2]);
    carry_out(&mut root, &replace, &known);
    assert_eq!(
        refused(&root, &Request::Replace { number: 9, with: candidate(8) }, &seen(&root, &[])),
        Reason::Unknown { number: 9 }
    );
    let itself = refused(&root, &Request::Replace { number: 1, with: candidate(1) }, &seen(&root, &[]));
    assert_eq!(itself, Reason::IdentityTaken { number: 1, name: "n1".into() });
}

#[test]
fn a_member_added_before_may_take_the_place_of_another() {
    let mut root = root(3, 3, 3);
    let known = seen(&root, &[]);
    carry_out(&mut root, &Request::Add(candidate(7)), &known);
    carry_out(&mut root, &Request::Replace { number: 0, with: candidate(7) }, &known);
    assert_eq!(root.members[&0].state, State::Leaving);
}

#[test]
fn replicas_are_as_many_as_members_can_hold() {
    let mut root = root(4, 4, 3);
    let known = seen(&root, &[]);
    let set = |replicas| Request::SetReplicas { replicas };
    assert_eq!(refused(&root, &set(0), &known), Reason::Replicas { replicas: 0 });
    assert_eq!(refused(&root, &set(8), &known), Reason::Replicas { replicas: 8 });
    assert_eq!(refused(&root, &set(5), &known), Reason::MoreThanMembers { replicas: 5, members: 4 });
    assert_eq!(root.admit(&set(3), &known), Ok(Admission::Already(None)));
    carry_out(&mut root, &set(4), &known);
    replan(&mut root);
    assert!(root.layout.lists.iter().all(|list| list.len() == 4));
}

#[test]
fn weights_zones_addresses_and_settings_are_set() {
    let mut root = root(3, 3, 1);
    let known = seen(&root, &[]);
    let settings = Settings { heal_after_ms: None, ..Settings::default() };
    for request in [
        Request::SetWeight { number: 1, weight: 5 },
        Request::SetZone { number: 1, zone: "other".into() },
        Request::SetAddress { number: 1, address: "other:1".into() },
        Request::SetSettings(settings),
    ] {
        carry_out(&mut root, &request, &known);
        assert!(matches!(root.admit(&request, &known), Ok(Admission::Already(_))), "{request:?}");
    }
    assert_eq!(root.settings, settings);
    replan(&mut root);
    assert!(root.held_by(1, &Seen::default()) > 2 * root.held_by(0, &Seen::default()));
    let weight = Request::SetWeight { number: 1, weight: 2_000_000 };
    assert_eq!(refused(&root, &weight, &known), Reason::Weight { weight: 2_000_000 });
    let address = Request::SetAddress { number: 1, address: "n0:1".into() };
    assert_eq!(refused(&root, &address, &known), Reason::AddressTaken { address: "n0:1".into(), number: 0 });
    let unknown = Request::SetZone { number: 9, zone: String::new() };
    assert_eq!(refused(&root, &unknown, &known), Reason::Unknown { number: 9 });
    let hasty = Request::SetSettings(Settings { heal_after_ms: Some(5), ..settings });
    let hasty = refused(&root, &hasty, &known).to_string();
    assert!(hasty.starts_with("heal-after is ") && hasty.ends_with(", not 5ms"), "as it is typed: {hasty}");
    let moves = Request::SetSettings(Settings { moves_at_once: 0, ..settings });
    assert!(refused(&root, &moves, &known).to_string().starts_with("moves is 1 to "));
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
