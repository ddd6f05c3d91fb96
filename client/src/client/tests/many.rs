//! Goal: a program lists, chooses, cancels, releases and redrives as the command line does. Method: calls against a node that keeps
//! some tasks and answers like a real one.

use super::*;
use norn_wire::error::Retry;
use norn_wire::headers;
use norn_wire::response::{ClaimEnd, ClaimOutcome, ClaimView};

const HOUR_MS: u64 = 3_600_000;

/// The tasks of a node.
pub(super) type Kept = Arc<Mutex<BTreeMap<TaskId, TaskView>>>;

fn task(time_ms: u64, number: u32, state: State) -> TaskView {
    TaskView { state, ..view(TaskId::new(time_ms, number, 0, 0)) }
}

fn now_ms() -> u64 {
    crate::connection::testing::now_ms()
}

pub(super) fn claim(number: u64, end: Option<(ClaimOutcome, &str)>) -> ClaimView {
    let end = end.map(|(outcome, reason)| ClaimEnd { outcome, at_ms: 1, reason: Some(reason.to_owned()) });
    let token = Token { epoch: 1, number };
    ClaimView {
        token,
        start_ms: 1,
        end_ms: None,
        completed_ms: None,
        worker: String::new(),
        rejected: None,
        superseded: None,
        session: None,
        end,
    }
}

/// The answer of a node with these tasks.
pub(super) fn answer(kept: &mut BTreeMap<TaskId, TaskView>, request: &Request) -> Response {
    match request {
        Request::List { queue, state, after, from, to, limit } => {
            let fits = |task: &&TaskView| {
                queue.as_ref().is_none_or(|queue| task.spec.queue == *queue)
                    && state.is_none_or(|state| task.state == state)
                    && after.is_none_or(|after| task.id > after)
                    && from.is_none_or(|from| task.id >= from)
                    && to.is_none_or(|to| task.id <= to)
            };
            let mut tasks: Vec<TaskView> = kept.values().filter(fits).take(*limit as usize + 1).cloned().collect();
            let more = tasks.len() > *limit as usize;
            tasks.truncate(*limit as usize);
            let next = tasks.last().map(|task| task.id).filter(|_| more);
            Response::Page(Page { tasks, next })
        }
        Request::Get { id, .. } => match kept.get(id) {
            Some(task) => Response::Task(Box::new(task.clone())),
            None => Response::Error(Error::new(ErrorCode::NotFound, "no such task")),
        },
        Request::Cancel { id, reason, .. } => {
            let task = kept.get_mut(id).expect("it was chosen");
            if task.state != State::Done {
                (task.state, task.reason) = (State::Cancelled, Some(reason.clone()));
            }
            Response::AckedOne(acked_item(*id).unwrap())
        }
        Request::Release { id, .. } => {
            kept.get_mut(id).expect("it was claimed").state = State::Ready;
            Response::Done
        }
        Request::Purge { id, state, .. } => match kept.get(id) {
            Some(task) if state.is_none_or(|state| state == task.state) => {
                kept.remove(id);
                Response::AckedOne(acked_item(*id).unwrap())
            }
            Some(_) => Response::Error(Error::new(ErrorCode::Conflict, "it has ended otherwise")),
            None => Response::Error(Error::new(ErrorCode::NotFound, "no such task")),
        },
        Request::Claim(asked) => {
            let ready =
                kept.values_mut().filter(|task| task.state == State::Ready && asked.queues.contains(&task.spec.queue));
            let granted = ready.take(asked.max as usize).map(|task| {
                task.state = State::Claimed;
                let number = task.claims.len() as u64 + 2;
                task.claims.push(ClaimView { start_ms: now_ms(), ..claim(number, None) });
                granted(task.id, asked.lease_ms)
            });
            Response::Claimed { tasks: granted.collect(), unavailable: 0, left: 0 }
        }
        Request::Complete { items, .. } => {
            for item in items {
                kept.get_mut(&item.id).expect("it was claimed").state = State::Done;
                let children =
                    item.children.iter().map(|child| TaskView { spec: child.spec.clone(), ..view(child.id) });
                kept.extend(children.map(|child| (child.id, child)));
            }
            Response::Acked(items.iter().map(|item| acked_item(item.id)).collect())
        }
        other => panic!("{other:?}"),
    }
}

/// A client of a node that keeps these tasks.
pub(super) async fn keeps(tasks: Vec<TaskView>) -> (Client, Kept, Arc<Mutex<Vec<Request>>>, Node) {
    let kept: Kept = Arc::new(Mutex::new(tasks.into_iter().map(|task| (task.id, task)).collect()));
    let of_node = Arc::clone(&kept);
    let (client, requests, node) =
        bench(move |request| Reply::Answer(answer(&mut of_node.lock().unwrap(), request))).await;
    (client, kept, requests, node)
}

async fn numbers(mut listing: Listing) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(task) = listing.next().await.unwrap() {
        numbers.push(u64::from(u32::from_be_bytes(task.id.to_bytes()[8..12].try_into().unwrap())));
    }
    numbers
}

/// Goal: each filter matches what the same option of the command line matches.
#[tokio::test]
async fn a_list_leaves_what_each_filter_wants() {
    let now = now_ms();
    let mut tasks: Vec<TaskView> =
        (0..6).map(|number| task(now - 6 * HOUR_MS + u64::from(number), number, State::Ready)).collect();
    tasks.push(task(now - 1_000, 6, State::Dead));
    tasks[0].spec.key = Some("seven".into());
    tasks[1].spec.headers = vec![("tenant".into(), "acme".into()), ("kind".into(), "order".into())];
    tasks[2].spec.headers = vec![("tenant".into(), "acme".into())];
    tasks[3].claims =
        vec![claim(1, Some((ClaimOutcome::Failed, "no route"))), claim(2, Some((ClaimOutcome::Released, "")))];
    tasks[4].claims =
        vec![claim(1, Some((ClaimOutcome::Failed, "no route"))), claim(2, Some((ClaimOutcome::Failed, "busy")))];
    tasks[6].reason = Some("timeout: no answer".into());
    let third = tasks[3].id;
    let (client, _, _, _node) = keeps(tasks).await;
    let hours = |hours| Duration::from_millis(hours * HOUR_MS);
    let options = || ListOptions::new().queue(mail());
    let cases: Vec<(ListOptions, &[u64])> = vec![
        (options(), &[0, 1, 2, 3, 4, 5, 6]),
        (options().page(2), &[0, 1, 2, 3, 4, 5, 6]),
        (options().newest(), &[6, 5, 4, 3, 2, 1, 0]),
        (options().newest().after(third), &[2, 1, 0]),
        (options().after(third), &[4, 5, 6]),
        (options().newest().between(TaskId::MIN, third), &[3, 2, 1, 0]),
        (options().older(hours(1)), &[0, 1, 2, 3, 4, 5]),
        (options().newer(hours(1)), &[6]),
        (options().older(hours(1)).newer(hours(2)), &[]),
        (options().newest().older(hours(1)), &[5, 4, 3, 2, 1, 0]),
        (options().key("seven"), &[0]),
        (options().header("tenant", "acme"), &[1, 2]),
        (options().header("tenant", "acme").header("kind", "order"), &[1]),
        (options().failed_with("no route"), &[3]),
        (options().reason("timeout"), &[6]),
        (options().state(State::Dead).reason("route"), &[]),
    ];
    for (options, expected) in cases {
        assert_eq!(numbers(client.list(options.clone())).await, expected, "{options:?}");
    }
}

/// Goal: listing the newest first needs no more memory if many tasks have one time, and lists each once.
#[tokio::test]
async fn the_newest_come_first_whatever_their_density() {
    let now = now_ms();
    let times = (0..2_500u64).map(|number| if number < 2_200 { now - HOUR_MS } else { now - 2_500 + number });
    let tasks: Vec<TaskView> = (0..).zip(times).map(|(number, time)| task(time, number, State::Ready)).collect();
    let (client, _, requests, _node) = keeps(tasks).await;
    let mut listing = client.list(ListOptions::new().queue(mail()).newest().page(10));
    assert_eq!(listing.next().await.unwrap().unwrap().id, TaskId::new(now - 1, 2_499, 0, 0));
    assert!(requests.lock().unwrap().len() < 10, "what comes first needs no look at the rest");
    let listed = numbers(client.list(ListOptions::new().queue(mail()).newest())).await;
    assert!(listed.into_iter().eq((0..2_500).rev()));
}

/// Goal: an ended task keeps its state and its reason, and no request is sent to change it.
#[tokio::test]
async fn a_cancellation_leaves_what_has_ended() {
    let states = [State::Ready, State::Dead, State::Done, State::Cancelled];
    let mut tasks: Vec<TaskView> = (0..).zip(states).map(|(number, state)| task(5, number, state)).collect();
    tasks[1].reason = Some("no such address".into());
    tasks[3].reason = Some("first".into());
    let [ready, dead, done, cancelled] = [0, 1, 2, 3].map(|place: usize| tasks[place].id);
    let (client, kept, requests, _node) = keeps(tasks).await;
    for (id, state) in [(dead, State::Dead), (done, State::Done)] {
        let error = client.cancel(id, "late", Acks::Quorum).await.unwrap_err();
        assert_eq!((error.code, error.id), (ErrorCode::Ended, Some(id)));
        assert_eq!(error.message, format!("not cancelled: {id} is {state}, and stays so"));
    }
    assert_eq!(client.cancel(cancelled, "late", Acks::Quorum).await, Ok(None));
    assert!(!requests.lock().unwrap().iter().any(|request| matches!(request, Request::Cancel { .. })));
    assert_eq!(client.cancel(ready, "stop", Acks::Quorum).await.unwrap().unwrap().id, ready);
    let kept = kept.lock().unwrap();
    let reasons = [ready, dead, done, cancelled].map(|id| kept[&id].reason.clone());
    assert_eq!(reasons, [Some("stop".into()), Some("no such address".into()), None, Some("first".into())]);
}

/// Goal: a task that is completed between the read and the cancellation is reported as done, and an acknowledgement alone is not trusted.
#[tokio::test]
async fn a_cancellation_that_comes_too_late_says_so() {
    let id = TaskId::new(5, 0, 0, 0);
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (client, _, _node) = bench(move |request| {
        Reply::Answer(match request {
            Request::Get { .. } => {
                let state = if done.load(Ordering::SeqCst) { State::Done } else { State::Claimed };
                Response::Task(Box::new(TaskView { state, ..view(id) }))
            }
            Request::Cancel { .. } => {
                done.store(true, Ordering::SeqCst);
                Response::AckedOne(acked_item(id).unwrap())
            }
            other => panic!("{other:?}"),
        })
    })
    .await;
    let error = client.cancel(id, "stop", Acks::Quorum).await.unwrap_err();
    assert_eq!((error.code, error.message), (ErrorCode::Ended, format!("not cancelled: {id} is done, and stays so")));
}

/// Goal: tasks are chosen without a change, and then changed in their present state.
#[tokio::test]
async fn chosen_tasks_are_changed_together() {
    let states = [State::Waiting, State::Ready, State::Claimed, State::Done, State::Dead];
    let tasks = || {
        let mut tasks: Vec<TaskView> = (0..).zip(states).map(|(number, state)| task(5, number, state)).collect();
        tasks[2].claims = vec![claim(1, None), claim(2, None)];
        tasks[1].spec.key = Some("seven".into());
        tasks
    };
    let ids: Vec<TaskId> = tasks().iter().map(|task| task.id).collect();
    let (client, kept, requests, _node) = keeps(tasks()).await;
    let all = || ListOptions::new().queue(mail());
    let chosen = client.choose(all()).await.unwrap();
    assert!(chosen.ids().eq(ids[..3].iter().copied()) && chosen.len() == 3 && !chosen.is_empty());
    assert_eq!(*kept.lock().unwrap(), tasks().into_iter().map(|task| (task.id, task)).collect(), "it only reads");
    let with_key = client.choose(all().key("seven")).await.unwrap();
    assert_eq!(with_key.cancel("stop", Acks::Quorum).await, Ok(1));
    let held = client.choose(all().state(State::Claimed)).await.unwrap();
    assert_eq!((held.len(), held.release().await), (1, Ok(1)));
    let release = Request::Release { id: ids[2], token: Token { epoch: 1, number: 2 } };
    assert!(requests.lock().unwrap().contains(&release), "of the latest claim");
    // One of the three is already cancelled, and one more dies before its turn.
    kept.lock().unwrap().get_mut(&ids[0]).unwrap().state = State::Dead;
    assert_eq!(chosen.cancel("stop", Acks::Quorum).await, Ok(1));
    let states = kept.lock().unwrap().values().map(|task| task.state).collect::<Vec<_>>();
    assert_eq!(states, [State::Dead, State::Cancelled, State::Cancelled, State::Done, State::Dead]);
}

/// Goal: ended tasks are chosen and purged together, except those whose final state has changed since.
#[tokio::test]
async fn chosen_tasks_that_have_ended_are_purged_together() {
    let states = [State::Ready, State::Done, State::Dead, State::Cancelled, State::Cancelled];
    let tasks: Vec<TaskView> = (0..).zip(states).map(|(number, state)| task(5, number, state)).collect();
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let (client, kept, _, _node) = keeps(tasks).await;
    let chosen = client.choose_ended(ListOptions::new().queue(mail())).await.unwrap();
    assert!(chosen.ids().eq(ids[1..].iter().copied()) && kept.lock().unwrap().len() == 5, "it only reads");
    let open = client.choose(ListOptions::new().queue(mail())).await.unwrap();
    assert_eq!(open.purge(Acks::Quorum).await, Ok(0), "nothing that is open");
    kept.lock().unwrap().get_mut(&ids[3]).unwrap().state = State::Done;
    kept.lock().unwrap().remove(&ids[1]);
    assert_eq!(chosen.purge(Acks::Quorum).await, Ok(2));
    assert!(kept.lock().unwrap().keys().eq([&ids[0], &ids[3]]));
}

/// Goal: a failure that concerns more than one task ends the change, and says how far it came.
#[tokio::test]
async fn a_change_of_many_says_how_far_it_came() {
    let (client, _, _node) = bench(move |request| {
        Reply::Answer(match request {
            Request::List { .. } => {
                let tasks =
                    (0..3).map(|number| TaskView { claims: vec![claim(1, None)], ..task(5, number, State::Claimed) });
                Response::Page(Page { tasks: tasks.collect(), next: None })
            }
            Request::Release { id, .. } if *id == TaskId::new(5, 1, 0, 0) => {
                Response::Error(Error::invalid("the token is none"))
            }
            Request::Release { .. } => Response::Error(Error::new(ErrorCode::Superseded, "it has changed hands")),
            other => panic!("{other:?}"),
        })
    })
    .await;
    let chosen = client.choose(ListOptions::new().queue(mail()).state(State::Claimed)).await.unwrap();
    let error = chosen.release().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Invalid);
    assert!(
        error.message.contains("0 of 3 tasks released, and no more after this failure: the token is none"),
        "{error:?}"
    );
}

/// Goal: a choice that is too large reports how many tasks were examined, in words for programs. Method: pages of two tasks, as with
/// large ones.
#[tokio::test]
async fn a_choice_that_is_too_large_says_what_was_looked_at() {
    let (client, _, _node) = bench(move |request| match request {
        Request::List { after, .. } => {
            let from = after.map_or(0, |after| after.time_ms() + 1);
            let tasks: Vec<TaskView> = (from..from + 2).map(|time_ms| task(time_ms, 0, State::Ready)).collect();
            let next = tasks.last().map(|task| task.id);
            Reply::Answer(Response::Page(Page { tasks, next }))
        }
        other => panic!("{other:?}"),
    })
    .await;
    let error = client.choose(ListOptions::new().queue(mail())).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Invalid);
    assert!(error.message.starts_with("4000 tasks were looked at") && !error.message.contains("--"), "{error:?}");
}

/// Goal: after a failure, the requests under way are awaited and counted; no further ones are sent.
#[tokio::test]
async fn a_failure_waits_for_what_is_under_way() {
    let first = TaskId::new(5, 0, 0, 0);
    let (client, requests, _node) = bench(move |request| match request {
        Request::List { .. } => {
            let held = |number| TaskView { claims: vec![claim(1, None)], ..task(5, number, State::Claimed) };
            Reply::Answer(Response::Page(Page { tasks: (0..40).map(held).collect(), next: None }))
        }
        Request::Release { id, .. } if *id == first => Reply::Answer(Response::Error(Error::invalid("no"))),
        Request::Release { .. } => Reply::AnswerAfter(Duration::from_millis(300), Response::Done),
        other => panic!("{other:?}"),
    })
    .await;
    let chosen = client.choose(ListOptions::new().queue(mail()).state(State::Claimed)).await.unwrap();
    let error = chosen.release().await.unwrap_err();
    assert!(error.message.starts_with("31 of 40 tasks released, and no more after this failure: "), "{error:?}");
    let sent = requests.lock().unwrap().iter().filter(|one| matches!(one, Request::Release { .. })).count();
    assert_eq!(sent, 32);
}

/// Goal: a certain failure of a bulk change holds for every task. Method: one request is refused first, and others under way end as
/// `unknown` for good, as the session repeats errors that may pass.
#[tokio::test]
async fn a_failure_that_is_certain_does_not_speak_for_one_that_is_unknown() {
    let first = TaskId::new(5, 0, 0, 0);
    let (client, _, _node) = bench(move |request| match request {
        Request::List { .. } => {
            let held = |number| TaskView { claims: vec![claim(1, None)], ..task(5, number, State::Claimed) };
            Reply::Answer(Response::Page(Page { tasks: (0..4).map(held).collect(), next: None }))
        }
        Request::Release { id, .. } if *id == first => Reply::Answer(Response::Error(Error::invalid("no"))),
        Request::Release { id, .. } if *id == TaskId::new(5, 3, 0, 0) => Reply::Answer(Response::Done),
        Request::Release { .. } => {
            let unknown = Error { retry: Retry::Never, ..Error::new(ErrorCode::Unknown, "it may be") };
            Reply::AnswerAfter(Duration::from_millis(300), Response::Error(unknown))
        }
        other => panic!("{other:?}"),
    })
    .await;
    let chosen = client.choose(ListOptions::new().queue(mail()).state(State::Claimed)).await.unwrap();
    let error = chosen.release().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unknown);
    let told = "1 of 4 tasks released, 2 more may be, and no more after this failure: it may be";
    assert_eq!(error.message, told);
}

pub(super) fn letter(number: u32, of: Option<&str>) -> TaskView {
    let mut letter = task(5, number, State::Ready);
    letter.spec.queue = "mail-dead".parse().unwrap();
    if let Some(queue) = of {
        letter.spec.headers =
            vec![(headers::DEAD_TASK.into(), "dead".into()), (headers::DEAD_QUEUE.into(), queue.into())];
    }
    letter
}

/// Goal: letters go back one by one, up to the limit, and a task that is not a letter stays and is named.
#[tokio::test]
async fn letters_are_sent_back_to_where_their_tasks_died() {
    let dead: QueueName = "mail-dead".parse().unwrap();
    let (client, kept, _, _node) = keeps((0..3).map(|number| letter(number, Some("mail"))).collect()).await;
    let mut letters = client.redrive_letters(LetterOptions::new(dead.clone()).limit(2));
    for number in 0..2 {
        let sent = letters.next().await.unwrap().unwrap();
        assert_eq!((sent.queue, sent.acked.id), (mail(), TaskId::new(5, number, 0, 0)));
    }
    assert_eq!(letters.next().await, Ok(None));
    let in_queue = |queue: &QueueName, state| {
        kept.lock().unwrap().values().filter(|task| task.spec.queue == *queue && task.state == state).count()
    };
    assert_eq!(
        (in_queue(&dead, State::Ready), in_queue(&dead, State::Done), in_queue(&mail(), State::Ready)),
        (1, 2, 2)
    );
    let strange = letter(4, None);
    kept.lock().unwrap().insert(strange.id, strange.clone());
    let mut letters = client.redrive_letters(LetterOptions::new(dead.clone()).to("other".parse().unwrap()));
    assert_eq!(letters.next().await.unwrap().unwrap().queue.as_str(), "other");
    let error = letters.next().await.unwrap_err();
    assert_eq!((error.code, error.id), (ErrorCode::Invalid, Some(strange.id)));
    assert_eq!(in_queue(&dead, State::Ready), 1, "it is given back");
}

/// Goal: letters that were claimed and not sent are free at once.
#[tokio::test]
async fn letters_that_are_not_sent_are_given_back() {
    let dead: QueueName = "mail-dead".parse().unwrap();
    let (client, kept, _, _node) = keeps((0..5).map(|number| letter(number, Some("mail"))).collect()).await;
    let mut letters = client.redrive_letters(LetterOptions::new(dead));
    letters.next().await.unwrap().unwrap();
    let count =
        |state| kept.lock().unwrap().values().filter(|task| task.state == state && task.spec.queue != mail()).count();
    assert_eq!((count(State::Claimed), count(State::Ready)), (4, 0));
    letters.give_back().await;
    assert_eq!((count(State::Claimed), count(State::Ready)), (0, 4));
}

/// Goal: the library's futures can be sent to another thread.
#[tokio::test]
async fn calls_of_several_parts_can_be_spawned() {
    fn can_be_spawned(_: impl Send) {}
    let (client, _, _, _node) = keeps(Vec::new()).await;
    let id = TaskId::MIN;
    can_be_spawned(client.cancel(id, "why", Acks::Quorum));
    can_be_spawned(client.why(id));
    can_be_spawned(client.list(ListOptions::new()).next());
    can_be_spawned(client.redrive_queue(RedriveOptions::new(mail())).next());
    can_be_spawned(client.redrive_letters(LetterOptions::new(mail())).next());
    let chosen = client.choose(ListOptions::new()).await.unwrap();
    can_be_spawned(chosen.cancel("why", Acks::Quorum));
    let chosen = client.choose(ListOptions::new()).await.unwrap();
    can_be_spawned(chosen.release());
    let chosen = client.choose_ended(ListOptions::new()).await.unwrap();
    can_be_spawned(chosen.purge(Acks::Quorum));
}
