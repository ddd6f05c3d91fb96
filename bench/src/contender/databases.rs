//! Two embedded databases as contenders. They are behind a feature, because they take longer to compile than the other benchmarks.

use super::{Batch, Contender};
use anyhow::{Context, Result};
use redb::{Durability, TableDefinition};
use std::path::Path;

/// Table of the records, by number.
const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("records");

/// A log-structured store: one write batch for each batch, with the cheapest mode that makes it durable.
pub struct Fjall {
    database: fjall::Database,
    records: fjall::Keyspace,
    number: u64,
}

impl Fjall {
    /// Opens the store in a directory.
    pub fn new(directory: &Path) -> Result<Fjall> {
        let database = fjall::Database::builder(directory).open()?;
        let records = database.keyspace("records", fjall::KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, records, number: 0 })
    }
}

impl Contender for Fjall {
    fn name(&self) -> &'static str {
        "fjall, SyncData"
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut writes = self.database.batch().durability(Some(fjall::PersistMode::SyncData));
        for body in &batch.bodies {
            self.number += 1;
            writes.insert(&self.records, self.number.to_be_bytes(), body.as_slice());
        }
        Ok(writes.commit()?)
    }
}

/// A copy-on-write tree: one transaction for each batch.
pub struct Redb {
    database: redb::Database,
    number: u64,
}

impl Redb {
    /// Opens the store in a directory.
    pub fn new(directory: &Path) -> Result<Redb> {
        let database = redb::Database::create(directory.join("redb")).context("no database")?;
        Ok(Redb { database, number: 0 })
    }
}

impl Contender for Redb {
    fn name(&self) -> &'static str {
        "redb, Durability::Immediate"
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut records = transaction.open_table(TABLE)?;
            for body in &batch.bodies {
                self.number += 1;
                records.insert(self.number, body.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }
}
