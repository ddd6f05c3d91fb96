//! The shortest program with a store: one task, from its enqueue to its end.

use norn_store::Store;
use norn_store::client::client::{ClaimOptions, CompleteOptions};
use norn_store::client::session::Draft;
use norn_store::client::wire::QueueName;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::open("tasks").await?;
    let mail = QueueName::new("mail")?;
    store.client().enqueue(Draft::new(mail.clone(), "hello")).await?;
    for claimed in store.client().claim(ClaimOptions::new([mail])).await?.tasks {
        store.client().complete(CompleteOptions::new(claimed.granted.id, claimed.granted.token)).await?;
    }
    store.close().await?;
    Ok(())
}
