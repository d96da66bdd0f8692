//! Bytes as text, and how keys stand in JSON: base64, 44 characters, as WireGuard prints them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// Base64 with padding (RFC 4648 section 4).
#[must_use]
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The reverse of [`to_base64`]; `None` for anything that it would not have written.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Base64 for URLs, without padding (RFC 4648 section 5).
#[must_use]
pub fn to_base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The reverse of [`to_base64url`].
#[must_use]
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Whether `text` has only characters that are harmless wherever they are shown: no control
/// characters, no white space but the plain one, nothing outside ASCII (threat CO-19).
#[must_use]
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Unix seconds as RFC 3339 in UTC, as in `2026-11-21T18:19:44Z`.
#[must_use]
pub fn rfc3339(unix_s: u64) -> String {
    const DAY_S: u64 = 86_400;
    // The year 9999 is the last that RFC 3339 can write.
    let unix_s = unix_s.min(253_402_300_799);
    let days = unix_s / DAY_S;
    let second = unix_s % DAY_S;
    // Days since 0000-03-01, in eras of 400 years, so that the leap day is the last of its year.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// For `#[serde(with)]`: a WireGuard or Noise public key as base64.
pub mod key {
    use core::fmt;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use noise::PublicKey;
    use serde::de::{Deserializer, Visitor};
    use serde::ser::{Error as _, Serializer};

    /// Writes the key as 44 characters.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(key: &PublicKey, to: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; 44];
        let len = STANDARD.encode_slice(key.0, &mut text).map_err(S::Error::custom)?;
        to.serialize_str(str::from_utf8(&text[..len]).map_err(S::Error::custom)?)
    }

    /// Reads 44 characters.
    ///
    /// # Errors
    /// If the text is no key.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
        from.deserialize_str(Text)
    }

    /// Reads the text where it lies: a map has thousands of keys.
    struct Text;

    impl Visitor<'_> for Text {
        type Value = PublicKey;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a key of 44 characters")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PublicKey, E> {
            // One byte more than a key has, as the library reckons by fours.
            let mut key = [0; 33];
            match STANDARD.decode_slice(text, &mut key) {
                Ok(32) => Ok(PublicKey(core::array::from_fn(|at| key[at]))),
                _ => Err(E::custom("not a key of 44 characters")),
            }
        }
    }
}

/// For `#[serde(with)]`: bytes as base64.
pub(crate) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<T: AsRef<[u8]>, S: Serializer>(
        bytes: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::to_base64(bytes.as_ref()))
    }

    pub(crate) fn deserialize<'de, T: TryFrom<Vec<u8>>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = super::from_base64(&text).ok_or_else(|| D::Error::custom("not base64"))?;
        T::try_from(bytes).map_err(|_| D::Error::custom("another length is wanted"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_285_184, "2026-11-21T18:19:44Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(unix_s), text);
        }
    }
}
