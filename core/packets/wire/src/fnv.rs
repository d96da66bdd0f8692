//! FNV-1a of 64 bits: what things are told apart by where nobody wins by two that are alike.
//!
//! It keeps nothing secret and proves nothing: who wants two texts of one sum can make them.

/// The sum of nothing.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// The sum of `bytes`.
#[must_use]
pub fn sum(bytes: impl IntoIterator<Item = u8>) -> u64 {
    go_on(EMPTY, bytes)
}

/// The sum when `bytes` follow those of which `sum` is; or another sum, if `sum` is any number.
#[must_use]
pub fn go_on(sum: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(sum, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_its_authors_in_one_piece_and_in_two() {
        for (text, is) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(sum(text.bytes()), is, "{text}");
        }
        assert_eq!(go_on(sum("foo".bytes()), "bar".bytes()), sum("foobar".bytes()));
    }
}
