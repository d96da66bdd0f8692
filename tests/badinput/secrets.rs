//! Threat HO-02: keys that were taken away are nowhere in the program's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::support::{Pair, Result, ensure, keys, scene, seconds};

/// What is read at once; overlaps by more than any secret is long.
const CHUNK_BYTES: u64 = 1 << 20;
const OVERLAP_BYTES: u64 = 256;

/// Every place in the memory of a process that holds one of these, with the name of its mapping.
fn places(pid: u32, secrets: &[(&'static str, Vec<u8>)]) -> Result<Vec<(&'static str, String)>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut found = Vec::new();
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (range, rights) = (words[0], words[1]);
        if !rights.starts_with("rw") {
            continue;
        }
        let bounds = range.split_once('-').expect("a mapping has two ends");
        let [begin, end] = [bounds.0, bounds.1].map(|text| u64::from_str_radix(text, 16));
        let (mut at, end) = (begin?, end?);
        while at < end {
            let mut chunk = vec![0; CHUNK_BYTES.min(end - at) as usize];
            if memory.read_exact_at(&mut chunk, at).is_ok() {
                for (name, secret) in secrets {
                    if chunk.windows(secret.len()).any(|window| window == secret) {
                        found.push((*name, words.get(5).unwrap_or(&"anonymous").to_string()));
                    }
                }
            }
            at = if end - at > CHUNK_BYTES { at + CHUNK_BYTES - OVERLAP_BYTES } else { end };
        }
    }
    Ok(found)
}

/// A key as bytes (without those that clamping changes) and as the texts that `wg` writes.
fn forms(names: [&'static str; 3], key: &[u8; 32]) -> Vec<(&'static str, Vec<u8>)> {
    let hex = keys::hex(key);
    let base64 = keys::KeyPair::from_secret(*key).private_text();
    let forms =
        [key[1..31].to_vec(), hex.as_bytes()[2..62].to_vec(), base64.as_bytes()[2..40].to_vec()];
    names.into_iter().zip(forms).collect()
}

#[test]
fn ho_02_keys_that_are_taken_away_are_gone_from_memory() -> Result<()> {
    scene("b62", |scene| {
        let pair = Pair::over_veth(scene)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        let pid = one.daemon.process.pid();
        let psk = keys::decode(pair.psk.as_deref().expect("a pair has one"));
        let mut secrets = forms(["private key", "its hex", "its base64"], &one.keys.secret);
        secrets.extend(forms(["preshared key", "its hex", "its base64"], &psk));
        let held = places(pid, &secrets)?;
        for name in ["private key", "preshared key"] {
            ensure!(
                held.iter().any(|place| place.0 == name),
                "the search does not find the {name}"
            );
        }
        // Shown once more, so that replies have been made of them, and a handshake under way.
        one.daemon.show("private-key")?;
        one.daemon.show("preshared-keys")?;
        one.daemon.set(&format!("peer {} remove", two.keys.public_text()))?;
        one.daemon.set("private-key /dev/null")?;
        std::thread::sleep(seconds(2));
        ensure!(one.daemon.show("private-key")? == "(none)", "the key was not taken away");
        let left = places(pid, &secrets)?;
        ensure!(left.is_empty(), "left in memory: {left:?}");
        Ok(())
    })
}
