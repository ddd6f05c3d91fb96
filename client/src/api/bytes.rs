//! Bytes as text.

use super::InputError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Encoding of bytes in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// The bytes are UTF-8 and stand as they are.
    #[default]
    Utf8,
    /// Base64 with padding, of the standard alphabet (RFC 4648, section 4).
    Base64,
}

impl Encoding {
    /// Encodes bytes: as they are if they are UTF-8, otherwise in base64.
    ///
    /// ```
    /// use norn_client::api::Encoding;
    /// assert_eq!(Encoding::encode(b"hello"), ("hello".into(), Encoding::Utf8));
    /// assert_eq!(Encoding::encode(&[0xff, 0]), ("/wA=".into(), Encoding::Base64));
    /// ```
    #[must_use]
    pub fn encode(bytes: &[u8]) -> (Cow<'_, str>, Encoding) {
        match std::str::from_utf8(bytes) {
            Ok(text) => (text.into(), Encoding::Utf8),
            Err(_) => (STANDARD.encode(bytes).into(), Encoding::Base64),
        }
    }

    /// Encodes bytes, if there are any to encode.
    pub(super) fn encode_if_any<B: AsRef<[u8]>>(bytes: Option<&B>) -> (Option<Cow<'_, str>>, Option<Encoding>) {
        bytes.map(|bytes| Encoding::encode(bytes.as_ref())).unzip()
    }

    /// Decodes a string into the bytes that it stands for.
    ///
    /// ```
    /// use norn_client::api::Encoding;
    /// assert_eq!(Encoding::Base64.decode("/wA=")?, [0xff, 0]);
    /// # Ok::<(), norn_client::api::InputError>(())
    /// ```
    pub fn decode(self, text: impl Into<String>) -> Result<Vec<u8>, InputError> {
        let text = text.into();
        match self {
            Encoding::Utf8 => Ok(text.into_bytes()),
            Encoding::Base64 => STANDARD.decode(text).map_err(|error| InputError(error.to_string())),
        }
    }
}

/// Formats bytes in hexadecimal.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
