//! Findings of `norn doctor`.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A check and its finding: a line of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Finding<'a> {
    /// Name of the check, which does not change from version to version.
    pub check: Cow<'a, str>,
    /// Outcome.
    pub outcome: CheckOutcome,
    /// What was seen, for people. Begins with `not checked: ` where the check was not possible.
    pub seen: Cow<'a, str>,
    /// What to do, for people; `null` if there is nothing to do.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub advice: Option<Cow<'a, str>>,
}

/// Outcome of a check, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum CheckOutcome {
    /// Nothing is wrong.
    Ok,
    /// Something will need attention, or could not be checked.
    Warn,
    /// Something is wrong.
    Fail,
}

impl CheckOutcome {
    /// Returns the name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CheckOutcome::Ok => "OK",
            CheckOutcome::Warn => "WARN",
            CheckOutcome::Fail => "FAIL",
        }
    }
}

impl Finding<'static> {
    /// Creates the finding of a check with nothing wrong.
    #[must_use]
    pub fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Finding { check: check.into(), outcome: CheckOutcome::Ok, seen: Cow::Owned(seen.into()), advice: None }
    }

    /// Creates the finding of a check that will need attention.
    #[must_use]
    pub fn warn(check: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { outcome: CheckOutcome::Warn, advice: Some(Cow::Owned(advice.into())), ..Finding::ok(check, seen) }
    }

    /// Creates the finding of a check with something wrong.
    #[must_use]
    pub fn fail(check: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { outcome: CheckOutcome::Fail, advice: Some(Cow::Owned(advice.into())), ..Finding::ok(check, seen) }
    }

    /// Creates the finding of a check that was not possible, with the reason.
    #[must_use]
    pub fn not_checked(check: &'static str, why: &str, advice: impl Into<String>) -> Self {
        Finding::warn(check, format!("not checked: {why}"), advice)
    }
}
