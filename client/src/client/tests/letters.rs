//! Goal: the program that sends a letter back holds it until that is done or the letter is released. Method: calls against a node that
//! keeps some letters, and does not answer or refuses on demand.

use super::many::{Kept, answer, claim, letter};
use super::*;
use std::sync::atomic::AtomicBool;

fn dead() -> QueueName {
    "mail-dead".parse().unwrap()
}

/// Letters with these numbers.
fn letters(numbers: std::ops::Range<u32>) -> Vec<TaskView> {
    numbers.map(|number| letter(number, Some("mail"))).collect()
}

/// A client of a node that keeps these tasks. `instead` may override the answer to a request.
async fn keeps_but(
    tasks: Vec<TaskView>,
    instead: impl Fn(&Request) -> Option<Reply> + Send + 'static,
) -> (Client, Kept, Arc<Mutex<Vec<Request>>>, Node) {
    let kept: Kept = Arc::new(Mutex::new(tasks.into_iter().map(|task| (task.id, task)).collect()));
    let of_node = Arc::clone(&kept);
    let reply = move |request: &Request| {
        instead(request).unwrap_or_else(|| Reply::Answer(answer(&mut of_node.lock().unwrap(), request)))
    };
    let (client, requests, node) = bench(reply).await;
    (client, kept, requests, node)
}

/// Number of letters in a state.
fn count(kept: &Kept, state: State) -> usize {
    kept.lock().unwrap().values().filter(|task| task.state == state && task.spec.queue == dead()).count()
}

async fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Goal: no letter is skipped because the future that sends it is dropped.
#[tokio::test]
async fn a_letter_whose_sending_was_given_up_is_sent_next() {
    let silent = Arc::new(AtomicBool::new(true));
    let keeps_silent = Arc::clone(&silent);
    let (client, kept, _, _node) = keeps_but(letters(0..2), move |request| {
        let is_silent = matches!(request, Request::Complete { .. }) && keeps_silent.load(Ordering::SeqCst);
        is_silent.then_some(Reply::Silence)
    })
    .await;
    let mut letters = client.redrive_letters(LetterOptions::new(dead()));
    assert!(tokio::time::timeout(Duration::from_millis(300), letters.next()).await.is_err());
    silent.store(false, Ordering::SeqCst);
    for number in 0..2 {
        assert_eq!(letters.next().await.unwrap().unwrap().acked.id, TaskId::new(5, number, 0, 0));
    }
    assert_eq!((letters.next().await, count(&kept, State::Done)), (Ok(None), 2));
}

/// Goal: dropped letters are not held any longer, even if the sending of one was under way.
#[tokio::test]
async fn letters_are_free_soon_after_they_are_dropped() {
    for given_up in [false, true] {
        let silent = Arc::new(AtomicBool::new(false));
        let keeps_silent = Arc::clone(&silent);
        let (client, kept, _, _node) = keeps_but(letters(0..4), move |request| {
            let is_silent = matches!(request, Request::Complete { .. }) && keeps_silent.load(Ordering::SeqCst);
            is_silent.then_some(Reply::Silence)
        })
        .await;
        let mut letters = client.redrive_letters(LetterOptions::new(dead()));
        letters.next().await.unwrap().unwrap();
        silent.store(true, Ordering::SeqCst);
        if given_up {
            assert!(tokio::time::timeout(Duration::from_millis(300), letters.next()).await.is_err());
        }
        assert_eq!(count(&kept, State::Claimed), 3);
        drop(letters);
        wait_for("letters are still held", || count(&kept, State::Ready) == 3).await;
    }
}

/// Goal: a letter that cannot be released does not delay others.
#[tokio::test]
async fn the_others_are_given_back_where_what_is_no_letter_cannot_be() {
    let strange = letter(0, None).id;
    let tasks = [letter(0, None)].into_iter().chain(letters(1..3)).collect();
    let (client, kept, _, _node) = keeps_but(tasks, move |request| match request {
        Request::Release { id, .. } if *id == strange => {
            Some(Reply::Answer(Response::Error(Error::new(ErrorCode::Superseded, "it has changed hands"))))
        }
        _ => None,
    })
    .await;
    let mut letters = client.redrive_letters(LetterOptions::new(dead()));
    assert_eq!(letters.next().await.unwrap_err().code, ErrorCode::Superseded);
    assert_eq!((count(&kept, State::Claimed), count(&kept, State::Ready)), (1, 2));
}

/// Goal: a failure is reported soon, however many letters must be released. Method: each release takes a second.
#[tokio::test]
async fn letters_are_given_back_all_at_once() {
    let (client, _, requests, _node) = keeps_but(letters(0..30), |request| match request {
        Request::Complete { .. } => Some(Reply::Answer(Response::Error(Error::new(ErrorCode::Conflict, "no")))),
        Request::Release { .. } => Some(Reply::AnswerAfter(Duration::from_secs(1), Response::Done)),
        _ => None,
    })
    .await;
    let (mut letters, started) = (client.redrive_letters(LetterOptions::new(dead())), Instant::now());
    assert_eq!(letters.next().await.unwrap_err().code, ErrorCode::Conflict);
    assert!(started.elapsed() < Duration::from_secs(15), "it took {:?}", started.elapsed());
    let released = requests.lock().unwrap().iter().filter(|one| matches!(one, Request::Release { .. })).count();
    assert_eq!(released, 30);
}

type Brought = Arc<Mutex<Vec<TaskId>>>;

/// Refuses the first completion. Records the ids of the completions' children, one each.
fn refuses_first(code: ErrorCode) -> (Brought, impl Fn(&Request) -> Option<Reply> + Send + 'static) {
    let brought = Brought::default();
    let seen = Arc::clone(&brought);
    let instead = move |request: &Request| {
        let Request::Complete { items, .. } = request else { return None };
        let mut seen = seen.lock().unwrap();
        seen.push(items[0].children[0].id);
        let refusal = || Reply::Answer(Response::Acked(vec![Err(Error::new(code, "not now"))]));
        (seen.len() == 1).then(refusal)
    };
    (brought, instead)
}

/// Goal: a letter that may have been sent back brings the same task when it is sent again, under another claim. Method: the completion
/// is refused for another reason, as the session itself repeats one of unknown outcome.
#[tokio::test]
async fn a_letter_that_is_sent_once_more_brings_the_same_task() {
    let (brought, instead) = refuses_first(ErrorCode::Conflict);
    let (client, kept, _, _node) = keeps_but(letters(0..2), instead).await;
    let mut letters = client.redrive_letters(LetterOptions::new(dead()));
    assert_eq!(letters.next().await.unwrap_err().code, ErrorCode::Conflict);
    let mut named = Vec::new();
    for _ in 0..2 {
        // Two claims of a task are never granted in the same millisecond.
        tokio::time::sleep(Duration::from_millis(5)).await;
        named.push(letters.next().await.unwrap().unwrap().task.unwrap());
    }
    assert!(kept.lock().unwrap().values().any(|task| task.claims.len() == 2), "it was claimed anew");
    let ids = brought.lock().unwrap().clone();
    assert!(ids.len() == 3 && ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
    assert_eq!(named, ids[1..]);
}

/// Goal: an old claim does not make the new task's id too old, nor does one of an hour ago if nodes collect tombstones soon.
#[tokio::test]
async fn the_task_of_a_letter_is_not_too_old() {
    let hours = |hours: u64| crate::connection::testing::now_ms() - hours * 3_600_000;
    let mut old = letter(0, Some("mail"));
    old.claims = [10, 1].map(|ago| norn_wire::response::ClaimView { start_ms: hours(ago), ..claim(1, None) }).to_vec();
    let (brought, instead) = refuses_first(ErrorCode::TooOld);
    let (client, _, _, _node) = keeps_but(vec![old], instead).await;
    client.redrive_letters(LetterOptions::new(dead())).next().await.unwrap().unwrap();
    let times: Vec<u64> = brought.lock().unwrap().iter().map(|id| id.time_ms()).collect();
    assert!(times.len() == 2 && times[0] > hours(2) && times[0] < times[1] && times[1] > hours(1), "{times:?}");
}
