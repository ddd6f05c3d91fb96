//! Families of messages on the wire. A message is written as the variant of its family; a reader finds the family by the variant's name.

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// Implements what [`super::PeerMessage`] has of its families, each of which is a variant of the same name.
macro_rules! families {
    ($($family:ident),+) => {
        $(impl From<$family> for PeerMessage {
            fn from(message: $family) -> PeerMessage {
                PeerMessage::$family(message)
            }
        })+

        impl PeerMessage {
            /// What the message says of itself.
            pub fn properties(&self) -> kinds::Properties {
                match self {
                    $(PeerMessage::$family(message) => message.properties(),)+
                }
            }

            /// Fills in the sender's durable log position, once everything the message depends on is durable.
            pub fn set_log(&mut self, log_position: LogPosition) {
                match self {
                    $(PeerMessage::$family(message) => message.set_log(log_position),)+
                }
            }

            /// Names of all messages on the wire, by family.
            pub fn wire_names() -> Vec<&'static str> {
                [$(families::names_of::<$family>()),+].concat()
            }
        }

        impl<'de> Deserialize<'de> for PeerMessage {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<PeerMessage, D::Error> {
                /// Family of a variant.
                #[derive(Clone, Copy)]
                enum Family {
                    $($family),+
                }

                static FAMILIES: std::sync::LazyLock<families::Names<Family>> = std::sync::LazyLock::new(|| {
                    families::Names::new(&[$((families::names_of::<$family>(), Family::$family)),+])
                });

                struct Read;

                impl<'de> serde::de::Visitor<'de> for Read {
                    type Value = PeerMessage;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str("a message between nodes")
                    }

                    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, data: A) -> Result<PeerMessage, A::Error> {
                        let ((name, family), content) = data.variant_seed(&*FAMILIES)?;
                        let variant = families::Variant { name, content };
                        match family {
                            $(Family::$family => $family::deserialize(variant).map(PeerMessage::$family),)+
                        }
                    }
                }

                deserializer.deserialize_enum("PeerMessage", &[], Read)
            }
        }
    };
}
pub(super) use families;

/// Families by the names of their variants, sorted.
pub(super) struct Names<T>(Vec<(&'static str, T)>);

impl<T: Copy> Names<T> {
    pub fn new(families: &[(&[&'static str], T)]) -> Names<T> {
        let mut all: Vec<(&str, T)> =
            families.iter().flat_map(|(names, family)| names.iter().map(|name| (*name, *family))).collect();
        all.sort_by_key(|(name, _)| *name);
        assert!(all.windows(2).all(|two| two[0].0 != two[1].0), "names of messages are unique in all families");
        Names(all)
    }
}

impl<'de, T: Copy> DeserializeSeed<'de> for &Names<T> {
    type Value = (&'static str, T);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(&'static str, T), D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<T: Copy> Visitor<'_> for &Names<T> {
    type Value = (&'static str, T);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a message")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<(&'static str, T), E> {
        let place = self.0.binary_search_by_key(&name, |(name, _)| *name);
        place.map(|place| self.0[place]).map_err(|_| E::custom(format_args!("there is no message {name:?}")))
    }
}

/// A variant whose name has been read, with its content still to be read.
pub(super) struct Variant<A> {
    pub name: &'static str,
    pub content: A,
}

impl<'de, A: serde::de::VariantAccess<'de>> Deserializer<'de> for Variant<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, A: serde::de::VariantAccess<'de>> EnumAccess<'de> for Variant<A> {
    type Error = A::Error;
    type Variant = A;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, A), A::Error> {
        let name: StrDeserializer<'_, A::Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.content))
    }
}

/// Names of the variants of an enum with derived [`Deserialize`], which hands them to its deserializer.
pub(super) fn names_of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Asked) {
        Err(Answer(names)) => names,
        Ok(_) => unreachable!("nothing is read"),
    }
}

/// A deserializer that reads nothing, and fails with the names of the variants that it is asked for.
struct Asked;

#[derive(Debug, thiserror::Error)]
#[error("only the names were asked for")]
struct Answer(&'static [&'static str]);

impl serde::de::Error for Answer {
    fn custom<T: fmt::Display>(_: T) -> Answer {
        Answer(&[])
    }
}

impl<'de> Deserializer<'de> for Asked {
    type Error = Answer;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
        Err(Answer(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
