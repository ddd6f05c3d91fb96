//! The library excerpts of `client/docs/workers.md`: each module is one of its blocks, word for word, and a test of the library
//! compares them. It is compiled with the feature `net` alone, like a program with the dependency lines of that document.
//!
//! `cargo run -p norn-client --example readme -- .norn/client.toml` shows the queues of a cluster.

#![allow(dead_code, clippy::print_stdout, reason = "excerpts, of which not all is called")]

use norn_client::client::{Client, ClientConfig};
use std::path::Path;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).unwrap_or_else(|| ".norn/client.toml".into());
    let client = Client::connect(ClientConfig::load(Path::new(&file))?).await?;
    for queue in client.queues().await? {
        println!("{} {:?}", queue.queue, queue.counts);
    }
    client.close().await;
    Ok(())
}

#[rustfmt::skip]
mod groups {
    use norn_client::client::Client;
    use norn_client::session::Draft;
    use norn_client::wire::QueueName;
    use norn_client::worker::{Context, HandlerOptions, Outcome, Worker};
    use std::time::Duration;

    async fn submit(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
        let (pages, books) = (QueueName::new("pages")?, QueueName::new("books")?);
        let group = client.open_group(Draft::new(books, "book 7").join(None, false), "book-7").await?;
        for number in 1..=3 {
            client.enqueue(Draft::new(pages.clone(), format!("page {number}")).member_of(group, number)).await?;
        }
        client.close_group(group, 3).await?;
        Ok(())
    }

    async fn print(context: Context) -> Outcome {
        Outcome::Done(Some([context.payload(), b" is printed".as_slice()].concat()))
    }

    async fn bind(context: Context) -> Outcome {
        let Ok(members) = context.members().await else {
            return Outcome::RetryLater { after: Duration::from_secs(1), reason: "members cannot be read".into() };
        };
        let results = members.into_iter().filter_map(|member| member.task?.result);
        Outcome::Done(Some(results.flat_map(|result| result.into_vec()).collect()))
    }

    fn worker(client: Client) -> Worker {
        Worker::new(client)
            .handler("pages", print)
            .handler_with("books", HandlerOptions::new().lease(Duration::from_secs(300)), print)
            .group_handler("books", bind)
    }
}

#[rustfmt::skip]
mod watches {
    use norn_client::client::Client;
    use norn_client::session::WatchNews;
    use norn_client::wire::{QueueName, Subject};

    async fn look_on(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
        let mut watch = client.watch(Subject::Queue(QueueName::new("mail")?)).await?;
        loop {
            match watch.next().await? {
                WatchNews::Event(event) => println!("{} is {}", event.id, event.state),
                WatchNews::Lagged => println!("something may have been missed: list what is there"),
                WatchNews::Silent(partitions) => println!("nothing can be told of {partitions} partitions now"),
            }
        }
    }
}

#[rustfmt::skip]
mod transactions {
    use norn_client::client::{Claimed, Client, TransactError};
    use norn_client::session::{ChangeDraft, Draft, TransactionDraft};
    use norn_client::wire::QueueName;

    async fn move_on(client: &Client, claimed: Claimed) -> Result<(), Box<dyn std::error::Error>> {
        let task = claimed.granted;
        let next = Draft::new(QueueName::new("outbox")?, task.payload.clone());
        let moves = TransactionDraft::new().enqueue(next).delete((task.id, task.token));
        match client.transact(moves).await {
            Ok(_) => {}
            Err(TransactError::Refused(refusal)) => eprintln!("another worker has it: {refusal}"),
            Err(TransactError::Failed(error)) => {
                // Half done: it is handed back as another task, for later.
                let half = ChangeDraft::of((task.id, task.token)).payload("half done").release().delay_ms(60_000);
                client.transact(TransactionDraft::new().change(half)).await?;
                return Err(error.into());
            }
        }
        Ok(())
    }
}

#[rustfmt::skip]
mod producer {
    use norn_client::client::{ClaimOptions, Client, ClientConfig, CompleteOptions};
    use norn_client::session::Draft;
    use norn_client::wire::QueueName;
    use std::time::Duration;

    async fn example() -> Result<(), Box<dyn std::error::Error>> {
        let config = ClientConfig::new(["localhost:7400", "localhost:7401"], "ca.crt", "client-app.crt", "client-app.key");
        let client = Client::connect(config).await?;
        let mail = QueueName::new("mail")?;
        let task = client.enqueue(Draft::new(mail.clone(), "hello").priority(5)).await?;
        println!("{} is on {} disks", task.id, task.acks);
        let claims = client.claim(ClaimOptions::new([mail]).wait(Duration::from_secs(10))).await?;
        for claimed in claims.tasks {
            let done = CompleteOptions::new(claimed.granted.id, claimed.granted.token).result("sent");
            client.complete(done).await?;
        }
        Ok(())
    }
}

#[rustfmt::skip]
mod worker {
    use norn_client::client::{Client, ClientConfig};
    use norn_client::worker::{Context, Outcome, Worker};
    use std::time::Duration;

    async fn send(context: Context) -> Outcome {
        let Ok(letter) = std::str::from_utf8(context.payload()) else {
            return Outcome::Invalid { reason: "not UTF-8".into() };
        };
        // What the leader knows of the logs of earlier attempts, oldest first. The latest entries may be missing.
        if !context.updates().iter().any(|entry| entry.data == b"sent") {
            // The effect comes before its checkpoint, so it may come twice: the target knows a repeat by the task's id.
            println!("{}: {letter}", context.id());
            if context.checkpoint("sent").await.is_err() {
                // It waits as long as its queue's back-off says; `RetryLater` names the pause itself.
                return Outcome::Retry { reason: "no log".into() };
            }
        }
        Outcome::Done(Some(letter.to_uppercase().into_bytes()))
    }

    async fn example(config: ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
        let client = Client::connect(config).await?;
        let worker = Worker::new(client).handler("mail", send).concurrency(8).lease(Duration::from_secs(60));
        worker.run_until(async { let _ = tokio::signal::ctrl_c().await; }).await?;
        Ok(())
    }
}
