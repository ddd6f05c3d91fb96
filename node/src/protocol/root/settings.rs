//! What operators set for the whole cluster.

use super::Reason;
use crate::limits::{HEAL_AFTER_MS_MAX, HEAL_AFTER_MS_MIN, MOVES_MAX};
use norn_client::wire::membership::Settings;

/// Whether all are within their bounds.
pub(super) fn check(settings: &Settings) -> Result<(), Reason> {
    let bound = |what, value, low, high| match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(Reason::Setting { what, value, low, high }),
    };
    if let Some(after_ms) = settings.heal_after_ms {
        bound("heal_after_ms", after_ms, HEAL_AFTER_MS_MIN, HEAL_AFTER_MS_MAX)?;
    }
    bound("moves_at_once", u64::from(settings.moves_at_once), 1, u64::from(MOVES_MAX))?;
    bound("moves_at_once_each", u64::from(settings.moves_at_once_each), 1, u64::from(MOVES_MAX))
}
