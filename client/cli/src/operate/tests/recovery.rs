//! Refusals of a recovery: if it would change nothing, the message says what to do instead.

use super::*;
use norn_wire::response::NodeView;

/// Returns `count` nodes, of which `heard` are heard; the first one answers.
fn members(count: u16, heard: &[u16]) -> Result<Response, Error> {
    let template = crate::tests::nodes().remove(0);
    let of = |number: u16| NodeView {
        node: node(number),
        name: format!("n{number}"),
        alive: heard.contains(&number),
        this: number == 1,
        ..template.clone()
    };
    Ok(Response::Nodes((1..=count).map(of).collect()))
}

fn ring(partitions: Vec<PartitionView>) -> Result<Response, Error> {
    Ok(Response::Partitions(partitions))
}

fn none() -> Result<Response, Error> {
    Ok(Response::Remnants(Vec::new()))
}

#[tokio::test]
async fn members_that_are_there_are_not_all_taken_for_lost() {
    for (lost, left) in
        [("n1,n2,n3", "no member is left"), ("n1", "of those that are left (n2 n3) none is heard: start")]
    {
        for how in ["--unsafe", "--dry-run", "--unsafe --json"] {
            let outcome = run(&format!("cluster recover --lost {lost} {how}"), vec![members(3, &[1])]).await;
            assert_eq!(outcome.exit, Exit::Refused, "{lost} {how}");
            let said = outcome.noted + &outcome.printed;
            for words in ["nothing was changed: of those named as lost n1 can be heard", left, "never come back"] {
                assert!(said.contains(words), "no {words:?} in {said}");
            }
        }
    }
}

#[tokio::test]
async fn a_recovery_of_partitions_without_any_member_is_refused_and_says_what_is_left_to_do() {
    let gone = || ring((0..12).map(|number| partition(number, &[2, 3], &[], &[])).collect());
    let answers = || vec![members(3, &[1]), gone(), none()];
    let outcome = run("cluster recover --lost n2,n3 --unsafe", answers()).await;
    assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Refused, ""));
    for words in
        ["of 12 partitions no member is left: 0 1 2", "9 and 2 more", "Start one of n2 n3 again", "Do not remove"]
    {
        assert!(outcome.noted.contains(words), "no {words:?} in {}", outcome.noted);
    }
    let outcome = run("cluster recover --lost n2,n3 --dry-run", answers()).await;
    assert_eq!(outcome.exit, Exit::Done);
    assert!(outcome.noted.contains("8 9 and 2 more"), "{}", outcome.noted);
}

#[tokio::test]
async fn a_recovery_is_done_once_the_lost_are_silent_and_all_has_a_majority() {
    let line = "cluster recover --lost n2,n3 --unsafe --json";
    let answers = |heard: &[u16]| vec![members(3, heard), ring(vec![partition(0, &[1], &[], &[2, 3])]), none()];
    let outcome = run(line, answers(&[1])).await;
    assert!(outcome.exit == Exit::Done && outcome.printed.contains("\"state\":\"done\""), "{outcome:?}");
    let outcome = run(line, answers(&[1, 3])).await;
    assert!(
        outcome.exit == Exit::Refused && outcome.printed.contains("of those named as lost n3 can be heard"),
        "{outcome:?}"
    );
}
