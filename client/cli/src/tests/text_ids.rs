//! Text ids: what stands for a task by its type and name, or by its type, group, number and total.

use super::*;
use crate::Draft;
use norn_wire::headers::TEXT_ID;
use norn_wire::{Acks, TextId};

fn text_id(text: &str) -> TextId {
    text.parse().unwrap()
}

/// A page with these tasks, and whatever else the queue has.
fn listed(tasks: &[(u32, State, &str)]) -> Result<Response, Error> {
    let view = |(number, state, text): &(u32, State, &str)| {
        let spec = Spec { headers: vec![(TEXT_ID.to_owned(), (*text).to_owned())], ..spec(b"hello") };
        TaskView { spec, ..bare_task(*number, *state) }
    };
    let tasks = tasks.iter().map(view).chain([bare_task(99, State::Ready)]).collect();
    Ok(Response::Page(Page { tasks, next: None }))
}

fn found(number: u32) -> Result<Response, Error> {
    let spec = Spec { headers: vec![(TEXT_ID.to_owned(), "mail/anna".to_owned())], ..spec(b"hello") };
    Ok(Response::Task(Box::new(TaskView { spec, ..bare_task(number, State::Ready) })))
}

// O34
#[tokio::test]
async fn a_task_is_enqueued_under_its_type_and_name() {
    for existing in [false, true] {
        let outcome =
            run("enqueue mail x --id mail/anna", [Ok(Response::AckedUnique { acked: acked(1), existing })]).await;
        let [(Call::EnqueueUnique { draft }, _)] = &outcome.calls[..] else { panic!("{:?}", outcome.calls) };
        assert_eq!(**draft, Draft::new(queue("mail"), "x").text_id(&text_id("mail/anna")));
        assert_eq!((draft.id, draft.spec.key.as_deref()), (None, Some("id:anna")));
        assert_eq!(draft.spec.header(TEXT_ID), Some("mail/anna"));
        assert!(outcome.printed.starts_with(if existing { "there is " } else { "enqueued " }), "{}", outcome.printed);
    }
    let answer = Ok(Response::AckedUnique { acked: acked(1), existing: false });
    let outcome = run("enqueue team/mail x --id 'team/mail/a b' --header k=v --delay 1m", [answer]).await;
    let [(Call::EnqueueUnique { draft }, _)] = &outcome.calls[..] else { panic!("{:?}", outcome.calls) };
    assert_eq!((draft.spec.header(TEXT_ID), draft.spec.header("k")), (Some("team/mail/a%20b"), Some("v")));
    assert_eq!(draft.delay_ms, 60_000);
}

// O34
#[tokio::test]
async fn a_member_is_enqueued_under_its_type_group_number_and_total() {
    let stored = [
        Ok(Response::AckedUnique { acked: acked(9), existing: false }),
        Ok(Response::Acked(vec![Ok(acked(1))])),
        Ok(Response::AckedOne(acked(9))),
    ];
    let outcome = run("enqueue mail x --id mail/book-7/3/10 --fail-fast", stored).await;
    let join = Box::new(Draft::new(queue("mail"), "book-7").join(None, true).group_name("book-7"));
    let member = Draft::new(queue("mail"), "x").text_id(&text_id("mail/book-7/3/10")).member_of(id(9), 3);
    let expected = [
        Call::EnqueueUnique { draft: join },
        Call::Enqueue { drafts: vec![member], acks: Acks::Quorum },
        Call::Request(Request::CloseGroup { id: id(9), total: 10, acks: Acks::Quorum }),
    ];
    assert_eq!(outcome.calls.iter().map(|(call, _)| call.clone()).collect::<Vec<_>>(), expected);
    assert!(outcome.printed.ends_with(&format!("member 3 of 10 of group {}\n", id(9))), "{}", outcome.printed);
}

// O34
#[tokio::test]
async fn a_text_id_that_does_not_fit_its_task_is_refused_before_anything_is_sent() {
    for (line, why) in [
        ("enqueue mail x --id print/anna", "begins with another queue"),
        ("enqueue mail x --id mail/anna --key k", "--key cannot go with the text id"),
        ("enqueue mail x --id mail/anna --acks one", "--acks cannot go with the text id"),
        ("enqueue mail x --id mail/g/1/2 --number 1", "--number cannot go with the text id"),
        ("enqueue mail x --id mail/g/1/2 --group g", "--group cannot go with the text id"),
        ("enqueue mail x --id mail/anna --join books", "--join is for a member of a group"),
        ("enqueue mail x --id mail/anna --header norn-id=x", "norn-id=... is given twice"),
        ("enqueue mail x --id mail/g/3/2", "member 3 of 2"),
        ("enqueue mail x --id mail/", "1 to 252 bytes"),
        ("enqueue mail x --id a/b/c/d/e/f", "QUEUE/NAME or QUEUE/GROUP/NUMBER/TOTAL"),
        ("get mail/50%", "%25"),
    ] {
        let outcome = run(line, []).await;
        assert!(outcome.calls.is_empty() && outcome.noted.contains(why), "{line}: {}", outcome.noted);
        assert_ne!(outcome.exit, Exit::Done, "{line}");
    }
}

// O34
#[tokio::test]
async fn a_command_finds_the_task_of_a_text_id_that_is_open_or_else_the_newest() {
    let (done, ready) = (State::Done, State::Ready);
    for (tasks, number) in [
        (vec![(1, done, "mail/anna"), (2, ready, "mail/otto"), (3, done, "mail/anna")], 3),
        (vec![(1, ready, "mail/anna"), (3, done, "mail/anna"), (4, ready, "mail/anna/1/2")], 1),
        (vec![(2, done, "mail/anna"), (5, ready, "print/anna")], 2),
    ] {
        let outcome = run("get mail/anna", [listed(&tasks), found(number)]).await;
        assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
        let [(Call::Request(Request::List { queue: Some(of), state: None, .. }), _), (Call::Request(get), _)] =
            &outcome.calls[..]
        else {
            panic!("{:?}", outcome.calls)
        };
        assert_eq!(
            (of, get),
            (&queue("mail"), &Request::Get { id: id(number), minimum: None, minimum_sequence: None })
        );
    }
    let tasks = [(1, ready, "mail/anna")];
    let outcome = run("renew mail/anna 7.42", [listed(&tasks), Ok(Response::Renewed(vec![Ok(5_000)]))]).await;
    assert_eq!(outcome.noted, format!("mail/anna is {}\n", id(1)), "a command that changes a task says which");
    let Some((Call::Request(Request::Renew { items, .. }), _)) = outcome.calls.last() else {
        panic!("{:?}", outcome.calls)
    };
    assert_eq!(items[..], [(id(1), TOKEN)]);
}

// O34
#[tokio::test]
async fn a_text_id_that_no_task_has_is_not_found() {
    let none = || listed(&[(1, State::Ready, "mail/otto"), (2, State::Ready, "mail/anna/1/2")]);
    let outcome = run("cancel mail/anna", std::iter::repeat_with(none).take(64)).await;
    assert!(outcome.noted.contains("no task has the text id \"mail/anna\""), "{}", outcome.noted);
    let is_list = |call: &(Call, Option<Duration>)| matches!(call.0, Call::Request(Request::List { .. }));
    assert!(outcome.exit != Exit::Done && outcome.calls.iter().all(is_list) && outcome.calls.len() < 20);
}

// O34
#[tokio::test]
async fn the_text_id_is_shown_where_the_task_is() {
    let printed = run("get mail/anna", [listed(&[(1, State::Ready, "mail/anna")]), found(1)]).await.printed;
    assert!(
        printed.starts_with(&format!("id          {}\ntext id     mail/anna\nqueue       mail\n", id(1))),
        "{printed}"
    );
    let listing = run("list mail", [listed(&[(1, State::Ready, "mail/anna")])]).await.printed;
    let lines: Vec<&str> = listing.lines().collect();
    assert!(lines[0].contains("TEXT ID") && lines[1].contains("  mail/anna  "), "{listing}");
    assert!(!run("list mail", [page(1..3, false)]).await.printed.contains("TEXT ID"), "no task has one");
    let headers = vec![(TEXT_ID.to_owned(), "mail/book-7/3/10".to_owned())];
    let claimed = || Response::Claimed {
        tasks: vec![Granted { headers: headers.clone(), ..granted() }],
        unavailable: 0,
        left: 0,
    };
    let printed = run("claim mail", [Ok(claimed())]).await.printed;
    assert!(printed.contains("\n  text id   mail/book-7/3/10\n"), "{printed}");
    let json = run("claim mail --json", [Ok(claimed())]).await.printed;
    assert!(json.contains("\"headers\":{\"norn-id\":\"mail/book-7/3/10\"}"), "{json}");
}
