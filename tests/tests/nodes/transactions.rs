//! Transactions on several tasks, with real processes: through the library while a node is killed, and through the command line.

use norn_client::client::{Client, ListOptions, TransactError};
use norn_client::session::{ChangeDraft, Draft, TransactionDraft};
use norn_tests::Cluster;
use norn_tests::cli::Cli;
use norn_tests::wait::{PATIENCE, eventually};
use norn_wire::{ErrorCode, QueueName, State, TaskId};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of coins at any time.
const COINS: usize = 12;
const SPENDERS: usize = 4;
const SPENT_EACH: u64 = 40;

fn coins() -> QueueName {
    QueueName::new("coins").expect("a name")
}

async fn open(client: &Client) -> Vec<TaskId> {
    let options = ListOptions::new().queue(coins()).state(State::Ready);
    let mut listing = client.list(options);
    let mut ids = Vec::new();
    // While leaders change, a page may have to be requested again.
    loop {
        match listing.next().await {
            Ok(Some(task)) => ids.push(task.id),
            Ok(None) => return ids,
            Err(error) => assert!(error.passes(), "{error}"),
        }
    }
}

/// Replaces a coin that it has seen by a new one, again and again; returns the coins that it used up.
async fn spend(client: Client, spent: Arc<AtomicU64>) -> BTreeSet<TaskId> {
    let mut used = BTreeSet::new();
    let mut done = 0;
    while done < SPENT_EACH {
        let known = open(&client).await;
        let Some(coin) = known.get(done as usize % known.len().max(1)).copied() else { continue };
        let Ok(view) = client.get(coin).await else { continue };
        let (Some(version), State::Ready) = (view.version, view.state) else { continue };
        let draft = TransactionDraft::new().enqueue(Draft::new(coins(), "coin")).delete((coin, version));
        if transact(&client, draft).await {
            assert!(used.insert(coin), "a coin is used up once");
            done += 1;
            spent.fetch_add(1, Ordering::Relaxed);
        }
    }
    used
}

/// Whether the transaction was made. Repeats one with unknown outcome under the same id.
async fn transact(client: &Client, mut draft: TransactionDraft) -> bool {
    loop {
        match client.transact(draft.clone()).await {
            Ok(_) => return true,
            Err(TransactError::Refused(_)) => return false,
            Err(TransactError::Failed(error)) => {
                assert!(error.passes(), "{error}");
                // With a new id a repeat would be refused if the first attempt was made, because its task is gone by then.
                if error.code == ErrorCode::Unknown {
                    draft.id = error.id;
                }
            }
        }
    }
}

/// Several clients replace the same tasks at the same time, each by a new one, while a node is killed: no task is replaced twice, and
/// the number of tasks stays the same.
// T6, T10, T34, T41, T42
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_replaced_twice_though_a_node_is_killed() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    let found = (0..COINS).fold(TransactionDraft::new(), |draft, _| draft.enqueue(Draft::new(coins(), "coin")));
    assert!(transact(&client, found).await);
    let spent = Arc::new(AtomicU64::new(0));
    let spenders: Vec<_> = (0..SPENDERS).map(|_| tokio::spawn(spend(client.clone(), spent.clone()))).collect();
    let half = SPENDERS as u64 * SPENT_EACH / 2;
    eventually("half is spent", PATIENCE, || async { (spent.load(Ordering::Relaxed) >= half).then_some(()) }).await;
    cluster.kill(1);
    let mut used = BTreeSet::new();
    for spender in spenders {
        for coin in spender.await.expect("it ends") {
            assert!(used.insert(coin), "{coin} was used up by two");
        }
    }
    assert_eq!(used.len() as u64, SPENDERS as u64 * SPENT_EACH);
    assert_eq!(open(&client).await.len(), COINS);
    assert_eq!(client.count(Some(coins()), Some(State::Cancelled)).await.expect("counted"), used.len() as u64);
}

const ACCOUNTS: usize = 6;
const OPENING: u64 = 1_000;

/// Pays from account to account, each of which lies where it happens to, until enough payments are made.
async fn pay(client: Client, accounts: Vec<TaskId>, first: usize, paid: Arc<AtomicU64>) {
    let mut done = 0;
    let mut round = first;
    while done < SPENT_EACH {
        round += 1;
        let (from, to) = (accounts[round % ACCOUNTS], accounts[(round / 2 + 1) % ACCOUNTS]);
        if from == to {
            continue;
        }
        let (Ok(payer), Ok(payee)) = (client.get(from).await, client.get(to).await) else { continue };
        let (Some(before), Some(other)) = (payer.version, payee.version) else { panic!("accounts do not end") };
        let less = (balance(&payer.spec.payload) - 1).to_string();
        let more = (balance(&payee.spec.payload) + 1).to_string();
        let draft = TransactionDraft::new()
            .change(ChangeDraft::of((from, before)).payload(less))
            .change(ChangeDraft::of((to, other)).payload(more));
        if transact(&client, draft).await {
            done += 1;
            paid.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn balance(payload: &[u8]) -> u64 {
    std::str::from_utf8(payload).expect("text").parse().expect("a number")
}

/// Several clients pay from account to account, across partitions, while a node is killed and another one after it is back: no payment
/// is made in part, and none twice.
// T6, T34, T40, T41, T44
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_accounts_have_together_stays_the_same_though_nodes_are_killed() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    let queue = QueueName::new("accounts").expect("a name");
    let mut accounts = Vec::new();
    for number in 0..ACCOUNTS {
        let draft = Draft::new(queue.clone(), OPENING.to_string()).key(number.to_string());
        accounts.push(client.enqueue(draft).await.expect("it is enqueued").id);
    }
    let paid = Arc::new(AtomicU64::new(0));
    let payer = |number| tokio::spawn(pay(client.clone(), accounts.clone(), number, paid.clone()));
    let payers: Vec<_> = (0..SPENDERS).map(payer).collect();
    let all = SPENDERS as u64 * SPENT_EACH;
    for (third, node) in [(1, 1), (2, 2)] {
        eventually("a third is paid", PATIENCE, || async {
            (paid.load(Ordering::Relaxed) >= third * all / 3).then_some(())
        })
        .await;
        cluster.kill(node);
        cluster.restart(node);
    }
    for payer in payers {
        payer.await.expect("it ends");
    }
    let mut sum = 0;
    for account in &accounts {
        sum += balance(&client.get(*account).await.expect("it is there").spec.payload);
    }
    assert_eq!(sum, ACCOUNTS as u64 * OPENING);
    // Nothing stays locked: all accounts may be changed.
    let all = TransactionDraft::new();
    let all = accounts.iter().fold(all, |draft, account| draft.change(ChangeDraft::of(*account).payload("0")));
    assert!(transact(&client, all).await, "it expects nothing but that they are there");
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn transact_with(cli: &Cli, transaction: &Value) -> Value {
    cli.json(&["transact", &transaction.to_string()]).object()
}

/// The example of `client/docs/tasks.md`: a task moves on while a switch exists, and a refused transaction lists every conflict.
// T36, T43, T44, T45, T46
#[test]
fn a_task_moves_on_as_long_as_the_switch_is_there() {
    let cluster = Cluster::start();
    let [cli, second, third] = [0, 1, 2].map(|index| cluster.cli_at(index).patient());
    let switch = text(&cli.json(&["enqueue", "switch", "on"]).done().object()["id"]);
    let order = text(&cli.json(&["enqueue", "inbox", "order 7", "--near", &switch]).done().object()["id"]);
    let depends = ["inbox", "--depends", &switch, "--lease", "60s"];
    let claimed = cli.claim(&depends).done().object();
    let token = text(&claimed["token"]);
    assert_eq!(claimed["id"], order.as_str());
    let stranger = json!({"changes": [{"id": order, "data": "mine"}]});
    let refused = transact_with(&second, &stranger);
    assert_eq!(refused["error"]["owned"], json!([order]), "{refused}");
    let moves = json!({
        "adds": [{"queue": "outbox", "data": "order 7, packed"}],
        "deletes": [{"id": order, "token": token, "result": "packed"}],
        "depends": [{"id": switch}],
    });
    let moved = transact_with(&third, &moves);
    let next = text(&moved["added"][0]["id"]);
    let shown = second.json(&["get", &order]).done().object();
    assert_eq!((&shown["state"], &shown["result"]), (&json!("done"), &json!("packed")));
    // After the switch is deleted, nothing that depends on it is done.
    let version = text(&cli.json(&["get", &switch]).done().object()["version"]);
    let off = transact_with(&cli, &json!({"deletes": [{"id": switch, "version": version}]}));
    assert_eq!(off, json!({"added": [], "changed": []}));
    let again = json!({"changes": [{"id": next, "data": "sent"}], "depends": [{"id": switch}]});
    let refused = transact_with(&cli, &again);
    assert_eq!(refused["error"]["depends"], json!([switch]), "{refused}");
    let refused = cli.claim(&["outbox", "--depends", &switch]).object();
    assert_eq!(refused["error"]["code"], "conflict", "{refused}");
    let changed = transact_with(&cli, &json!({"changes": [{"id": next, "data": "sent", "priority": 3}]}));
    assert_eq!(changed["changed"][0]["id"], next.as_str());
    let claimed = cli.claim(&["outbox"]).done().object();
    assert_eq!((&claimed["data"], &claimed["priority"]), (&json!("sent"), &json!(3)));
}
