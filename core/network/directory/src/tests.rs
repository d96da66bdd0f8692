//! Files that are good, and every way in which they are not.

use noise::Random;

use super::*;

struct Seeded(u8);

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

fn key(seed: u8) -> SigningKey {
    SigningKey::generate(&mut Seeded(seed)).expect("32 bytes").0
}

fn hop(id: u8, operator: &str, more: &str) -> String {
    let key = PublicKey([id; 32]);
    format!(
        "[[hop]]\nname = \"h{id}\"\noperator = \"{operator}\"\nkey = \"{key}\"\n\
         addresses = [\"192.{id}.2.7:41820\"]\n{more}\n"
    )
}

fn good() -> String {
    let exit = "exit = true\nrefuses = [\"198.51.100.0/24\", \":25\"]";
    let hops = [hop(1, "alice", ""), hop(2, "bob", ""), hop(3, "carol", exit)];
    format!("until = \"2027-01-31\"\n{}", hops.concat())
}

/// 2027-01-31, in the middle of the day.
const NOW: u64 = 1_801_396_800;

#[test]
fn ci_09_what_was_signed_is_read_and_nothing_else_is() {
    let signed = sign(&good(), &key(1)).expect("good");
    let by = key(1).verifying();
    let directory = open(&signed, &by, NOW).expect("signed");
    assert_eq!(directory, check(&good()).expect("good"));
    assert_eq!((directory.hops.len(), directory.hops[2].exit), (3, true));
    assert_eq!(signer(&signed), Some(by));
    assert_eq!(open(&good(), &by, NOW), Err(Problem::Unsigned));
    assert_eq!(open(&signed, &key(2).verifying(), NOW), Err(Problem::Forged));
    assert!(matches!(open(&signed, &by, NOW + 86_400), Err(Problem::Old(_))));
    // Every byte of what is signed counts, and so does the signature.
    for at in 0..signed.len() {
        let mut bytes = signed.clone().into_bytes();
        bytes[at] ^= 1;
        if let Ok(text) = String::from_utf8(bytes)
            && let Ok(read) = open(&text, &by, NOW)
        {
            // The key that the line names is for people: it is not asked.
            assert!(at > signed.len() - 140 && read == directory, "byte {at}");
        }
    }
    // What stands behind the signature is no part of it.
    let more = format!("{signed}{}", hop(9, "mallory", ""));
    assert!(open(&more, &by, NOW).is_err());
    // Signed again it has one signature, and the same text gives the same digest.
    let again = sign(&signed, &key(2)).expect("good");
    assert_eq!(again.matches(MARK).count(), 1);
    assert_eq!(digest(&again), digest(&signed));
    assert_ne!(digest(&again), digest(&sign(&good().replace("bob", "bert"), &key(2)).unwrap()));
}

#[test]
fn mistakes_are_told_with_the_hop_or_the_line() {
    let told = |text: &str| check(text).expect_err(text).to_string();
    for (from, to, says) in [
        ("2027-01-31", "2027-02-30", "no day"),
        ("name = \"h2\"", "name = \"h1\"", "has the name"),
        ("name = \"h2\"", "name = \"h 2\"", "letters"),
        ("192.2.2.7:41820", "192.2.2.7", "addresses"),
        ("192.2.2.7:41820", "0.0.0.0:41820", "addresses"),
        ("\":25\"", "\":0\"", "refuses"),
        ("exit = true", "exit = false", "only an exit"),
        ("operator = \"bob\"", "operater = \"bob\"", "operater"),
    ] {
        let text = good().replacen(from, to, 1);
        assert!(told(&text).contains(says), "{to}: {}", told(&text));
    }
    assert!(told("until = \"2027-01-31\"").contains("0 hops"));
    let twice = format!("{}{}", good(), hop(1, "dave", "").replace("h1", "h9"));
    assert!(told(&twice).contains("has the key"));
    let large = format!("{}{}", good(), "#".repeat(FILE_BYTES_MAX));
    assert!(told(&large).contains("at most"));
}

#[test]
fn whoever_signs_is_told_what_no_path_can_use() {
    let remarks = |text: &str| check(text).expect("good").remarks();
    assert_eq!(remarks(&good()), ["one operator has all exits, and reads what leaves them"]);
    let two = good().replace("carol", "bob");
    assert!(remarks(&two)[0].contains("2 operators"));
    let near = good().replace("192.2.2.7", "192.1.9.9");
    assert!(remarks(&near).iter().any(|remark| remark.contains("h1 and h2")));
}

#[test]
fn days_are_those_of_the_calendar() {
    for (text, last_s) in [
        ("1970-01-01", 86_399),
        ("2000-02-29", 951_868_799),
        ("2027-01-31", 1_801_439_999),
        ("2100-12-31", 4_133_980_799),
    ] {
        let day = Day::read(text).expect(text);
        assert!(!day.is_over(last_s) && day.is_over(last_s + 1), "{text}");
        assert_eq!(day.to_string(), text);
    }
    for bad in ["2100-02-29", "1969-12-31", "2027-1-31", "2027-13-01", "2027-01-00", "x", ""] {
        assert_eq!(Day::read(bad), None, "{bad}");
    }
}
