//! Identifiers and their text forms.

use serde::{Deserialize, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

/// Parse error of an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

macro_rules! byte_serde {
    ($name:ident, $length:expr) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(&self.to_bytes())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let bytes: serde_bytes::ByteArray<{ $length }> = Deserialize::deserialize(deserializer)?;
                Ok($name::from_bytes(bytes.into_array()))
            }
        }
    };
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Bits of the routing tag at the end of a [`TaskId`].
pub const TAG_BITS: u32 = 24;

/// A 160-bit flake id: `[64 time ms | 32 counter | 40 minter | 24 routing tag]`, big-endian, so that byte
/// order is age order. Its text is 32 characters of lower-case Crockford base32 that sort as the ids do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TaskId([u8; 20]);

// As two integers: comparing the bytes is a function call, and every search of a sorted map compares several.
impl Ord for TaskId {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.halves().cmp(&other.halves())
    }
}

impl PartialOrd for TaskId {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl TaskId {
    /// The smallest id.
    pub const MIN: TaskId = TaskId([0; 20]);
    /// The largest id.
    pub const MAX: TaskId = TaskId([0xff; 20]);

    /// Composes an id. `minter` has 40 significant bits, `tag` 24.
    pub fn new(time_ms: u64, counter: u32, minter: u64, tag: u32) -> Self {
        assert!(minter < 1 << 40, "a minter has 40 bits");
        assert!(tag < 1 << TAG_BITS, "a tag has 24 bits");
        let mut bytes = [0; 20];
        bytes[0..8].copy_from_slice(&time_ms.to_be_bytes());
        bytes[8..12].copy_from_slice(&counter.to_be_bytes());
        bytes[12..17].copy_from_slice(&minter.to_be_bytes()[3..8]);
        bytes[17..20].copy_from_slice(&tag.to_be_bytes()[1..4]);
        let id = TaskId(bytes);
        assert_eq!(id.tag(), tag);
        id
    }

    /// Returns the id of a named task that begins at this time, in milliseconds since the Unix epoch. Every client computes the same id,
    /// so the task is stored once. Two names collide by chance once in 2^48 names.
    ///
    /// The time must be close to the present and the same for all callers: a task older than those already forgotten is refused.
    pub fn named(time_ms: u64, name: &[u8]) -> Self {
        let hash = xxh3_128(name).to_be_bytes();
        let mut bytes = [0; 20];
        bytes[0..8].copy_from_slice(&time_ms.to_be_bytes());
        bytes[8..20].copy_from_slice(&hash[..12]);
        TaskId(bytes)
    }

    /// From big-endian bytes.
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        TaskId(bytes)
    }

    /// The first 16 bytes and the last 4 as integers, in whose order ids are.
    #[inline]
    fn halves(&self) -> (u128, u32) {
        let [head @ .., a, b, c, d] = self.0;
        (u128::from_be_bytes(head), u32::from_be_bytes([a, b, c, d]))
    }

    /// Big-endian bytes.
    pub const fn to_bytes(self) -> [u8; 20] {
        self.0
    }

    /// View of the bytes.
    pub fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Time of minting, in milliseconds since the Unix epoch by the minter's clock.
    pub fn time_ms(&self) -> u64 {
        u64::from_be_bytes(self.0[0..8].try_into().expect("eight bytes"))
    }

    /// Minter: the 40-bit field that keeps ids of different minters apart.
    pub fn minter(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[3..8].copy_from_slice(&self.0[12..17]);
        u64::from_be_bytes(bytes)
    }

    /// Returns the id with another routing tag.
    #[must_use]
    pub fn with_tag(self, tag: u32) -> TaskId {
        assert!(tag < 1 << TAG_BITS, "a tag has 24 bits");
        let mut bytes = self.0;
        bytes[17..20].copy_from_slice(&tag.to_be_bytes()[1..4]);
        TaskId(bytes)
    }

    /// Routing tag of 24 bits, which determines the partition.
    pub fn tag(&self) -> u32 {
        u32::from_be_bytes([0, self.0[17], self.0[18], self.0[19]])
    }
}

byte_serde!(TaskId, 20);

impl fmt::Display for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 32];
        for (index, chunk) in self.0.chunks_exact(5).enumerate() {
            let mut word = chunk.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            for place in (0..8).rev() {
                text[index * 8 + place] = ALPHABET[(word & 31) as usize];
                word >>= 5;
            }
        }
        formatter.pad(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

fn digit(character: u8) -> Option<u64> {
    let lower = match character.to_ascii_lowercase() {
        b'o' => b'0',
        b'i' | b'l' => b'1',
        other => other,
    };
    ALPHABET.iter().position(|letter| *letter == lower).map(|value| value as u64)
}

impl FromStr for TaskId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.len() != 32 {
            return Err(ParseError(format!("a task id has 32 characters, this has {}: {text:?}", text.len())));
        }
        let mut bytes = [0; 20];
        for (index, chunk) in text.as_bytes().chunks_exact(8).enumerate() {
            let mut word = 0u64;
            for character in chunk {
                let value = digit(*character)
                    .ok_or_else(|| ParseError(format!("{:?} is no character of a task id", char::from(*character))))?;
                word = word << 5 | value;
            }
            bytes[index * 5..index * 5 + 5].copy_from_slice(&word.to_be_bytes()[3..8]);
        }
        Ok(TaskId(bytes))
    }
}

/// Fencing token: the epoch of the leader that granted a claim, and the number of the grant within it. Tokens of one task strictly
/// increase, so any outside store can refuse the smaller one. Text: `EPOCH.NUMBER`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Token {
    /// Epoch of the partition's leader.
    pub epoch: u64,
    /// Number of the grant within the epoch, from 1; above [`Token::SEALED_FROM`] if the completion needs a seal.
    pub number: u64,
}

impl Token {
    /// Lower bound of the numbers of claims whose completion counts only once the leader has sealed it. No leader grants as many others
    /// in one epoch. So the token of a completion alone says whether the completion ends the task.
    pub const SEALED_FROM: u64 = 1_000_000_000_000_000;

    /// Returns the token of a copy, which belongs to no claim. The copy of a dead task is stored under it in the facts of the dead task,
    /// as children are stored under the token of their claim. Different copies have different tokens.
    pub fn of_copy(copy: TaskId) -> Token {
        let [.., a, b, c, d, e, f, g, h, _, _, _, _] = copy.to_bytes();
        Token { epoch: u64::from_be_bytes([a, b, c, d, e, f, g, h]), number: u64::MAX }
    }

    /// Whether it is the token of a copy.
    pub fn is_of_copy(self) -> bool {
        self.number == u64::MAX
    }

    /// Whether a completion under it counts only with the leader's seal.
    pub fn needs_seal(self) -> bool {
        self.number > Token::SEALED_FROM
    }
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{}.{}", self.epoch, self.number))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Token {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError(format!("a token is EPOCH.NUMBER, for example 7.42, not {text:?}"));
        let (epoch, number) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Token { epoch: epoch.parse().map_err(|_| wrong())?, number: number.parse().map_err(|_| wrong())? })
    }
}

/// Version of a task: it differs unless the task is byte for byte the same, with the same log and the same claim. It is a hash, so two
/// versions tell nothing but equality. Text: 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TaskVersion(pub u64);

impl fmt::Display for TaskVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{:016x}", self.0))
    }
}

impl fmt::Debug for TaskVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for TaskVersion {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError(format!("a version is 16 hexadecimal digits, as `get` tells them, not {text:?}"));
        if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u64::from_str_radix(text, 16).map(TaskVersion).map_err(|_| wrong())
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u128);

        impl $name {
            /// Big-endian bytes.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// From big-endian bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                $name(u128::from_be_bytes(bytes))
            }
        }

        byte_serde!($name, 16);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(&format!("{:032x}", self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}", &format!("{:032x}", self.0)[..8])
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                let wrong = || ParseError(format!("32 hexadecimal digits are wanted, not {text:?}"));
                if text.len() != 32 {
                    return Err(wrong());
                }
                u128::from_str_radix(text, 16).map($name).map_err(|_| wrong())
            }
        }
    };
}

random_id! {
    /// Identity of a node: 128 random bits, drawn into its data directory at the first start.
    NodeId
}
random_id! {
    /// Identity of a cluster: 128 random bits, drawn at `cluster init`.
    ClusterId
}
random_id! {
    /// Id of one claim call of one session: a repeated call carries the same id and gets the same grants.
    ClaimId
}

/// A partition of the id space: the upper bits of the routing tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PartitionId(pub u16);

impl PartitionId {
    /// Metadata group: holds the members and the layout. It has no tasks.
    pub const METADATA: PartitionId = PartitionId(u16::MAX - 1);
}

impl fmt::Display for PartitionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == PartitionId::METADATA { formatter.pad("root") } else { fmt::Display::fmt(&self.0, formatter) }
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "p{}", self.0)
    }
}

/// A queue's name: `namespace/queue`, or `queue` in the default namespace; 255 bytes at most.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct QueueName(Arc<Box<str>>);

/// One word, since each task of a node has one.
const _: () = assert!(size_of::<Option<QueueName>>() == size_of::<usize>());

impl QueueName {
    /// Longest name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Parses a name. Allowed are visible characters except commas, and at most one `/`, with text on both sides of it.
    pub fn new(name: &str) -> Result<Self, ParseError> {
        QueueName::check(name)?;
        Ok(QueueName(Arc::new(name.into())))
    }

    fn check(name: &str) -> Result<(), ParseError> {
        let wrong = |why: &str| Err(ParseError(format!("queue name {name:?}: {why}")));
        if name.is_empty() {
            return wrong("it is empty");
        }
        if name.len() > Self::BYTES_MAX {
            return wrong("it is longer than 255 bytes");
        }
        if name.chars().any(|character| character.is_whitespace() || character.is_control() || character == ',') {
            return wrong("white space, control characters and commas are not allowed");
        }
        let mut parts = name.split('/');
        if parts.by_ref().take(2).any(str::is_empty) || parts.next().is_some() {
            return wrong("the form is `namespace/queue` or `queue`");
        }
        Ok(())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Serialized without a copy, because every record and message of a task contains one.
impl Serialize for QueueName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl TryFrom<String> for QueueName {
    type Error = ParseError;

    fn try_from(name: String) -> Result<Self, ParseError> {
        QueueName::check(&name)?;
        Ok(QueueName(Arc::new(name.into_boxed_str())))
    }
}

impl From<QueueName> for String {
    fn from(name: QueueName) -> String {
        name.as_str().to_owned()
    }
}

impl FromStr for QueueName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        QueueName::new(text)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S15
    #[test]
    fn text_of_ids_sorts_as_the_ids_do_and_reads_back() {
        let ids = [
            TaskId::MIN,
            TaskId::new(1, 0, 0, 0),
            TaskId::new(1, 1, 7, 0xff_ffff),
            TaskId::new(1_700_000_000_000, 5, (1 << 40) - 1, 3),
            TaskId::MAX,
        ];
        for pair in ids.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].to_string() < pair[1].to_string());
        }
        // Each of its bytes counts, the earlier ones more.
        for (place, byte) in (0..20).flat_map(|place| [(place, 1), (place, 0xff)]) {
            let (mut bytes, mut after) = ([0x80; 20], [0x80; 20]);
            (bytes[place], after[place]) = (byte - 1, byte);
            after[place + 1..].fill(0);
            assert!(TaskId::from_bytes(bytes) < TaskId::from_bytes(after), "byte {place}");
            assert_eq!(TaskId::from_bytes(bytes).cmp(&TaskId::from_bytes(bytes)), Ordering::Equal);
        }
        for id in ids {
            assert_eq!(id.to_string().parse::<TaskId>(), Ok(id));
            assert_eq!(id.to_string().to_uppercase().parse::<TaskId>(), Ok(id));
        }
    }

    #[test]
    fn fields_of_an_id_read_back() {
        let id = TaskId::new(42, 7, 0x12_3456_789a, 0xab_cdef);
        assert_eq!((id.time_ms(), id.minter(), id.tag()), (42, 0x12_3456_789a, 0xab_cdef));
    }

    #[test]
    fn tokens_sort_by_epoch_then_number() {
        assert!("7.42".parse::<Token>().unwrap() < "10.1".parse().unwrap());
        assert!("7.9".parse::<Token>().unwrap() < "7.10".parse().unwrap());
        assert!("7".parse::<Token>().is_err() && "7.x".parse::<Token>().is_err() && "".parse::<Token>().is_err());
    }

    // S14
    #[test]
    fn queue_names_are_checked() {
        for good in ["mail", "team/mail", "a-b_c.d"] {
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "/", "a/", "/a", "a/b/c", "a b", "a\nb", "a,b", &"x".repeat(256)] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
    }
}
