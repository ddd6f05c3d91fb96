//! How a table is written: in the log and on the wire.

use super::table::Table;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

impl Serialize for Table {
    /// Fields that came later are left out from the end, where there is nothing in them: older programs know none of them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const OLDEST: usize = 6;
        let later = [
            self.root.is_some(),
            self.schedules.is_some(),
            !self.reserved.is_empty(),
            !self.quotas.is_empty(),
            !self.ledger.is_empty(),
            !self.levels.is_empty(),
        ];
        let count = OLDEST + later.iter().rposition(|is_there| *is_there).map_or(0, |place| place + 1);
        let mut table = serializer.serialize_struct("Table", count)?;
        table.serialize_field("founders", &self.founders)?;
        table.serialize_field("cells", &self.cells)?;
        table.serialize_field("out", &self.out)?;
        table.serialize_field("digest", &self.digest())?;
        table.serialize_field("forgetting", &self.forgetting)?;
        table.serialize_field("cohort", &self.cohort)?;
        if count > OLDEST {
            table.serialize_field("root", &self.root)?;
        }
        if count > OLDEST + 1 {
            table.serialize_field("schedules", &self.schedules)?;
        }
        if count > OLDEST + 2 {
            table.serialize_field("reserved", &self.reserved)?;
        }
        if count > OLDEST + 3 {
            table.serialize_field("quotas", &self.quotas)?;
        }
        if count > OLDEST + 4 {
            table.serialize_field("ledger", &self.ledger)?;
        }
        if count > OLDEST + 5 {
            table.serialize_field("levels", &self.levels)?;
        }
        table.end()
    }
}
