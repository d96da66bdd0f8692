//! Passwords of local users, as hashes that cost memory and time: Argon2id (RFC 9106), with the
//! parameters that OWASP names as the least, in the form of the password hashing competition
//! (`$argon2id$v=19$m=19456,t=2,p=1$salt$hash`). What a stored hash says of itself is what it is
//! checked with, so that later versions may ask for more.
//!
//! A user who is not there costs as much time as one who is (threat WB-05).

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use noise::Random as _;

use crate::keys::SystemRandom;

/// Characters of a password, at least; and bytes, at most (SP 800-63B asks for 8 and 64).
pub(crate) const LEN_MIN: usize = 12;
const BYTES_MAX: usize = 256;
/// Kibibytes of memory.
const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
/// What a stored hash may ask for at most: whoever writes into the books must not stop the server.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;
const PASSES_MAX: u32 = 64;
const SALT_LEN: usize = 16;
const HASH_LEN: usize = 32;

/// Why a text is no password.
pub(crate) fn fault(password: &str) -> Option<String> {
    let is_one = |first: char| password.chars().all(|c| c == first);
    if password.chars().count() < LEN_MIN {
        return Some(format!("a password has at least {LEN_MIN} characters"));
    }
    if password.len() > BYTES_MAX {
        return Some(format!("a password has at most {BYTES_MAX} bytes"));
    }
    password.chars().next().filter(|c| is_one(*c)).map(|_| {
        "a password of one character, however often, is guessed at once; take another".to_owned()
    })
}

/// A hash to be kept, with a salt of its own.
pub(crate) fn hash(password: &str) -> String {
    let mut salt = [0; SALT_LEN];
    SystemRandom.fill(&mut salt);
    let memory = MEMORY_KIB;
    let passes = PASSES;
    let hash = computed(password, &salt, memory, passes).expect("these costs are sound");
    let salt = BASE64.encode(salt);
    let hash = BASE64.encode(hash);
    format!("$argon2id$v=19$m={memory},t={passes},p=1${salt}${hash}")
}

/// Whether the password is the one of a kept hash; `None` stands for a user who has none, and
/// costs as much.
pub(crate) fn is_right(password: &str, kept: Option<&str>) -> bool {
    let nobody =
        Kept { memory: MEMORY_KIB, passes: PASSES, salt: vec![0; SALT_LEN], hash: [0; 32] };
    let known = kept.and_then(read);
    let is_known = known.is_some();
    let Kept { memory, passes, salt, hash } = known.unwrap_or(nobody);
    // A text that is too long is no password of anybody, and is not worth the work of its length.
    let cut = password.get(..BYTES_MAX).unwrap_or(password);
    let Some(found) = computed(cut, &salt, memory, passes) else { return false };
    let is_same = is_equal(&found, &hash);
    is_same && is_known && password.len() <= BYTES_MAX
}

/// Compares in a time that says nothing of where two differ.
pub(crate) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differs) == 0
}

struct Kept {
    memory: u32,
    passes: u32,
    salt: Vec<u8>,
    hash: [u8; HASH_LEN],
}

fn read(kept: &str) -> Option<Kept> {
    let mut parts = kept.strip_prefix("$argon2id$v=19$")?.split('$');
    let [costs, salt, hash] = [parts.next()?, parts.next()?, parts.next()?];
    let mut costs = costs.split(',');
    let mut cost = |name: &str| costs.next()?.strip_prefix(name)?.parse::<u32>().ok();
    let [memory, passes, lanes] = [cost("m=")?, cost("t=")?, cost("p=")?];
    let is_sound = lanes == 1 && memory <= MEMORY_KIB_MAX && passes <= PASSES_MAX;
    let salt = BASE64.decode(salt).ok().filter(|salt| (8..=64).contains(&salt.len()))?;
    let hash = BASE64.decode(hash).ok()?.try_into().ok()?;
    (is_sound && parts.next().is_none()).then_some(Kept { memory, passes, salt, hash })
}

fn computed(password: &str, salt: &[u8], memory: u32, passes: u32) -> Option<[u8; HASH_LEN]> {
    let params = Params::new(memory, passes, 1, Some(HASH_LEN)).ok()?;
    let mut hash = [0; HASH_LEN];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into(password.as_bytes(), salt, &mut hash).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn wb_05_a_password_is_known_again_and_no_other_is() {
        let kept = hash("correct horse battery");
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(is_right("correct horse battery", Some(&kept)));
        assert_ne!(kept, hash("correct horse battery"), "each has a salt of its own");
        for other in ["", "correct horse batter", "Correct horse battery", &"x".repeat(300)] {
            assert!(!is_right(other, Some(&kept)), "{other}");
        }
        // What was made elsewhere, by the program argon2 of its authors.
        let theirs = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$\
                      CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(is_right("password", Some(theirs)));
        for damaged in ["", "x", "$argon2id$v=19$m=9999999,t=2,p=1$c29tZXNhbHQ$AAAA", &kept[..60]] {
            assert!(!is_right("password", Some(damaged)), "{damaged}");
        }
    }

    #[test]
    fn wb_05_who_is_not_there_costs_as_much_time_as_who_is() {
        let kept = hash("correct horse battery");
        let took = |kept: Option<&str>| {
            let begin = Instant::now();
            assert!(!is_right("something else", kept));
            begin.elapsed()
        };
        // In turn, and the quickest of each: what else runs here only ever slows one of them down.
        let times: [_; 9] = std::array::from_fn(|_| [took(Some(&kept)), took(None)]);
        let quickest = |which: usize| times.iter().map(|both| both[which]).min();
        let [there, nobody] = [0, 1].map(|which| quickest(which).map_or(0.0, |t| t.as_secs_f64()));
        assert!((0.5..2.0).contains(&(there / nobody)), "{there} s and {nobody} s");
    }

    #[test]
    fn sc_05_bytes_are_equal_if_none_differs_and_none_is_missing() {
        assert!(is_equal(b"", b"") && is_equal(b"ab", b"ab"));
        for other in [&b"aa"[..], b"bb", b"", b"a", b"abc"] {
            assert!(!is_equal(b"ab", other) && !is_equal(other, b"ab"), "{other:?}");
        }
        assert!(!is_equal(&[1, 1], &[0, 0]), "differences do not make up for each other");
    }

    #[test]
    fn sc_05_a_kept_hash_asks_for_so_much_and_no_more() {
        let hash = "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let kept = |costs: &str, more: &str| {
            read(&format!("$argon2id$v=19${costs}$c29tZXNhbHQ${hash}{more}"))
        };
        let most = kept("m=1048576,t=64,p=1", "").expect("as much as it may");
        assert_eq!((most.memory, most.passes, most.salt), (1_048_576, 64, b"somesalt".to_vec()));
        for costs in [
            "m=1048577,t=2,p=1",
            "m=19456,t=65,p=1",
            "m=19456,t=2,p=2",
            "m=19456,t=2",
            "t=2,m=19456,p=1",
        ] {
            assert!(kept(costs, "").is_none(), "{costs}");
        }
        assert!(kept("m=19456,t=2,p=1", "$").is_none(), "something is behind it");
        assert!(read(&format!("$argon2id$v=19$m=19456,t=2,p=1$c2FsdA${hash}")).is_none(), "salt");
    }

    #[test]
    fn what_is_no_password_is_told_and_why() {
        assert!(fault("short").unwrap().contains("12 characters"));
        assert!(fault("twelve chars").is_none() && fault(&"xy".repeat(128)).is_none());
        assert!(fault(&"xy".repeat(129)).unwrap().contains("256 bytes"));
        assert!(fault(&"x".repeat(20)).is_some() && fault(&"xy".repeat(200)).is_some());
        assert_eq!(fault("correct horse battery"), None);
        assert_eq!(fault("пароль-пароль"), None, "characters, not bytes");
    }
}
