//! Readers of inputs: objects by their fields' names, whole numbers, headers.

use norn_wire::limits::GROUP_MEMBERS_MAX;
use serde::Deserializer;
use serde::de::{Error as _, MapAccess, Unexpected, Visitor};
use std::collections::BTreeMap;
use std::fmt;

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

/// Reads a priority.
pub fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    whole(deserializer, i32::MIN.into(), i32::MAX.into())
}

/// Reads the limit of attempts: none if left out or 0, as tasks are shown. In a change of a task, 0 removes its limit.
pub fn attempts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    whole(deserializer, 0, u32::MAX.into())
}

/// Reads the number of a member.
pub fn member<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    whole(deserializer, 1, GROUP_MEMBERS_MAX.into())
}

/// Reads the number of members.
pub fn total<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let total = whole(deserializer, 0, GROUP_MEMBERS_MAX.into())?;
    total.ok_or_else(|| D::Error::invalid_type(Unexpected::Unit, &Whole { low: 0, high: GROUP_MEMBERS_MAX.into() }))
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
