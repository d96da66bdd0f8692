//! SipHash (Aumasson, Bernstein 2012): a keyed hash, so that nobody outside can choose packets
//! that collide in the table of flows. One round a word and three at the end, as the standard
//! library's tables use it.

/// Hashes `words` under `key`, as the bytes that they are in little-endian order.
#[inline]
pub(crate) fn hash(key: [u64; 2], words: &[u64]) -> u64 {
    sip::<1, 3>(key, words)
}

#[inline]
fn sip<const WORD: usize, const END: usize>(key: [u64; 2], words: &[u64]) -> u64 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let last = (words.len() as u64 * 8) << 56;
    for &word in words.iter().chain([&last]) {
        state[3] ^= word;
        (0..WORD).for_each(|_| round(&mut state));
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    (0..END).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[inline]
fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_hold() {
        // SipHash-2-4 of the bytes 0, 1, 2, ... under the key 00 01 .. 0f (reference code).
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(sip::<2, 4>(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(sip::<2, 4>(key, &[0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    #[expect(clippy::disallowed_types, reason = "the standard library's hash is the model")]
    fn it_is_the_hash_of_the_standard_library() {
        use std::hash::{DefaultHasher, Hasher as _};
        for words in [vec![], vec![1], vec![u64::MAX, 7, 1 << 63, 0, 5]] {
            let mut model = DefaultHasher::new();
            words.iter().for_each(|word: &u64| model.write(&word.to_le_bytes()));
            assert_eq!(hash([0, 0], &words), model.finish());
        }
    }
}
