//! Keys of callers (`Idempotency-Key`), and the requests that they were given with.

use super::described::IDEMPOTENCY_KEY;
use crate::problem::Problem;
use axum::http::{HeaderMap, StatusCode};
use norn_wire::Retry;
use ring::digest::{Context as Digest, SHA256};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Longest key.
const KEY_BYTES_MAX: usize = 255;
/// Keys that a node remembers; the oldest is forgotten first.
const KEYS_MAX: usize = 16_384;

type Hash = [u8; 32];

fn hash(parts: &[&[u8]]) -> Hash {
    let mut digest = Digest::new(&SHA256);
    for part in parts {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.finish().as_ref());
    hash
}

/// The latest keys that this node has seen, with hashes of their requests.
#[derive(Debug, Default)]
pub struct Keys(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    requests: HashMap<Hash, Hash>,
    order: VecDeque<Hash>,
}

impl Keys {
    /// The name of a request that its caller may repeat under a key, if there is one. A principal cannot repeat the requests of another.
    ///
    /// A key belongs to the first request that it came with. Another request under the same key has another name, so that no node takes
    /// it for a repeat; the node that saw the first one refuses it.
    pub fn name(&self, headers: &HeaderMap, principal: &str, request: &[u8]) -> Result<Option<u128>, Problem> {
        let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(key) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return Err(Problem::invalid("a request has one Idempotency-Key"));
        }
        if !(1..=KEY_BYTES_MAX).contains(&key.as_bytes().len()) {
            return Err(Problem::invalid(format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} bytes")));
        }
        let key = hash(&[principal.as_bytes(), key.as_bytes()]);
        if !self.take(key, hash(&[request])) {
            let why = "the Idempotency-Key was given with another request before; give this one a key of its own";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", Retry::Never, why));
        }
        let hash = hash(&[&key, request]);
        Ok(Some(hash.iter().take(16).fold(0, |name, byte| name << 8 | u128::from(*byte))))
    }

    /// Whether the key is new or belongs to this request.
    fn take(&self, key: Hash, request: Hash) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = seen.requests.get(&key) {
            return *first == request;
        }
        if seen.order.len() >= KEYS_MAX
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.requests.remove(&oldest);
        }
        seen.order.push_back(key);
        seen.requests.insert(key, request);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(keys: &Keys, key: &str, principal: &str, request: &str) -> Result<Option<u128>, u16> {
        let headers = [(IDEMPOTENCY_KEY, key.parse().unwrap())].into_iter().collect();
        keys.name(&headers, principal, request.as_bytes()).map_err(|problem| problem.status)
    }

    #[test]
    fn a_key_belongs_to_a_principal_and_to_its_first_request() {
        let (keys, other_node) = (Keys::default(), Keys::default());
        let first = name(&keys, "a", "ops", "{}").unwrap();
        assert_eq!(name(&keys, "a", "ops", "{}"), Ok(first));
        assert_eq!(name(&other_node, "a", "ops", "{}"), Ok(first), "any node takes the repeat");
        assert_eq!(name(&keys, "a", "ops", "{\"max\":2}"), Err(422));
        assert_ne!(name(&other_node, "a", "web", "{}"), Ok(first));
        assert_ne!(name(&other_node, "b", "ops", "{}"), Ok(first));
        assert_ne!(
            name(&Keys::default(), "a", "ops", "{\"max\":2}"),
            Ok(first),
            "no node takes another request for a repeat"
        );
    }

    #[test]
    fn a_key_is_one_and_of_some_length() {
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        assert_eq!(name(&Keys::default(), "", "ops", ""), Err(400));
        assert_eq!(name(&Keys::default(), &long, "ops", ""), Err(400));
        let mut two = HeaderMap::new();
        two.append(IDEMPOTENCY_KEY, "a".parse().unwrap());
        two.append(IDEMPOTENCY_KEY, "b".parse().unwrap());
        assert_eq!(Keys::default().name(&two, "ops", b"").unwrap_err().status, 400);
        assert_eq!(Keys::default().name(&HeaderMap::new(), "ops", b"").unwrap(), None);
    }

    #[test]
    fn keys_are_bounded() {
        let keys = Keys::default();
        for number in 0..=KEYS_MAX {
            assert!(name(&keys, &number.to_string(), "ops", "{}").is_ok());
        }
        assert_eq!(keys.0.lock().unwrap().requests.len(), KEYS_MAX);
        assert_eq!(name(&keys, &KEYS_MAX.to_string(), "ops", "{\"max\":2}"), Err(422));
        assert!(name(&keys, "0", "ops", "{\"max\":2}").is_ok(), "the oldest is forgotten");
    }
}
