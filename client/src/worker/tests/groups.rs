//! Groups, separate handlers for joins and for invalid tasks, and leases by handler.

use super::*;
use crate::session::Draft;
use norn_wire::group::{Join, MemberOf};

const VIEW: GroupView = GroupView { total: Some(3), ended: 3, failed: 1 };

fn member(number: u32) -> MemberOf {
    MemberOf { group: TaskId::new(1_000, 0, 0, 7), number }
}

fn join_of() -> (Grouping, Option<GroupView>) {
    (Grouping { member: Some(member(2)), join: Some(Join { total: Some(3), fail_fast: false }) }, Some(VIEW))
}

fn draft(queue: &str, payload: &str) -> Draft {
    Draft::new(QueueName::new(queue).unwrap(), payload)
}

fn done_with(table: &Mutex<Table>, place: usize) -> String {
    match &table.lock().unwrap().fates[place] {
        Fate::Done { result, .. } => String::from_utf8(result.clone().unwrap_or_default()).unwrap(),
        other => panic!("{place}: {other:?}"),
    }
}

// O32
#[tokio::test]
async fn joins_go_to_their_own_handler_where_there_is_one() {
    let table = Table::new(4);
    table.lock().unwrap().groups = [(0, join_of()), (1, join_of())].into();
    let bench = bench(&table).await;
    let plain = async |context: Context| {
        let facts = (context.member_of().map(|member| member.number), context.group());
        Outcome::Done(Some(format!("plain {facts:?}").into_bytes()))
    };
    let group = async |context: Context| {
        assert_eq!((context.member_of(), context.group()), (Some(member(2)), Some(VIEW)));
        Outcome::Done(Some(b"group".to_vec()))
    };
    let worker =
        bench.worker.handler("mail", plain).handler("print", plain).group_handler("mail", group).concurrency(4);
    worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(done_with(&table, 0), "group");
    assert!(done_with(&table, 1).contains("plain (Some(2), Some(GroupView"), "print has no handler for joins");
    assert_eq!(done_with(&table, 2), "plain (None, None)");
}

// O22
#[tokio::test]
async fn a_handler_brings_a_group_with_its_completion() {
    let table = Table::new(1);
    let bench = bench(&table).await;
    let handler = async |context: Context| {
        let members = |count: usize| (0..count).map(|place| draft("pages", &place.to_string())).collect::<Vec<_>>();
        let refused = context.spawn_group(draft("books", "bind"), members(limits::CHILDREN_MAX)).unwrap_err();
        assert!(refused.message.contains("room for 99"), "{refused}");
        let short = draft("books", "bind").join(Some(1), true);
        assert_eq!(context.spawn_group(short, members(2)).unwrap_err().code, ErrorCode::Invalid);
        context.spawn(draft("mail", "alone"));
        context.spawn_group(draft("books", "bind").join(None, true), members(2)).unwrap();
        assert_eq!(context.spawn_group(draft("books", "bind"), members(1)).unwrap_err().code, ErrorCode::Invalid);
        Outcome::Done(None)
    };
    bench.worker.handler("mail", handler).run_until(all_ended(Arc::clone(&table))).await.unwrap();
    let children = table.lock().unwrap().children.clone();
    let [alone, first, second, join] = &children[..] else { panic!("{children:?}") };
    let grouping = |task: &NewTask| *task.spec.grouping.clone().unwrap();
    assert_eq!(alone.spec.grouping, None);
    assert_eq!(grouping(join), Grouping { member: None, join: Some(Join { total: Some(2), fail_fast: true }) });
    for (task, number) in [(first, 1), (second, 2)] {
        let member = MemberOf { group: join.id, number };
        assert_eq!((task.id, grouping(task)), (member.id(), Grouping { member: Some(member), join: None }));
    }
}

// O32, O33
#[tokio::test]
async fn what_is_invalid_is_told_before_it_is_reported() {
    let table = Table::new(4);
    let bench = bench(&table).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = (Arc::clone(&told), Arc::clone(&table));
    let invalid = move |context: Context, reason: String| {
        let (told, table) = seen.clone();
        async move {
            let fate = table.lock().unwrap().fates[place(context.id())].clone();
            told.lock().unwrap().push((context.payload().to_vec(), reason, fate));
            assert_ne!(context.payload(), b"2", "on purpose");
        }
    };
    let handler = async |context: Context| match context.payload() {
        b"0" | b"2" => Outcome::Invalid { reason: "bad".into() },
        _ => Outcome::Done(None),
    };
    let worker = bench.worker.handler("mail", handler).handler("print", handler).invalid_handler(invalid);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 2, invalid: 2, ..Summary::default() });
    let told = told.lock().unwrap();
    let expected = |payload: &[u8]| (payload.to_vec(), "bad".to_owned(), Fate::Held);
    assert_eq!(told[..], [expected(b"0"), expected(b"2")]);
}

// O35
#[tokio::test]
async fn each_handler_has_its_own_lease_and_no_more_is_claimed_than_there_is_room_for() {
    for concurrency in [1, 2, 5] {
        let table = Table::new(20);
        let bench = bench(&table).await;
        let handler = async |context: Context| {
            after(5).await;
            Outcome::Done(Some(context.task().lease_ms.to_string().into_bytes()))
        };
        let long = HandlerOptions::new().lease(Duration::from_secs(60));
        let worker = bench.worker.handler("mail", handler).handler_with("print", long, handler);
        let summary = worker.concurrency(concurrency).run_until(all_ended(Arc::clone(&table))).await.unwrap();
        assert_eq!(summary, Summary { done: 20, ..Summary::default() });
        for place in 0..20 {
            assert_eq!(done_with(&table, place), if place % 2 == 0 { LEASE_MS } else { 60_000 }.to_string());
        }
        let table = table.lock().unwrap();
        assert!(table.held_most <= concurrency, "{} were held", table.held_most);
        let lease_of = |queue: &str| if queue == "mail" { LEASE_MS } else { 60_000 };
        assert!(
            table.asked.iter().all(|(lease, queues, _)| queues.len() == 1 && lease_of(queues[0].as_str()) == *lease)
        );
    }
}

/// A queue without tasks takes little room from the others, also while its call waits for work.
#[tokio::test]
async fn a_quiet_queue_leaves_the_room_to_the_busy_one() {
    let table = Table::new(1);
    let bench = bench(&table).await;
    let handler = async |_: Context| {
        after(600).await;
        Outcome::Done(None)
    };
    let other = HandlerOptions::new().lease(Duration::from_secs(60));
    let worker = bench.worker.handler("mail", handler).handler_with("print", other, handler).concurrency(9);
    worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    let table = table.lock().unwrap();
    let print = || table.asked.iter().filter(|(_, queues, _)| queues[0].as_str() == "print");
    assert!(print().count() > 1 && print().skip(1).all(|(_, _, max)| *max == 1), "{:?}", table.asked);
}

#[tokio::test]
async fn settings_of_handlers_are_checked() {
    let handler = async |_: Context| Outcome::Done(None);
    let table = Table::new(0);
    let joins_alone = bench(&table).await.worker.handler("mail", handler).group_handler("print", handler);
    let refused = joins_alone.run_until(after(0)).await.unwrap_err();
    assert!(refused.message.contains("print has a handler for joins alone"), "{refused}");
    let options = HandlerOptions::new().lease(Duration::ZERO);
    let short = bench(&table).await.worker.handler_with("mail", options, handler);
    assert_eq!(short.run_until(after(0)).await.unwrap_err().code, ErrorCode::Invalid);
}
