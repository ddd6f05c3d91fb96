//! Ends of claims as they are stored: with a reason of bounded length.

use super::PastClaim;
use crate::limits::{CLAIM_REASON_BYTES_MAX, CLAIM_REASONS_BYTES_MAX};
use norn_wire::Token;
use norn_wire::response::{ClaimEnd, ClaimOutcome};
use std::sync::Arc;

/// Marks what was cut off.
const CUT: &str = "… (cut)";

/// The end of a claim; an empty reason is none.
pub fn claim_end(outcome: ClaimOutcome, at_ms: u64, reason: &str) -> Arc<ClaimEnd> {
    let reason = (!reason.is_empty()).then(|| cut(reason));
    Arc::new(ClaimEnd { outcome, at_ms, reason })
}

/// Whether a claim may have ended for this reason: where the reason is not kept, any may match.
pub fn is_reason(end: &ClaimEnd, reason: &str) -> bool {
    end.reason.as_deref().is_none_or(|kept| kept == CUT || kept == cut(reason))
}

fn cut(reason: &str) -> String {
    if reason.len() <= CLAIM_REASON_BYTES_MAX {
        return reason.to_owned();
    }
    let end = reason.floor_char_boundary(CLAIM_REASON_BYTES_MAX - CUT.len());
    assert!(end + CUT.len() <= CLAIM_REASON_BYTES_MAX, "a reason is cut too late");
    format!("{}{CUT}", &reason[..end])
}

/// Keeps the reasons of the latest past claims of a task (oldest first) up to a bound of bytes, and cuts the others.
pub fn bound_reasons(past: &mut [(Token, PastClaim)]) {
    let mut bytes = 0;
    for (_, claim) in past.iter_mut().rev() {
        let Some(end) = claim.end.as_ref().filter(|end| end.reason.is_some()) else { continue };
        bytes += end.reason.as_ref().map_or(0, String::len);
        if bytes > CLAIM_REASONS_BYTES_MAX && end.reason.as_deref() != Some(CUT) {
            claim.end = Some(Arc::new(ClaimEnd { reason: Some(CUT.to_owned()), ..**end }));
        }
    }
}

/// Bytes, for budgets.
pub fn end_bytes(end: &ClaimEnd) -> usize {
    48 + end.reason.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(end: &ClaimEnd) -> &str {
        end.reason.as_deref().unwrap_or_default()
    }

    #[test]
    fn a_long_reason_is_cut_between_characters_and_says_so() {
        let failed = |text: &str| claim_end(ClaimOutcome::Failed, 7, text);
        let most = "r".repeat(CLAIM_REASON_BYTES_MAX);
        assert_eq!((reason(&failed(&most)), &failed("").reason), (most.as_str(), &None));
        for text in ["r".repeat(CLAIM_REASON_BYTES_MAX + 1), "é".repeat(1_000), format!("r{}", "é".repeat(1_000))] {
            let end = failed(&text);
            let kept = reason(&end).strip_suffix(CUT).expect("it says that it is cut");
            assert!(text.starts_with(kept) && kept.len() + CUT.len() >= CLAIM_REASON_BYTES_MAX - 1, "{kept}");
            assert!(reason(&end).len() <= CLAIM_REASON_BYTES_MAX, "{}", reason(&end).len());
        }
    }

    #[test]
    fn the_latest_claims_keep_their_reasons() {
        let text = "r".repeat(CLAIM_REASON_BYTES_MAX);
        let claim = |number: u64| {
            let end = Some(claim_end(ClaimOutcome::Failed, number, &text));
            (Token { epoch: 1, number }, PastClaim { start_ms: 1, end_ms: 2, worker: "w".into(), end })
        };
        let mut past: Vec<_> = (1..=10).map(claim).collect();
        bound_reasons(&mut past);
        let ends: Vec<&ClaimEnd> = past.iter().map(|(_, claim)| claim.end.as_deref().expect("it stays")).collect();
        let whole = ends.iter().filter(|end| reason(end) == text).count();
        assert_eq!(whole, CLAIM_REASONS_BYTES_MAX / CLAIM_REASON_BYTES_MAX);
        assert!(ends[..10 - whole].iter().all(|end| reason(end) == CUT), "{ends:?}");
        assert!(ends.iter().zip(1..).all(|(end, number)| end.at_ms == number), "{ends:?}");
    }
}
