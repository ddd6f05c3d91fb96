//! Requests to the metadata group and to new nodes, the end of a change, its display and its refusals.

mod addresses;
mod ailing;
mod recovery;
mod widths;

use super::survey::Survey;
use super::{ClusterVerb, SetVerb};
use crate::repl::CommandLine;
use crate::tests::interrupted::run_until_interrupted;
use crate::tests::{Fake, Outcome, Written, partitions, status};
use crate::{Call, Exit, Input, Output, Place, Runner};
use clap::Parser as _;
use norn_wire::membership::{
    Candidate, Changed, ClusterChange, ClusterView, Member, MemberState, Membership, Roster, Settings, Share,
};
use norn_wire::response::{Genesis, Identity, PartitionView};
use norn_wire::{ClusterId, Error, ErrorCode, NodeId, PartitionId, Request, Response};
use std::collections::BTreeMap;
use std::time::Duration;

type Answers = Vec<Result<Response, Error>>;

const CLUSTER: ClusterId = ClusterId(9);

/// Returns an id of 32 digits; ids differ in the first ones.
fn node(number: u16) -> NodeId {
    NodeId(u128::from(number) << 120 | 0xabc << 100)
}

fn nodes(numbers: &[u16]) -> Vec<NodeId> {
    numbers.iter().map(|number| node(*number)).collect()
}

fn member(number: u16, state: MemberState) -> Member {
    Member {
        node: node(number),
        incarnation: 7,
        name: format!("n{number}"),
        address: format!("10.0.0.{number}:7400"),
        zone: "a".into(),
        weight: 1,
        state,
    }
}

/// Returns a cluster of `count` nodes, numbered from 1, all alive; the first three vote and each holds four of four replicas.
pub(crate) fn view(count: u16) -> ClusterView {
    let members: BTreeMap<u16, Member> = (1..=count).map(|number| (number, member(number, MemberState::Up))).collect();
    let shares = (1..=count).map(|number| (number, Share { come: 0, go: 0, stay: 4 })).collect();
    ClusterView {
        cluster: CLUSTER,
        name: "dev".into(),
        roster: Roster { version: 5, members, ..Roster::default() },
        voters: nodes(&[1, 2, 3]),
        leader: node(2),
        heard: (1..=count).map(node).collect(),
        replicas: 2,
        settings: Settings::default(),
        layout: 3,
        stale: false,
        shares,
        moving: Vec::new(),
        open: 0,
        unknown: 0,
    }
}

fn partition(number: u16, cohort: &[u16], next: &[u16], leaving: &[u16]) -> PartitionView {
    let template = partitions().remove(1);
    PartitionView {
        partition: PartitionId(number),
        cohort: nodes(cohort),
        next: nodes(next),
        leaving: nodes(leaving),
        leader: cohort.first().map(|number| node(*number)),
        ..template
    }
}

fn survey(count: u16, partitions: Vec<PartitionView>) -> Survey {
    Survey { view: view(count), partitions }
}

fn settled(count: u16) -> Survey {
    survey(count, vec![partition(0, &[1, 2], &[], &[]), partition(1, &[2, 3], &[], &[])])
}

fn look(survey: &Survey) -> Answers {
    vec![Ok(Response::Cluster(Box::new(survey.view.clone()))), Ok(Response::Partitions(survey.partitions.clone()))]
}

fn changed(view: ClusterView) -> Changed {
    Changed { already: false, version: view.roster.version, view: Box::new(view), membership: None }
}

fn answer(changed: Changed) -> Answers {
    vec![Ok(Response::Changed(Box::new(changed)))]
}

struct Ran {
    outcome: Outcome,
    asked: Vec<(String, Request)>,
}

async fn run_all(line: &str, answers: Answers) -> Ran {
    let (results, notes) = (Written::default(), Written::default());
    let output = Output::new(results.clone(), notes.clone(), line.contains("--json"));
    let fake = Fake::new(answers);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
    let command = CommandLine::try_parse_from(line.split(' ')).expect(line);
    let exit = runner.run(command.verb).await;
    let outcome = Outcome { exit, printed: results.text(), noted: notes.text(), calls: fake.calls() };
    Ran { outcome, asked: fake.asked() }
}

async fn run(line: &str, answers: Answers) -> Outcome {
    run_all(line, answers).await.outcome
}

/// Returns the changes requested of the metadata group, and whether as a dry run.
fn changes(outcome: &Outcome) -> Vec<(ClusterChange, bool)> {
    let of = |(call, _): &(Call, _)| match call {
        Call::Request(Request::Change { change, dry_run }) => Some(((**change).clone(), *dry_run)),
        _ => None,
    };
    outcome.calls.iter().filter_map(of).collect()
}

/// Returns a cluster in which the fourth node is draining.
fn draining() -> Survey {
    let mut survey = settled(4);
    survey.view.roster.version = 6;
    survey.view.roster.members.insert(4, member(4, MemberState::Leaving));
    survey
}

#[tokio::test]
async fn a_drain_is_followed_until_nothing_is_open() {
    let mut answers = look(&settled(4));
    let mut now = draining();
    now.view.stale = true;
    answers.extend(answer(changed(now.view.clone())));
    // The answering node may not know of the change yet; nothing is open before the layout is planned.
    answers.extend(look(&settled(4)));
    answers.extend(look(&now));
    now.view.stale = false;
    (now.view.open, now.view.moving) = (1, vec![PartitionId(1)]);
    answers.extend(look(&now));
    answers.push(Err(Error::unavailable("nobody is there for a moment")));
    now.view.open = 0;
    now.view.unknown = 1;
    answers.extend(look(&now));
    now.view.unknown = 0;
    // It is no member of a partition any more, and has not handed over all its facts.
    now.partitions[1] = partition(1, &[2, 3], &[], &[4]);
    answers.extend(look(&now));
    now.partitions[1] = partition(1, &[2, 3], &[], &[]);
    answers.extend(look(&now));
    let outcome = run("cluster drain n4", answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    assert!(outcome.printed.starts_with("n4 leaves\nn4 holds nothing any more; `norn cluster remove n4`"));
    assert_eq!(changes(&outcome), [(ClusterChange::Drain { node: node(4) }, false)]);
    // Two for the first look, the change, and all answers after it.
    assert_eq!(outcome.calls.len(), 3 + 6 * 2 + 1);
}

#[tokio::test]
async fn what_only_the_dead_have_is_not_waited_for() {
    let mut now = draining();
    now.partitions[1] = partition(1, &[2, 3], &[], &[4]);
    let mut answers = look(&now);
    answers.extend(answer(changed(now.view.clone())));
    now.view.heard = nodes(&[1, 2, 3]);
    answers.extend(look(&now));
    let outcome = run("cluster drain n4 --timeout 1ms", answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
}

#[tokio::test]
async fn a_change_that_comes_no_further_says_why() {
    let mut now = draining();
    now.view.heard = nodes(&[1, 2, 4]);
    now.view.open = 1;
    now.view.shares.insert(3, Share { come: 1, go: 0, stay: 4 });
    now.partitions[1] = partition(1, &[2, 4], &[2, 3], &[]);
    let mut answers = look(&now);
    answers.extend(answer(changed(now.view.clone())));
    (0..4).for_each(|_| answers.extend(look(&now)));
    let outcome = run("cluster drain n4 --timeout 150ms --json", answers).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
    for reason in ["1 partition to go", "n3 is silent and shall take 1", "partition 1 moves to n2 n3", "\"later\""] {
        assert!(outcome.printed.contains(reason), "{reason}: {}", outcome.printed);
    }
    // No node answers for the metadata group.
    let mut answers = look(&settled(4));
    answers.extend(answer(changed(draining().view)));
    let outcome = run("cluster drain n4 --timeout 150ms", answers).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
    assert!(outcome.noted.contains("the root has no leader that can be reached"), "{}", outcome.noted);
    let (_, timeout) = outcome.calls.last().expect("it looked");
    assert_eq!(
        *timeout,
        Some(Duration::from_secs(2)),
        "a look takes no longer than is waited for, if it has some time at all"
    );
}

#[tokio::test]
async fn each_verb_asks_the_root_for_its_change() {
    let id = node(4).to_string();
    let by_id = format!("cluster undrain {}", &id[..4]);
    let settings = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        ClusterChange::Settings { settings }
    };
    let four = node(4);
    let cases = [
        ("cluster drain n4 --no-wait", ClusterChange::Drain { node: four }),
        (&by_id, ClusterChange::Undrain { node: four }),
        ("cluster remove n4", ClusterChange::Remove { node: four }),
        ("cluster rebalance", ClusterChange::Rebalance),
        ("cluster set weight n4 3", ClusterChange::Weight { node: four, weight: 3 }),
        ("cluster set zone n4 b", ClusterChange::Zone { node: four, zone: "b".into() }),
        ("cluster set address n4 [::1]:7400", ClusterChange::Address { node: four, address: "[::1]:7400".into() }),
        ("cluster set replicas 3", ClusterChange::Replicas { replicas: 3 }),
        ("cluster set heal-after 1h", settings(|settings| settings.heal_after_ms = Some(3_600_000))),
        ("cluster set heal-after never", settings(|settings| settings.heal_after_ms = None)),
        ("cluster set moves 4", settings(|settings| settings.moves_at_once = 4)),
        ("cluster set moves-each 1", settings(|settings| settings.moves_at_once_each = 1)),
    ];
    for (line, change) in cases {
        let looks_first = !line.contains("rebalance") && !line.contains("replicas");
        let mut answers = if looks_first { look(&settled(4)) } else { Vec::new() };
        if line.contains("address") {
            answers.push(identity(4, Some(CLUSTER), true));
        }
        answers.extend(answer(changed(view(4))));
        answers.extend(look(&settled(4)));
        let outcome = run(line, answers).await;
        assert_eq!(outcome.exit, Exit::Done, "{line}: {}", outcome.noted);
        assert_eq!(changes(&outcome), [(change, false)], "{line}");
    }
}

#[tokio::test]
async fn a_change_for_show_shows_what_would_come_and_go() {
    let mut would_be = draining().view;
    would_be.open = 2;
    would_be.shares.insert(4, Share { come: 0, go: 2, stay: 0 });
    would_be.shares.insert(1, Share { come: 2, go: 0, stay: 4 });
    let answers = || [look(&settled(4)), answer(changed(would_be.clone()))].concat();
    let outcome = run("cluster drain n4 --dry-run", answers()).await;
    let expected = "\
nothing is changed; with it 2 partitions would be to move, 2 replicas to copy
NUMBER  NAME  ZONE  WEIGHT  STATE    HOLDS  COME  GO  THEN
     1  n1    a          1  up           4     2   0     6
     2  n2    a          1  up           4     0   0     4
     3  n3    a          1  up           4     0   0     4
     4  n4    a          1  leaving      2     0   2     0
";
    assert_eq!(outcome.printed, expected);
    assert_eq!(changes(&outcome), [(ClusterChange::Drain { node: node(4) }, true)]);
    let outcome = run("cluster drain n4 --dry-run --json", answers()).await;
    let line: serde_json::Value = serde_json::from_str(&outcome.printed).expect("one object");
    assert_eq!((&line["change"], &line["state"], &line["open"]), (&"drain".into(), &"planned".into(), &2.into()));
    assert_eq!(line["node"], node(4).to_string());
    let last = &line["members"][3];
    assert_eq!((&last["number"], &last["goes"], &last["state"]), (&4.into(), &2.into(), &"leaving".into()));
}

#[tokio::test]
async fn reasons_stand_on_lines_of_their_own() {
    let refusal = || {
        let message = "member 4 is alive and holds 2 partitions: drain it\nmember 4 still votes in the root: \x1b wait";
        Ok(Response::Error(Error::invalid(message)))
    };
    let outcome = run("cluster remove n4", [look(&settled(4)), vec![refusal()]].concat()).await;
    assert_eq!(outcome.exit, Exit::Refused);
    let expected = "error: member 4 is alive and holds 2 partitions: drain it\n       member 4 still votes in the root: \\u{1b} wait\n";
    assert_eq!(outcome.noted, expected);
    let outcome = run("cluster remove n4 --json", [look(&settled(4)), vec![refusal()]].concat()).await;
    assert_eq!(outcome.printed.lines().count(), 1);
    let line: serde_json::Value = serde_json::from_str(&outcome.printed).expect("one object");
    assert_eq!(line["error"]["message"].as_str().map(|message| message.lines().count()), Some(2));
}

#[tokio::test]
async fn a_root_without_a_leader_is_unavailable() {
    for line in ["cluster drain n4", "cluster rebalance", "cluster status", "cluster set moves 3"] {
        let gone = || Ok(Response::Error(Error::unavailable("the root has no leader")));
        let first = if line.contains("status") { vec![Ok(Response::Status(Box::new(status())))] } else { Vec::new() };
        let outcome = run(line, [first, vec![gone()]].concat()).await;
        assert_eq!(outcome.exit, Exit::Unavailable, "{line}");
        assert!(outcome.noted.contains("the root has no leader"), "{line}: {}", outcome.noted);
    }
}

/// Goal: an interrupt ends the watching with a message on a line of its own, without advice to look for nodes.
#[tokio::test]
async fn an_interrupt_ends_the_looking_on_and_says_what_goes_on() {
    let now = busy();
    let answers = [answer(changed(now.view.clone())), look(&now)].concat();
    let outcome = run_until_interrupted("cluster rebalance", answers).await;
    let noted = console::strip_ansi_codes(&outcome.noted).into_owned();
    assert!(outcome.exit == Exit::Unavailable && noted.starts_with("\nerror: interrupted, "), "{outcome:?}");
    assert!(noted.contains("the same command looks on") && !noted.contains("try again"), "{noted}");
}

#[tokio::test]
async fn mistakes_change_nothing() {
    let mut now = settled(4);
    now.view.heard = nodes(&[1, 2, 3]);
    now.view.roster.members.insert(5, Member { node: NodeId(node(4).0 + 1), ..member(5, MemberState::Up) });
    let prefix = node(4).to_string()[..8].to_owned();
    let cases = [
        ("cluster drain n9".to_owned(), "its members are n1, n2, n3, n4, n5"),
        (format!("cluster drain {prefix}"), "several members"),
        (format!("cluster drain {}", &prefix[..3]), "there is no member"),
        ("cluster move 2 n1".to_owned(), "numbered from 0 to 1"),
        ("cluster move 0 n1,n9".to_owned(), "there is no member \"n9\""),
        ("cluster move 0 n1 n2 n1".to_owned(), "named twice"),
        ("cluster move 0 n1,n4".to_owned(), "n4 is down"),
        ("cluster set weight n9 2".to_owned(), "there is no member"),
    ];
    let taken = run("cluster set address n4 h:1", [look(&now), vec![identity(5, Some(CLUSTER), true)]].concat()).await;
    assert!(taken.exit == Exit::Refused && changes(&taken).is_empty(), "{taken:?}");
    assert!(taken.noted.contains("another node answers at h:1, n5, and not n4"), "{}", taken.noted);
    for (line, reason) in cases {
        let outcome = run(&line, look(&now)).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 2), "{line}");
        assert!(outcome.noted.contains(reason), "{line}: {}", outcome.noted);
    }
    let malformed = [
        "cluster add",
        "cluster add here",
        "cluster add h:0",
        "cluster add ::1:7400",
        "cluster add h:1 --weight -1",
        "cluster replace n1",
        "cluster drain",
        "cluster drain n1 --dry-run --no-wait",
        "cluster drain n1 --timeout soon",
        "cluster move x n1",
        "cluster move 70000 n1",
        "cluster move 1",
        "cluster set",
        "cluster set weight n1",
        "cluster set replicas many",
        "cluster set heal-after sometimes",
        "cluster set address n1 7400",
        "cluster set colour red",
    ];
    for line in malformed {
        assert!(CommandLine::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}

/// Goal: a script may remove a member twice; the cluster forgets the name of a removed one.
#[tokio::test]
async fn a_member_that_is_forgotten_is_removed_already() {
    let outcome = run("cluster remove n9", look(&settled(4))).await;
    let expected = "n9 is no member: it was removed already, or never was one; the members are n1, n2, n3, n4\n";
    assert_eq!((outcome.exit, outcome.printed.as_str(), outcome.noted.as_str()), (Exit::Done, expected, ""));
    assert_eq!(changes(&outcome), []);
    let outcome = run("cluster remove n9 --json", look(&settled(4))).await;
    let line: serde_json::Value = serde_json::from_str(&outcome.printed).expect("one object");
    assert_eq!((outcome.exit, &line["already"], &line["node"]), (Exit::Done, &true.into(), &serde_json::Value::Null));
    assert_eq!(line["change"], "remove");
}

#[tokio::test]
async fn a_move_waits_for_its_partition_alone() {
    let mut now = settled(4);
    let mut answers = look(&now);
    answers.extend(answer(changed(view(4))));
    now.view.open = 2;
    now.partitions[0] = partition(0, &[1, 2], &[3, 1], &[]);
    answers.extend(look(&now));
    now.partitions[0] = partition(0, &[3, 1], &[], &[2]);
    answers.extend(look(&now));
    now.partitions[0] = partition(0, &[3, 1], &[], &[]);
    answers.extend(look(&now));
    let outcome = run("cluster move 0 n3,n1", answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    assert!(outcome.printed.contains("partition 0 is at n3 n1 ("), "{}", outcome.printed);
    let change = ClusterChange::Arrange { partition: PartitionId(0), nodes: nodes(&[3, 1]) };
    assert_eq!((changes(&outcome), outcome.calls.len()), (vec![(change, false)], 9));
}

fn genesis(cluster: ClusterId) -> Genesis {
    Genesis {
        cluster,
        name: "other".into(),
        partitions: 2,
        replicas: 2,
        members: Vec::new(),
        assignment: vec![Vec::new(); 2],
    }
}

fn identity(number: u16, cluster: Option<ClusterId>, serving: bool) -> Result<Response, Error> {
    let Member { node, incarnation, name, address, zone, .. } = member(number, MemberState::Up);
    let genesis = cluster.map(|cluster| Box::new(genesis(cluster)));
    Ok(Response::Identity(Box::new(Identity { node, incarnation, name, address, zone, genesis, serving })))
}

fn membership() -> Membership {
    Membership { genesis: genesis(CLUSTER), roster: view(5).roster }
}

/// The metadata group's answer to the addition of the fifth node.
fn added(already: bool) -> Answers {
    answer(Changed { already, membership: Some(Box::new(membership())), ..changed(view(5)) })
}

fn candidate(cluster: Option<ClusterId>, zone: &str, weight: u32) -> Candidate {
    let Member { node, incarnation, name, address, .. } = member(5, MemberState::Up);
    Candidate { cluster, node, incarnation, name, address, zone: zone.into(), weight }
}

#[tokio::test]
async fn a_node_is_added_told_and_waited_for() {
    let starting = || Err(Error::unavailable("nobody listens there yet"));
    let answers = [
        look(&settled(4)),
        vec![starting(), identity(5, None, false)],
        added(false),
        vec![starting(), identity(5, None, false), Ok(Response::Done)],
        vec![identity(5, Some(CLUSTER), false), identity(5, Some(CLUSTER), true)],
        look(&settled(5)),
    ];
    let told = run_all("cluster add localhost:7405 --weight 2 --zone b", answers.concat()).await;
    assert_eq!(told.outcome.exit, Exit::Done, "{}", told.outcome.noted);
    assert!(told.outcome.printed.starts_with("n5 at 10.0.0.5:7400 is a member\nn5 holds its share ("));
    assert_eq!(changes(&told.outcome), [(ClusterChange::Add { with: candidate(None, "b", 2) }, false)]);
    assert!(told.asked.iter().all(|(address, _)| address == "localhost:7405"));
    let verbs: Vec<&str> = told.asked.iter().map(|(_, request)| request.verb()).collect();
    assert_eq!(verbs, ["identify", "identify", "join", "identify", "join", "identify", "identify"]);
    assert_eq!(told.asked[4].1, Request::Join(Box::new(membership())));
}

/// Goal: the wait for a silent node is no longer than the timeout. Method: the requests are counted.
#[tokio::test]
async fn a_silent_node_is_asked_no_longer_than_the_timeout() {
    for line in ["cluster add h:1 --dry-run --timeout 1ms", "cluster replace n4 h:1 --timeout 1ms"] {
        let told = run_all(line, look(&settled(4))).await;
        assert_eq!(told.outcome.exit, Exit::Unavailable, "{line}");
        assert!((1..=2).contains(&told.asked.len()), "{line}: {} times", told.asked.len());
    }
    let joins = vec![identity(5, None, false), added(false).remove(0), Ok(Response::Done)];
    let told = run_all("cluster add h:1 --timeout 1ms", [look(&settled(4)), joins].concat()).await;
    assert!(told.outcome.noted.contains("h:1 is a member, and does not serve within 1ms"), "{}", told.outcome.noted);
    assert!(told.asked.len() <= 4, "{:?}", told.asked);
}

#[tokio::test]
async fn adding_a_node_again_completes_what_is_left() {
    // It has the record, so it refuses another one.
    let has_one = || Err(Error::new(ErrorCode::Conflict, "it has a cluster"));
    let answers = [
        look(&settled(5)),
        vec![identity(5, Some(CLUSTER), false)],
        added(true),
        vec![has_one(), identity(5, Some(CLUSTER), false), identity(5, Some(CLUSTER), true)],
        look(&settled(5)),
    ];
    let outcome = run("cluster add localhost:7405 --weight 2", answers.concat()).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    assert!(outcome.printed.starts_with("n5 is a member already\n"), "{}", outcome.printed);
    assert!(outcome.noted.contains("n5 keeps its weight, 1; `norn cluster set weight` changes it"));
    let change = ClusterChange::Add { with: candidate(Some(CLUSTER), "a", 2) };
    assert_eq!(changes(&outcome), [(change, false)]);
}

#[tokio::test]
async fn nodes_that_cannot_be_added_are_refused() {
    let met = |identity| [look(&settled(4)), vec![identity]].concat();
    let other = run("cluster add h:1", met(identity(5, Some(ClusterId(8)), true))).await;
    assert!(other.noted.contains("h:1 belongs to another cluster, other (") && changes(&other).is_empty());
    assert_eq!(other.exit, Exit::Refused);
    let strange = run("cluster add h:1", met(Ok(Response::Done))).await;
    assert!(strange.exit == Exit::Refused && strange.noted.contains("h:1: what answers there does not say who it is"));
    let answers =
        [met(identity(5, None, false)), added(false), vec![Err(Error::invalid("no")), identity(6, None, false)]];
    let replaced = run("cluster add h:1", answers.concat()).await;
    assert!(replaced.exit == Exit::Refused && replaced.noted.contains("another node answers at h:1 now"));
    let answers = [met(identity(5, None, false)), added(false)];
    let answers = [answers.concat(), vec![Err(Error::invalid("no")), identity(5, Some(ClusterId(8)), false)]];
    let taken = run("cluster add h:1", answers.concat()).await;
    assert!(taken.exit == Exit::Refused && taken.noted.contains("belongs to another cluster"));
    let answers = [met(identity(5, None, false)), answer(changed(view(5)))].concat();
    assert!(run("cluster add h:1", answers).await.noted.contains("same version"), "the root gave no record");
}

#[tokio::test]
async fn a_lost_node_is_replaced_by_one_of_its_name() {
    let mut now = settled(4);
    now.view.heard = nodes(&[1, 2, 3]);
    let heavy = Member { weight: 3, ..member(4, MemberState::Up) };
    now.view.roster.members.insert(4, heavy);
    let newcomer = |serving, cluster: Option<ClusterId>| {
        let Ok(Response::Identity(mut identity)) = identity(5, cluster, serving) else { unreachable!() };
        identity.name = "n4".into();
        Ok(Response::Identity(identity))
    };
    let mut then = now.clone();
    then.view.roster.members.insert(4, Member { weight: 3, ..member(4, MemberState::Gone) });
    then.view.roster.members.insert(5, Member { name: "n4".into(), ..member(5, MemberState::Up) });
    let root =
        |already| answer(Changed { already, membership: Some(Box::new(membership())), ..changed(then.view.clone()) });
    let end = || [vec![Ok(Response::Done), newcomer(true, Some(CLUSTER))], look(&then)].concat();
    let answers = [look(&now), vec![newcomer(false, None)], root(false), end()].concat();
    let outcome = run("cluster replace n4 h:4", answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    let (old, new) = (format!("n4 ({:?})", node(4)), format!("n4 ({:?})", node(5)));
    assert!(outcome.printed.starts_with(&format!("{new} takes the place of {old}\n")), "{}", outcome.printed);
    let with = Candidate { name: "n4".into(), ..candidate(None, "a", 3) };
    assert_eq!(changes(&outcome), [(ClusterChange::Replace { node: node(4), with }, false)]);
    // When repeated, the name is that of the new node.
    let answers = [look(&then), vec![newcomer(true, Some(CLUSTER))], root(true), end()].concat();
    let outcome = run("cluster replace n4 h:4", answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    let with = Candidate { name: "n4".into(), ..candidate(Some(CLUSTER), "a", 1) };
    assert_eq!(changes(&outcome), [(ClusterChange::Add { with }, false)]);
}

fn busy() -> Survey {
    let mut now = draining();
    now.view.heard = nodes(&[1, 2, 4]);
    (now.view.open, now.view.moving) = (1, vec![PartitionId(1)]);
    now.view.shares.insert(4, Share { come: 0, go: 1, stay: 0 });
    now.view.roster.members.insert(5, member(5, MemberState::Gone));
    now.partitions[1] = partition(1, &[2, 4], &[2, 3], &[1]);
    now
}

#[tokio::test]
async fn people_read_the_status_of_a_cluster() {
    let answers = [vec![Ok(Response::Status(Box::new(status())))], look(&busy())].concat();
    let outcome = run("cluster status", answers).await;
    let expected = format!(
        "\
cluster     dev {CLUSTER}
members     3 of 4 alive; down: n3
root        led by n2, voters n1 n2 n3, version 6
layout      version 3, 2 replicas of each partition
partitions  1 of 2 where they shall be, 1 moving  [###############               ]
leaders     2 of 2 with a leader
settings    heal-after 15m, moves 16, moves-each 2

NUMBER  NAME  ADDRESS        ZONE  WEIGHT  STATE       ROOT   LEADS  HOLDS  COME  GO  NODE
     1  n1    10.0.0.1:7400  a          1  up          votes      1      4     0   0  {}
     2  n2    10.0.0.2:7400  a          1  up          leads      1      4     0   0  {}
     3  n3    10.0.0.3:7400  a          1  up, silent  votes      0      4     0   0  {}
     4  n4    10.0.0.4:7400  a          1  leaving                0      1     0   1  {}

PARTITION  STATE   LEADER  NODES  COMING  LEAVING
        1  moving  n2      n2 n4  n3      n4 n1
",
        node(1),
        node(2),
        node(3),
        node(4)
    );
    assert_eq!(outcome.printed, expected);
}

/// Right after a dead member was replaced, and once the new layout is reached except for facts of the dead one.
#[tokio::test]
async fn the_status_counts_every_partition_that_it_lists() {
    let line = async |now: &Survey| {
        let answers = [vec![Ok(Response::Status(Box::new(status())))], look(now)].concat();
        let printed = run("cluster status", answers).await.printed;
        let line = printed.lines().find(|line| line.starts_with("partitions")).expect("there is one").to_owned();
        (line, printed.contains("LEAVING"))
    };
    let mut now = settled(4);
    assert_eq!(line(&now).await, ("partitions  2 of 2 where they shall be".to_owned(), false));
    now.view.stale = true;
    assert_eq!(line(&now).await, ("partitions  2 of 2 where the last layout wants them".to_owned(), false));
    now.view.stale = false;
    now.view.heard = nodes(&[1, 2, 3]);
    now.view.roster.members.insert(4, member(4, MemberState::Gone));
    now.partitions[1] = partition(1, &[2, 3], &[], &[4]);
    let counted = "partitions  2 of 2 where they shall be, 1 left by nodes that are down (n4)";
    assert_eq!(line(&now).await, (counted.to_owned(), false));
    now.view.heard = nodes(&[1, 2, 3, 4]);
    now.view.roster.members.insert(4, member(4, MemberState::Leaving));
    assert_eq!(
        line(&now).await,
        ("partitions  1 of 2 where they shall be, 0 moving  [###############               ]".to_owned(), true)
    );
}

/// Goal: people and programs read the same of each partition. Method: a gone or silent member and a live one have not handed over;
/// another partition moves away from a dead one.
#[tokio::test]
async fn what_is_left_by_nodes_that_are_down_is_not_under_way() {
    let read = async |now: &Survey, command: &str| {
        run(command, [vec![Ok(Response::Status(Box::new(status())))], look(now)].concat()).await.printed
    };
    let counts = async |now: &Survey| {
        let line: serde_json::Value =
            serde_json::from_str(&read(now, "cluster status --json").await).expect("one object");
        let counts =
            ["stable", "moving", "leaving", "left"].map(|what| line["layout"][what].as_u64().expect("a count"));
        let rows = line["under_way"].as_array().expect("it is a list").clone();
        assert_eq!(rows.len() as u64, counts[1] + counts[2], "each of these is listed, and no other");
        assert_eq!(counts.iter().sum::<u64>(), 2, "each partition is counted once");
        let table = read(now, "cluster status").await;
        for row in &rows {
            let state = row["state"].as_str().expect("it is a text");
            let (_, listed) = table.split_once("PARTITION").expect("it lists them");
            assert!(listed.contains(state), "{table}");
        }
        assert_eq!(table.contains("PARTITION"), !rows.is_empty(), "{table}");
        counts
    };
    let mut now = settled(4);
    assert_eq!(counts(&now).await, [2, 0, 0, 0]);
    now.partitions[1] = partition(1, &[2, 3], &[], &[4]);
    assert_eq!(counts(&now).await, [1, 0, 1, 0]);
    now.view.heard = nodes(&[1, 2, 3]);
    assert_eq!(counts(&now).await, [1, 0, 0, 1], "it is silent");
    now.view.roster.members.insert(4, member(4, MemberState::Gone));
    assert_eq!(counts(&now).await, [1, 0, 0, 1]);
    now.partitions[0] = partition(0, &[1, 2], &[1, 3], &[4]);
    now.view.moving = vec![PartitionId(0)];
    assert_eq!(counts(&now).await, [0, 1, 0, 1]);
}

#[tokio::test]
async fn programs_read_the_status_of_a_cluster() {
    let answers = [vec![Ok(Response::Status(Box::new(status())))], look(&busy())].concat();
    let outcome = run("cluster status --json", answers).await;
    let line: serde_json::Value = serde_json::from_str(&outcome.printed).expect("one object");
    assert_eq!((&line["name"], &line["root"]["version"]), (&"dev".into(), &6.into()));
    let layout = serde_json::json!({
        "version": 3, "stale": false, "replicas": 2, "stable": 1, "moving": 1, "leaving": 0, "left": 0, "open": 1, "unknown": 0
    });
    assert_eq!(line["layout"], layout);
    let fourth = serde_json::json!({
        "number": 4, "node": node(4).to_string(), "name": "n4", "state": "leaving", "holds": 1, "comes": 0, "goes": 1,
        "address": "10.0.0.4:7400", "zone": "a", "weight": 1, "alive": true, "votes": false, "leads": 0
    });
    assert_eq!(line["members"][3], fourth);
    assert_eq!(line["members"].as_array().map(Vec::len), Some(4), "who is gone and holds nothing is not shown");
    let settings = serde_json::json!({ "heal_after_ms": 900_000, "moves_at_once": 16, "moves_at_once_each": 2 });
    assert_eq!((&line["settings"], &line["under_way"][0]["state"]), (&settings, &"moving".into()));
}

#[test]
fn bars_fill_and_begin_anew() {
    let mut peaks = super::overview::Peaks::default();
    let mut bar = |come, go| peaks.bar(node(1), Share { come, go, stay: 3 });
    assert_eq!(bar(0, 0), "");
    assert_eq!(bar(2, 2), "[                    ] 0 of 4");
    assert_eq!(bar(1, 0), "[###############     ] 3 of 4");
    assert_eq!(bar(0, 0), "");
    assert_eq!(bar(2, 0), "[                    ] 0 of 2");
    assert_eq!(bar(u32::MAX, u32::MAX), format!("[{:20}] 0 of {}", "", u32::MAX));
}

#[test]
fn the_parser_knows_the_group() {
    let parsed = CommandLine::try_parse_from(["cluster", "status", "--watch"]).expect("it is well formed");
    assert!(matches!(parsed.verb, crate::Command::Cluster(ClusterVerb::Status(_))));
    let parsed = CommandLine::try_parse_from(["cluster", "set", "moves-each", "1"]).expect("it is well formed");
    let crate::Command::Cluster(verb) = parsed.verb else { panic!("it is another verb") };
    assert!(!verb.waits() && matches!(verb, ClusterVerb::Set(SetVerb::MovesEach { moves: 1 })));
}
