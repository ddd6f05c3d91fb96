//! Members and joins of groups: requests and output.

use super::*;
use crate::Draft;
use norn_wire::group::{GroupView, Grouping, Join, MemberOf};
use norn_wire::{Acks, Completion};

const VIEW: GroupView = GroupView { total: Some(3), ended: 2, failed: 1 };

fn opened(existing: bool) -> Result<Response, Error> {
    Ok(Response::AckedUnique { acked: acked(9), existing })
}

fn stored() -> Result<Response, Error> {
    Ok(Response::Acked(vec![Ok(acked(1))]))
}

fn task(task: TaskView) -> Result<Response, Error> {
    Ok(Response::Task(Box::new(task)))
}

fn join_task(group: Option<GroupView>) -> TaskView {
    TaskView { group, ..bare_task(9, State::Waiting) }
}

fn joined(name: &str, data: &str, fail_fast: bool) -> Draft {
    Draft::new(queue(name), data).join(None, fail_fast).group_name("g")
}

fn member(number: u32) -> MemberOf {
    MemberOf { group: id(9), number }
}

fn calls(outcome: &Outcome) -> Vec<Call> {
    outcome.calls.iter().map(|(call, _)| call.clone()).collect()
}

fn enqueued(number: u32) -> Call {
    let draft = Draft::new(queue("mail"), "x").member_of(id(9), number);
    Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum }
}

// O20
#[tokio::test]
async fn a_member_opens_its_group_and_the_last_one_closes_it() {
    let outcome = run("enqueue mail x --group g --number 2", [opened(false), stored()]).await;
    let unique = Call::EnqueueUnique { draft: Box::new(joined("mail", "g", false)) };
    assert_eq!(calls(&outcome), [unique, enqueued(2)]);
    let expected = format!("enqueued {} (3 of 3 replicas, strict)\n  member 2 of group {}\n", id(1), id(9));
    assert_eq!(outcome.printed, expected);
    let line = "enqueue mail x --group g --number 3 --total 3 --fail-fast --join books --join-data bind --json";
    let close = || Ok(Response::AckedOne(acked(9)));
    let open = task(join_task(Some(GroupView { total: None, ..VIEW })));
    let outcome = run(line, [opened(true), open, stored(), close()]).await;
    let unique = Call::EnqueueUnique { draft: Box::new(joined("books", "bind", true)) };
    let get = Call::Request(Request::Get { id: id(9), minimum: None, minimum_sequence: None });
    let closed = Call::Request(Request::CloseGroup { id: id(9), total: 3, acks: Acks::Quorum });
    assert_eq!(calls(&outcome), [unique, get, enqueued(3), closed.clone()]);
    let expected = format!(
        "{{\"id\":\"{}\",\"acks\":3,\"replicas\":3,\"guarantee\":\"strict\",\"group\":\"{}\"}}\n",
        id(1),
        id(9)
    );
    assert_eq!(outcome.printed, expected);
    let line = format!("enqueue mail x --group-id {} --number 3 --total 3", id(9));
    let outcome = run(&line, [stored(), close()]).await;
    assert_eq!(calls(&outcome), [enqueued(3), closed]);
    assert!(outcome.printed.ends_with(&format!("  member 3 of 3 of group {}\n", id(9))), "{}", outcome.printed);
}

#[tokio::test]
async fn what_does_not_fit_a_group_is_refused_before_anything_is_enqueued() {
    let refused = [
        ("enqueue mail x --group g --number 1", join_task(None), "no join"),
        ("enqueue mail x --group g --number 4", join_task(Some(VIEW)), "has 3 members"),
        ("enqueue mail x --group g --number 1 --total 2", join_task(Some(VIEW)), "has 3 members"),
    ];
    for (line, view, why) in refused {
        let outcome = run(line, [opened(true), task(view)]).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 2), "{line}");
        assert!(outcome.noted.contains(why), "{}", outcome.noted);
    }
    let refusal = || Err(Error::new(ErrorCode::Conflict, "no"));
    let outcome = run("enqueue mail x --group g --number 1 --total 2", [opened(false), stored(), refusal()]).await;
    assert_eq!(outcome.exit, Exit::Refused);
    assert!(outcome.noted.contains("member 1 is enqueued, but that there are 2 was not taken"), "{}", outcome.noted);
}

#[tokio::test]
async fn flags_that_do_not_go_together_are_usage_failures() {
    let lines = [
        ("--number 1", "--group NAME or --group-id ID"),
        ("--total 2", "--group NAME or --group-id ID"),
        ("--fail-fast", "--group NAME or --group-id ID"),
        ("--join books", "--group NAME or --group-id ID"),
        ("--group g", "add --number N"),
        ("--group g --total 2", "add --number N"),
        ("--group g --number 0", "--number"),
        ("--group g --number 10001", "--number"),
        ("--group g --number 3 --total 2", "less than --number 3"),
        ("--group g --group-id 0 --number 1", "one group"),
        ("--group-id 0 --number 1 --fail-fast", "for the join"),
        ("--group-id 0 --number 1 --join books", "for the join"),
        ("--group g --number 1 --key k", "--key cannot go with a group"),
        ("--group g --number 1 --key k --unique", "--unique cannot go with a group"),
        ("--group g --number 1 --id 0", "--id cannot go with a group"),
        ("--group g --number 1 --lines", "--lines cannot go with a group"),
    ];
    for (flags, why) in lines {
        let data = if flags.contains("--lines") { "" } else { "x" };
        let outcome = run(&format!("enqueue mail {data} {flags}"), []).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Usage, 0), "{flags}");
        assert!(outcome.noted.contains(why), "{flags}: {}", outcome.noted);
    }
}

// O36
#[tokio::test]
async fn members_are_listed_with_what_came_of_them() {
    let done = TaskView { result: Some(ByteBuf::from(vec![0xff])), ..bare_task(1, State::Done) };
    let dead = TaskView { reason: Some("bad".into()), ..bare_task(2, State::Dead) };
    let answers = || {
        let missing = Err(Error::new(ErrorCode::NotFound, "no such task"));
        [task(join_task(Some(VIEW))), task(done.clone()), task(dead.clone()), missing]
    };
    let outcome = run(&format!("members {} --json", id(9)), answers()).await;
    let ids = [1, 2, 3].map(|number| member(number).id());
    let expected = format!(
        "{{\"number\":1,\"id\":\"{}\",\"state\":\"done\",\"result\":\"/w==\",\"result_encoding\":\"base64\",\"reason\":null}}\n\
         {{\"number\":2,\"id\":\"{}\",\"state\":\"dead\",\"result\":null,\"result_encoding\":null,\"reason\":\"bad\"}}\n\
         {{\"number\":3,\"id\":\"{}\",\"state\":null,\"result\":null,\"result_encoding\":null,\"reason\":null}}\n",
        ids[0], ids[1], ids[2]
    );
    assert_eq!((outcome.exit, outcome.printed), (Exit::Done, expected));
    let outcome = run(&format!("members {} --limit 2", id(9)), answers()).await;
    assert_eq!(outcome.calls.len(), 3);
    assert!(
        outcome.printed.ends_with("2 of 3 members shown: --limit N shows more, --json all\n"),
        "{}",
        outcome.printed
    );
    assert!(outcome.printed.contains("bad") && outcome.printed.contains("<1 byte>"), "{}", outcome.printed);

    let all = Some(GroupView { ended: 3, ..VIEW });
    let outcome = run(&format!("members {} --limit 1", id(9)), [task(join_task(all)), task(done.clone())]).await;
    let wait = Call::Request(Request::Wait { id: ids[0], timeout_ms: 10_000 });
    assert_eq!(calls(&outcome)[1], wait, "what the join has heard is there to be read");
}

#[tokio::test]
async fn what_has_no_members_to_list_says_so() {
    let outcome = run(&format!("members {}", id(9)), [task(join_task(None))]).await;
    assert_eq!(outcome.exit, Exit::Refused);
    assert!(outcome.noted.contains("no join"), "{}", outcome.noted);
    let open = Some(GroupView { total: None, ..VIEW });
    let outcome = run(&format!("members {}", id(9)), [task(join_task(open))]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 1));
    assert!(outcome.noted.contains("how many members there are is not known"), "{}", outcome.noted);
    let failing = Err(Error::unavailable("no"));
    let outcome = run(&format!("members {}", id(9)), [task(join_task(Some(VIEW))), failing]).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
}

#[tokio::test]
async fn get_and_claim_show_what_a_task_has_to_do_with_groups() {
    let grouping = || Some(Box::new(Grouping { member: Some(member(2)), join: Some(Join::default()) }));
    let view = TaskView {
        spec: Spec { grouping: grouping(), ..spec(b"hello") },
        group: Some(VIEW),
        ..bare_task(1, State::Ready)
    };
    let facts = format!(
        "\"member_of\":{{\"group\":\"{}\",\"number\":2}},\"group\":{{\"total\":3,\"ended\":2,\"failed\":1}},\"version\":null,",
        id(9)
    );
    let outcome = run(&format!("get {} --json", id(1)), [task(view.clone())]).await;
    assert!(outcome.printed.contains(&facts), "{}", outcome.printed);
    let outcome = run(&format!("get {}", id(1)), [task(view.clone())]).await;
    let lines = format!("member      2 of {}\ngroup       2 of 3 members ended, 1 of them failed\n", id(9));
    assert!(outcome.printed.contains(&lines), "{}", outcome.printed);
    let open = TaskView { group: Some(GroupView { total: None, ended: 1, failed: 0 }), ..view };
    let outcome = run(&format!("get {}", id(1)), [task(open)]).await;
    assert!(outcome.printed.contains("1 member ended; how many there are is not known yet"), "{}", outcome.printed);

    let claimed = || {
        let tasks = vec![Granted { grouping: grouping(), group: Some(VIEW), ..granted() }];
        [Ok(Response::Claimed { tasks, unavailable: 0, left: 0 })]
    };
    let facts = facts.replace(",\"version\":null,", "}\n");
    assert!(run("claim mail --json", claimed()).await.printed.ends_with(&facts));
    let printed = run("claim mail", claimed()).await.printed;
    let lines = format!("  member    2 of {}\n  group     2 of 3 members ended, 1 of them failed\n", id(9));
    assert!(printed.contains(&lines), "{printed}");
}

// O22
#[tokio::test]
async fn a_completion_brings_a_group() {
    let file: &'static [u8] = br#"[{"queue": "a", "number": 1}, {"queue": "b", "join": {"total": 1}}]"#;
    let line = format!("complete {} 7.42 --then -", id(1));
    let outcome = run_at(Place::CommandLine, &line, file, [stored()]).await;
    let [(Call::Complete { items, .. }, None)] = &outcome.calls[..] else { panic!("{:?}", outcome.calls) };
    let completion =
        Completion { id: id(1), token: TOKEN, sequence: None, result: None, at_ms: 0, children: Vec::new() };
    assert_eq!(items[0].completion, completion);
    let children =
        [Draft::new(queue("a"), "").member_of(TaskId::MIN, 1), Draft::new(queue("b"), "").join(Some(1), false)];
    assert_eq!(items[0].children, children);
}
