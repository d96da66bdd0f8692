//! Base64 and hexadecimal for 32-byte keys, without branches or table look-ups on secret digits.

use core::fmt;

/// Characters of a key in base64: 43 digits and one `=`.
const BASE64_LEN: usize = 44;
/// Characters of a key in hexadecimal.
const HEX_LEN: usize = 64;

/// A text that is not a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadKey {
    /// Not 44 characters of base64 (or 64 of hex, where hex is asked for).
    Length,
    /// A character outside the alphabet, or padding bits that are not zero.
    Alphabet,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "a key is 44 characters of base64 or 64 of hexadecimal",
            Self::Alphabet => "the key contains a character that is not of its alphabet",
        })
    }
}

impl core::error::Error for BadKey {}

/// 44 characters of standard base64 with padding (RFC 4648 section 4).
pub(crate) fn to_base64(key: &[u8; 32]) -> String {
    let mut text = String::with_capacity(BASE64_LEN);
    for chunk in key.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=chunk.len() {
            text.push(base64_character((bits >> (18 - 6 * digit) & 63) as u8));
        }
    }
    text.push('=');
    text
}

/// The reverse of `to_base64`; refuses anything it would not have written.
pub(crate) fn from_base64(text: &str) -> Result<[u8; 32], BadKey> {
    let text = text.as_bytes();
    if text.len() != BASE64_LEN || text[BASE64_LEN - 1] != b'=' {
        return Err(BadKey::Length);
    }
    let mut key = [0; 32];
    let mut bad = 0;
    let mut bits = 0_u32;
    let mut held = 0;
    let mut length = 0;
    for &character in &text[..BASE64_LEN - 1] {
        let (digit, wrong) = base64_digit(character);
        bad |= wrong;
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            key[length] = (bits >> held) as u8;
            length += 1;
        }
    }
    // Two bits are left over after 43 digits.
    bad |= (bits & 3) as u8;
    if bad == 0 { Ok(key) } else { Err(BadKey::Alphabet) }
}

/// 64 lower-case hexadecimal digits.
pub(crate) fn to_hex(key: &[u8; 32]) -> String {
    let mut text = String::with_capacity(HEX_LEN);
    for byte in key {
        for digit in [byte >> 4, byte & 15] {
            let letter = between(digit, 10, 15);
            text.push(char::from(b'0' + digit + (letter & (b'a' - b'0' - 10))));
        }
    }
    text
}

/// The reverse of `to_hex`; accepts upper case too.
pub(crate) fn from_hex(text: &str) -> Result<[u8; 32], BadKey> {
    let text = text.as_bytes();
    if text.len() != HEX_LEN {
        return Err(BadKey::Length);
    }
    let mut key = [0; 32];
    let mut bad = 0;
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        for &character in pair {
            let digit = between(character, b'0', b'9') & character.wrapping_sub(b'0');
            let lower = between(character, b'a', b'f') & character.wrapping_sub(b'a' - 10);
            let upper = between(character, b'A', b'F') & character.wrapping_sub(b'A' - 10);
            let known = between(character, b'0', b'9')
                | between(character, b'a', b'f')
                | between(character, b'A', b'F');
            bad |= !known;
            *byte = *byte << 4 | digit | lower | upper;
        }
    }
    if bad == 0 { Ok(key) } else { Err(BadKey::Alphabet) }
}

/// The base64 character of a number below 64.
fn base64_character(digit: u8) -> char {
    let upper = between(digit, 0, 25) & digit.wrapping_add(b'A');
    let lower = between(digit, 26, 51) & digit.wrapping_add(b'a' - 26);
    let number = between(digit, 52, 61) & digit.wrapping_sub(4);
    let plus = between(digit, 62, 62) & b'+';
    let slash = between(digit, 63, 63) & b'/';
    char::from(upper | lower | number | plus | slash)
}

/// The number of a base64 character, and a byte that is zero if it is one.
fn base64_digit(character: u8) -> (u8, u8) {
    let ranges = [
        (b'A', b'Z', 0_u8.wrapping_sub(b'A')),
        (b'a', b'z', 26_u8.wrapping_sub(b'a')),
        (b'0', b'9', 52_u8.wrapping_sub(b'0')),
        (b'+', b'+', 62_u8.wrapping_sub(b'+')),
        (b'/', b'/', 63_u8.wrapping_sub(b'/')),
    ];
    let mut digit = 0;
    let mut known = 0;
    for (low, high, shift) in ranges {
        let inside = between(character, low, high);
        digit |= inside & character.wrapping_add(shift);
        known |= inside;
    }
    (digit, !known)
}

/// All ones if `low <= value <= high`, else zero; computed without a branch.
fn between(value: u8, low: u8, high: u8) -> u8 {
    let value = i16::from(value);
    let low = i16::from(low);
    let high = i16::from(high);
    let outside = (value - low) | (high - value);
    !(outside >> 15) as u8
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::Random;
    use crate::tests::testing::Seeded;

    #[test]
    fn base64_and_hexadecimal_agree_with_another_implementation_and_come_back() {
        let mut random = Seeded(1);
        let mut key = [0; 32];
        for round in 0..1000 {
            assert_eq!(to_base64(&key), STANDARD.encode(key), "round {round}");
            assert_eq!(from_base64(&to_base64(&key)), Ok(key));
            let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(to_hex(&key), hex);
            assert_eq!(from_hex(&hex), Ok(key));
            assert_eq!(from_hex(&hex.to_uppercase()), Ok(key));
            random.fill(&mut key);
        }
    }

    #[test]
    fn one_wrong_character_anywhere_is_refused() {
        let key = [0x5a; 32];
        let (base64, hex) = (to_base64(&key), to_hex(&key));
        for byte in 0..=127_u8 {
            for place in 0..43 {
                let mut text = base64.clone().into_bytes();
                text[place] = byte;
                let text = String::from_utf8(text).expect("ascii");
                let theirs = STANDARD.decode(&text).ok().and_then(|key| key.try_into().ok());
                assert_eq!(from_base64(&text).ok(), theirs, "{text}");
            }
            let mut text = hex.clone().into_bytes();
            text[7] = byte;
            let text = String::from_utf8(text).expect("ascii");
            assert_eq!(from_hex(&text).is_ok(), byte.is_ascii_hexdigit(), "{text}");
        }
        for text in ["", "=", &base64[..43], &format!("{base64}="), &hex[1..], "é"] {
            assert_eq!(from_base64(text), Err(BadKey::Length));
            assert_eq!(from_hex(text), Err(BadKey::Length));
        }
    }
}
