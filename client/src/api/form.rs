//! Forms of single values, for `#[serde(with = ...)]`.

/// A value as a string: its `Display` form, read back by its `FromStr`.
pub mod text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A value as a string, or `null`.
pub mod text_if_any {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Values as a list of strings.
pub mod texts {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(T::to_string))
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts: Vec<String> = Vec::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

/// Pairs of a name and a value as an object: each name once, with its first value, in the order of the pairs.
pub mod pairs {
    use serde::de::{MapAccess, Visitor};
    use serde::ser::SerializeMap;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::borrow::Cow;
    use std::collections::BTreeSet;
    use std::fmt;
    use std::marker::PhantomData;

    pub fn serialize<T: Serialize, S: Serializer>(pairs: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
        let mut names = BTreeSet::new();
        let first: Vec<_> = pairs.iter().filter(|(name, _)| names.insert(name)).collect();
        let mut map = serializer.serialize_map(Some(first.len()))?;
        for (name, value) in first {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }

    /// Pairs in their order.
    pub type List<'a, T> = Cow<'a, [(String, T)]>;

    struct Pairs<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
        type Value = Vec<(String, T)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }

    pub fn deserialize<'de, 'a, T: Deserialize<'de> + Clone, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<List<'a, T>, D::Error> {
        deserializer.deserialize_map(Pairs(PhantomData)).map(Cow::Owned)
    }
}

/// Pairs as an object, or nothing: for a field that is left out without a value.
pub mod pairs_if_any {
    use super::pairs::{self, List};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize + Clone, S: Serializer>(
        pairs: &Option<List<'_, T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match pairs {
            Some(pairs) => pairs::serialize(pairs, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, 'a, T: Deserialize<'de> + Clone, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<List<'a, T>>, D::Error> {
        pairs::deserialize(deserializer).map(Some)
    }
}

/// Outcome of a claim, or `null`. One of a later version becomes `Other` and leaves the rest readable.
pub mod outcome {
    use norn_wire::response::ClaimOutcome;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(outcome: &Option<ClaimOutcome>, serializer: S) -> Result<S::Ok, S::Error> {
        outcome.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClaimOutcome>, D::Error> {
        let name: Option<String> = Option::deserialize(deserializer)?;
        let known = |name: &str| ClaimOutcome::ALL.into_iter().find(|known| known.name() == name);
        Ok(name.map(|name| known(&name).unwrap_or(ClaimOutcome::Other)))
    }
}
