//! Readers of inputs: objects by their fields' names, whole numbers, headers.

use crate::client::walk::LOOKED_MAX;
use norn_wire::limits::{
    CLAIM_TASKS_MAX, GROUP_MEMBERS_MAX, MOVES_MAX, NODES_OF_PARTITION_MAX, PARTITIONS_MAX, UPDATES_MAX, WEIGHT_MAX,
};
use serde::de::{Error as _, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Reads a type from objects only, with a description of their fields for errors about something else. The type derives both directions
/// with `#[serde(remote = "Self")]`.
macro_rules! object_only {
    ($name:ident, $shape:literal) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str($shape)
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_any(Fields)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }
    };
}

pub(super) use object_only;

/// Whole number within bounds that a refusal names; absent for `null`.
struct Whole {
    low: i64,
    high: i64,
}

impl Visitor<'_> for Whole {
    type Value = Option<i64>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a whole number from {} to {}", self.low, self.high)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        match (self.low..=self.high).contains(&number) {
            true => Ok(Some(number)),
            false => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

fn whole<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    deserializer: D,
    low: i64,
    high: i64,
) -> Result<Option<T>, D::Error> {
    let number = deserializer.deserialize_any(Whole { low, high })?;
    let fit = |number| T::try_from(number).map_err(|_| D::Error::custom("a number out of its bounds"));
    number.map(fit).transpose()
}

/// Reads a whole number that must be there.
fn needed<'de, D: Deserializer<'de>, T: TryFrom<i64>>(deserializer: D, low: i64, high: i64) -> Result<T, D::Error> {
    let number = whole(deserializer, low, high)?;
    number.ok_or_else(|| D::Error::invalid_type(Unexpected::Unit, &Whole { low, high }))
}

/// Defines readers of whole numbers within bounds, absent if left out or `null`.
macro_rules! whole_numbers {
    ($($(#[$doc:meta])* $name:ident: $number:ty, $low:expr, $high:expr;)+) => {$(
        $(#[$doc])*
        pub fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<$number>, D::Error> {
            whole(deserializer, $low as i64, $high as i64)
        }
    )+};
}

whole_numbers! {
    /// Reads a priority.
    priority: i32, i32::MIN, i32::MAX;
    /// Reads the limit of attempts: none if left out or 0, as tasks are shown. In a change of a task, 0 removes its limit.
    attempts: u32, 0, u32::MAX;
    /// Reads the number of a member.
    member: u32, 1, GROUP_MEMBERS_MAX;
    /// Reads a length of time in milliseconds. Its own bounds are checked with the request, as for one in text.
    milliseconds: u64, 0, i64::MAX;
    /// Reads the greatest number of tasks to claim.
    claimed_max: u32, 1, CLAIM_TASKS_MAX;
    /// Reads the number of updates that a claim has written.
    updates: u32, 0, UPDATES_MAX;
    /// Reads a greatest number of tasks.
    limit: u64, 1, i64::MAX;
    /// Reads a number of tasks to confirm a change of them.
    confirmed: u64, 0, LOOKED_MAX;
    /// Reads a jitter in percent.
    percent: u8, 0, 100;
    /// Reads the weight of a member.
    weight_if_any: u32, 1, WEIGHT_MAX;
    /// Reads a number of partitions that move at once.
    moves: u32, 1, MOVES_MAX;
}

/// Reads the number of members.
pub fn total<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    needed(deserializer, 0, GROUP_MEMBERS_MAX.into())
}

/// Reads a length of time in milliseconds that must be there.
pub fn pause_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    needed(deserializer, 0, i64::MAX)
}

/// Reads a number of replicas.
pub fn replicas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    needed(deserializer, 1, NODES_OF_PARTITION_MAX as i64)
}

/// Reads the weight of a member that must be there.
pub fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    needed(deserializer, 1, WEIGHT_MAX.into())
}

/// Reads the number of a partition. The cluster checks whether the partition exists.
pub fn partition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    needed(deserializer, 0, i64::from(PARTITIONS_MAX) - 1)
}

/// Value that is written as its name. Anything but a text is refused in words, not as bad syntax.
struct Name<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Name<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = Name<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name as a text")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Name<T>, E> {
                T::deserialize(name.into_deserializer()).map(Name)
            }
        }
        deserializer.deserialize_any(Names(PhantomData))
    }
}

/// Reads a value by its name, absent if left out or `null`.
pub fn name_if_any<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let name: Option<Name<T>> = Option::deserialize(deserializer)?;
    Ok(name.map(|name| name.0))
}

/// Reads a value by its name, which may be left out, but is not `null`.
pub fn given_name<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Name::deserialize(deserializer).map(|name| Some(name.0))
}

/// Reads values by their names.
pub fn names<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let names: Vec<Name<T>> = Vec::deserialize(deserializer)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

/// Reads a value that may be left out, but is not `null`.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a setting: `None` if it is left out, and stays; `Some(None)` for `null`, which removes it.
pub fn setting<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Reads a setting that is a number, in the same way.
pub fn number_setting<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    whole(deserializer, 0, u32::MAX.into()).map(Some)
}

/// Reads a setting that is a length of time, or a large number, in the same way.
pub fn large_setting<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    whole(deserializer, 0, i64::MAX).map(Some)
}

/// Reads headers. A name given twice is refused as a mistake, since one of its values would be lost.
pub fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Headers;
    impl<'de> Visitor<'de> for Headers {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("names with a text each")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut headers = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, String>()? {
                if headers.contains_key(&name) {
                    return Err(A::Error::custom(format!("header {name:?} is given twice; a name has one value")));
                }
                headers.insert(name, value);
            }
            Ok(headers)
        }
    }
    deserializer.deserialize_map(Headers)
}
