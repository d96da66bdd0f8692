//! `warren genkey`, `pubkey` and `genpsk`, byte for byte as `wg` has them.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use host::KernelRandom;
use noise::{PresharedKey, PrivateKey, Random};

/// Characters of a key in base64.
const KEY_LEN: usize = 44;

/// Prints a new private key.
pub(crate) fn genkey() -> Result<()> {
    warn_of_readers();
    print(&PrivateKey::generate(&mut KernelRandom).to_base64())
}

/// Prints a new preshared key.
pub(crate) fn genpsk() -> Result<()> {
    warn_of_readers();
    let mut bytes = [0; 32];
    KernelRandom.fill(&mut bytes);
    let key = PresharedKey::from_bytes(bytes);
    bytes.fill(0);
    print(&key.to_base64())
}

/// Reads a private key from standard input and prints its public key.
pub(crate) fn pubkey() -> Result<()> {
    let mut input = Vec::new();
    // a key and some white space; whoever sends more sends no key
    let stdin = io::stdin().lock().take(4096);
    { stdin }.read_to_end(&mut input).context("cannot read the key from standard input")?;
    let (key, rest) = input.split_at(input.len().min(KEY_LEN));
    let key = std::str::from_utf8(key).ok().and_then(|text| text.parse::<PrivateKey>().ok());
    let Some(key) = key else {
        bail!(
            "Key is not the correct length or format; give 44 characters of base64 on standard \
             input, as in `warren genkey | warren pubkey`"
        );
    };
    if !rest.iter().all(u8::is_ascii_whitespace) {
        bail!("Trailing characters found after key; give the key alone");
    }
    print(&key.public().to_string())
}

fn print(key: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{key}").context("cannot write the key")?;
    out.flush().context("cannot write the key")
}

/// A secret that goes into a file which everybody can read is no secret.
fn warn_of_readers() {
    if host::linux::background::is_file_for_all(io::stdout().as_fd()) {
        let _ = io::stderr().write_all(
            b"Warning: writing to world accessible file.\n\
              Consider setting the umask to 077 and trying again.\n",
        );
    }
}
