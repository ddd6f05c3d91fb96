//! Goal: the output of the cluster verbs fits screens of usual widths. Method: clusters of some size with long names.

use super::*;
use norn_wire::membership::Remnant;
use norn_wire::response::NodeView;

/// Runs a command on a screen of this size.
async fn run_in((columns, lines): (u16, u16), line: &str, answers: Answers) -> String {
    let results = Written::default();
    let output = Output::new(results.clone(), Written::default(), false).with_size(columns, lines).with_color(true);
    let fake = Fake::new(answers);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
    runner.run(CommandLine::try_parse_from(line.split(' ')).expect(line).verb).await;
    console::strip_ansi_codes(&results.text()).into_owned()
}

fn assert_fits(text: &str, columns: u16, from: &str) {
    let at = text.find(from).unwrap_or_else(|| panic!("{from:?} is in {text}"));
    for line in text[at..].lines() {
        assert!(line.chars().count() <= usize::from(columns), "{columns} columns: {line:?} of\n{text}");
    }
}

/// Returns a cluster of nodes with long names, of which one is down and one leaves, and in which `moving` partitions move.
fn crowded(members: u16, moving: u16) -> Survey {
    let mut now = survey(members, Vec::new());
    for (number, member) in &mut now.view.roster.members {
        member.name = format!("worker-{number}-of-rack-{number}");
        member.address = format!("worker-{number}.rack-{number}.example.com:7400");
        member.zone = format!("europe-west-{number}");
    }
    now.view.heard.retain(|heard| *heard != node(3));
    now.view.roster.members.get_mut(&members).unwrap().state = MemberState::Leaving;
    now.view.open = u32::from(moving);
    now.view.moving = (0..moving).map(PartitionId).collect();
    now.view.unknown = 7;
    now.view.shares.insert(1, Share { come: 140, go: 120, stay: 4 });
    let moves = (0..moving).map(|number| partition(number, &[1, 2, 3], &[2, 3, 4], &[]));
    let settled = (moving..moving + 8).map(|number| partition(number, &[1, 2, 3], &[], &[]));
    now.partitions = moves.chain(settled).collect();
    now
}

fn status_of(survey: &Survey) -> Answers {
    [vec![Ok(Response::Status(Box::new(status())))], look(survey)].concat()
}

#[tokio::test]
async fn the_status_of_a_cluster_fits_screens_of_50_to_120_columns() {
    for columns in [50, 60, 80, 120] {
        for now in [settled(4), busy(), crowded(5, 12)] {
            let shown = run_in((columns, 24), "cluster status", status_of(&now)).await;
            assert_fits(&shown, columns, "cluster ");
            let names = |text: &str| now.view.roster.members.keys().all(|number| text.contains(&number.to_string()));
            assert!(names(&shown) && shown.contains("leaders "), "{shown}");
        }
    }
}

/// Goal: no part of a repeated status is pushed off the screen.
#[tokio::test]
async fn a_watched_status_of_a_cluster_fits_its_screen() {
    for (columns, lines) in [(50, 12), (60, 24), (120, 24)] {
        for (members, moving) in [(4, 0), (9, 40), (40, 200)] {
            let mut answers = status_of(&crowded(members, moving));
            answers.push(Err(Error::invalid("no more")));
            let shown = run_in((columns, lines), "cluster status --watch=1ms", answers).await;
            assert_fits(&shown, columns, "cluster ");
            assert!(shown.lines().count() < usize::from(lines), "{columns}x{lines}: {shown}");
        }
    }
    for (members, moving) in [(4, 0), (5, 12), (5, 200), (9, 40), (40, 200)] {
        let now = crowded(members, moving);
        let mut answers = status_of(&now);
        answers.push(Err(Error::invalid("no more")));
        let shown = run_in((80, 24), "cluster status --watch=1ms", answers).await;
        assert_fits(&shown, 80, "cluster ");
        assert!(
            shown.lines().count() < 24,
            "{members} members, {moving} moving: {} lines of\n{shown}",
            shown.lines().count()
        );
        assert!(shown.contains("worker-1") && shown.contains("MOVED"), "{shown}");
        assert!(members < 40 || shown.contains("more members"), "{shown}");
    }
}

#[tokio::test]
async fn plans_of_changes_fit_screens_of_50_to_120_columns() {
    let now = crowded(5, 12);
    for columns in [50, 60, 80, 120] {
        for line in ["cluster drain worker-4-of-rack-4 --dry-run", "cluster rebalance --dry-run"] {
            let first = if line.contains("drain") { look(&now) } else { Vec::new() };
            let answers = [first, answer(changed(now.view.clone()))].concat();
            let shown = run_in((columns, 24), line, answers).await;
            assert_fits(&shown, columns, "NAME");
            assert!(shown.contains("140") && shown.contains("THEN"), "{shown}");
        }
    }
}

fn node_view(number: u16) -> NodeView {
    let template = crate::tests::nodes().remove(0);
    NodeView { node: node(number), name: format!("worker-{number}-of-rack-{number}"), ..template }
}

#[tokio::test]
async fn what_a_recovery_would_lose_fits_screens_of_50_to_120_columns() {
    let remnant = |partition: u16, left: &[u16]| Remnant {
        partition: PartitionId(partition),
        cohort: nodes(&[1, 2, 3]),
        left: nodes(left),
        epoch: 7,
        length: 9,
        tasks: 123_456_789,
        claims: 12_345,
        obstacle: None,
    };
    for columns in [50, 60, 80, 120] {
        let answers = vec![
            Ok(Response::Nodes([1, 2, 3].map(node_view).to_vec())),
            Ok(Response::Partitions(vec![partition(1, &[1, 2, 3], &[], &[]), partition(2, &[1, 2, 3], &[], &[])])),
            Ok(Response::Remnants(vec![remnant(1, &[1]), remnant(2, &[1, 3])])),
        ];
        let line = "cluster recover --lost worker-2-of-rack-2 --lost worker-3-of-rack-3 --dry-run";
        let shown = run_in((columns, 24), line, answers).await;
        assert_fits(&shown, columns, "LATEST");
        assert!(shown.contains("123456789") && shown.contains("worker-1"), "{shown}");
    }
}
