//! The server's own keys, in one file beside the database: the channel's, the signing key, and the
//! key under which secrets are hashed. They are not in the database, so that a copy of it opens
//! nothing. A file that is damaged or gone is told and never replaced: nodes trust the old keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use control::{SigningKey, text};
use noise::{PrivateKey, Random};
use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom;
use zeroize::Zeroize;

/// The first line of the file.
const HEAD: &str = "warren server keys 1";

/// The kernel's generator.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        ring::rand::SystemRandom::new().fill(bytes).expect("the kernel has randomness");
    }
}

/// The server's keys.
pub struct Keys {
    /// Of the channel: the one that tokens pin.
    pub noise: PrivateKey,
    /// Of maps.
    pub signing: SigningKey,
    /// Of the hashes of secrets.
    pub pepper: [u8; 32],
}

impl Keys {
    /// Reads the keys, or makes them if `may_make` and there is no file.
    ///
    /// # Errors
    /// If the file cannot be read or written, is damaged, or is missing and must not be made.
    pub fn open(path: &Path, may_make: bool) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_make => {
                let text = make();
                write(path, text.as_bytes())?;
                text
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    format!(
                        "{} is gone, but the database has nodes that trust its keys; put it back \
                         from a backup",
                        path.display()
                    ),
                ));
            }
            Err(error) => return Err(error),
        };
        let keys = read(&text);
        keys.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} is damaged; put it back from a backup", path.display()),
            )
        })
    }
}

/// The key of secrets' hashes in the bytes of a file, if they are whole.
pub(crate) fn pepper(file: &[u8]) -> Option<[u8; 32]> {
    read(std::str::from_utf8(file).ok()?).map(|keys| keys.pepper)
}

fn make() -> String {
    let mut secret = [0; 96];
    SystemRandom.fill(&mut secret);
    let text = print(&secret);
    secret.zeroize();
    text
}

fn print(secret: &[u8; 96]) -> String {
    let names = ["noise", "signing", "pepper"];
    let keys = names.iter().zip(secret.chunks(32));
    let lines: String =
        keys.map(|(name, key)| format!("{name} {}\n", text::to_base64(key))).collect();
    let sum = text::to_base64(digest(&SHA256, secret).as_ref());
    format!("{HEAD}\n{lines}checksum {sum}\n")
}

fn read(text: &str) -> Option<Keys> {
    let mut secret = [0_u8; 96];
    for (line, part) in text.lines().skip(1).zip(secret.chunks_mut(32)) {
        let mut key = text::from_base64(line.split_once(' ')?.1)?;
        if key.len() == 32 {
            part.copy_from_slice(&key);
        }
        key.zeroize();
    }
    // Whatever differs from what we would write is damage.
    let keys = (print(&secret) == text).then(|| {
        let part = |n: usize| <[u8; 32]>::try_from(&secret[n * 32..][..32]).ok();
        let noise = PrivateKey::from_bytes(part(0)?);
        let pepper = part(2)?;
        Some(Keys { noise, signing: SigningKey::from_seed(&part(1)?)?, pepper })
    });
    secret.zeroize();
    keys.flatten()
}

/// Writes a file for its owner only, so that after a crash it is there whole or not at all.
///
/// # Errors
/// Those of the file system.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::Folder;

    #[test]
    fn lc_03_keys_come_back_and_no_damaged_file_is_replaced() {
        let folder = Folder::new("keys");
        let path = folder.0.join("keys");
        assert!(Keys::open(&path, false).is_err(), "they are not made where they must be there");
        let made = Keys::open(&path, true).unwrap();
        let again = Keys::open(&path, true).unwrap();
        assert_eq!(made.noise.public(), again.noise.public());
        assert_eq!(made.signing.verifying(), again.signing.verifying());
        assert_eq!(made.pepper, again.pepper);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            let why = Keys::open(&path, true).err().unwrap().to_string();
            assert!(why.contains("damaged") || why.contains("UTF-8"), "{at}: {why}");
            assert_eq!(fs::read(&path).unwrap(), bad);
        }
        for len in 0..good.len() {
            fs::write(&path, &good[..len]).unwrap();
            assert!(Keys::open(&path, true).is_err(), "{len}");
        }
    }
}
