//! Transactions: atomic changes of several tasks.

use super::Client;
use super::answers::unexpected;
use crate::session::{Call, TransactionDraft};
use norn_wire::error::Error;
use norn_wire::ids::{TaskId, TaskVersion};
use norn_wire::response::Response;
use norn_wire::transaction::Refusal;

/// Why a transaction did not take effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactError {
    /// Some tasks were not as expected; nothing was changed.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// It could not be decided, or broke a limit. After an `unknown` outcome, repeat it with the error's id in [`TransactionDraft::id`].
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Client {
    /// Adds, changes and ends tasks, atomically: all on a majority of the disks, or nothing. Returns the added tasks
    /// and then the changed ones, in order, with their new versions.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::client::{ClaimOptions, TransactError};
    /// use norn_client::session::{Draft, TransactionDraft};
    /// use norn_client::wire::QueueName;
    /// let (inbox, outbox) = (QueueName::new("inbox")?, QueueName::new("outbox")?);
    /// for claimed in client.claim(ClaimOptions::new([inbox])).await?.tasks {
    ///     let granted = claimed.granted;
    ///     let letter = Draft::new(outbox.clone(), granted.payload);
    ///     // The task moves from one queue to the other, unless another worker has it by now.
    ///     let moves = TransactionDraft::new().enqueue(letter).delete((granted.id, granted.token));
    ///     match client.transact(moves).await {
    ///         Ok(tasks) => println!("{} has taken its place", tasks[0].0),
    ///         Err(TransactError::Refused(refusal)) => println!("{refusal}"),
    ///         Err(TransactError::Failed(error)) => return Err(error.into()),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn transact(&self, draft: TransactionDraft) -> Result<Vec<(TaskId, TaskVersion)>, TransactError> {
        match self.call(Call::Transact { draft: Box::new(draft) }, None).await? {
            Response::Transacted(Ok(tasks)) => Ok(tasks),
            Response::Transacted(Err(refusal)) => Err(TransactError::Refused(refusal)),
            _ => Ok(unexpected("transact")?),
        }
    }
}
