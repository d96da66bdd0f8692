//! A machine whose processor has no instructions for AES, linked with one as this is.
//!
//! The machine is a guest: what its processor can do is taken from it before it boots, so that the
//! very program that runs everywhere finds nothing there. Both sides say which cipher they use and
//! why; a second guest, which keeps the instructions, shows that it was they that decided.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::guest::{Guest, Nic, Options};
use lab::netns::{Host, Net};
use serde_json::Value;

use super::kernel_cache;
use super::link::{self, KeyPair, eventually, tempdir};
use super::power::strip;

const PORT: u16 = 51820;
const NAME: &str = "wtgcipher";
/// How long an emulated machine may take for what a real one does at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Addresses of the Ethernet to the guest: ours, the guest's; and inside the link.
const OUTER: [&str; 2] = ["10.70.0.1", "10.70.0.2"];
const INSIDE: [&str; 2] = ["10.71.0.1", "10.71.0.2"];
const WITHOUT: [&str; 2] = ["aes", "pclmulqdq"];
const BYTES: usize = 1 << 20;

/// The file of one end of two.
fn config(keys: &[KeyPair; 2], end: usize) -> String {
    let far = 1 - end;
    format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {PORT}\nAddress = {}/24\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = {}/32\nEndpoint = {}:{PORT}\n",
        keys[end].private, INSIDE[end], keys[far].public, INSIDE[far], OUTER[far]
    )
}

/// The cipher and the reason for it that both ends tell, once both tell the same of a link.
fn ciphers(host: &Host, guest: &Guest, warren: &str) -> Result<[[String; 2]; 2]> {
    let told = |json: String| -> Result<[String; 2]> {
        let status: Value = serde_json::from_str(&json)?;
        let link = &status["links"][0]["peers"][0]["link"];
        let field = |name: &str| {
            let text = link[name].as_str().map(str::to_owned);
            text.with_context(|| format!("no {name} in {status}"))
        };
        Ok([field("cipher")?, field("cipher_why")?])
    };
    let words = format!("link status {NAME} --json");
    Ok([
        told(host.sh(&format!("{warren} {words}"))?)?,
        told(guest.run(&format!("warren {words}"))?)?,
    ])
}

/// Links a guest that lacks `without` with this machine; what both say of their cipher.
fn linked(folder: &Path, without: &[&str]) -> Result<[[String; 2]; 2]> {
    let mut net = Net::new("wt-guest-cipher")?;
    let host = net.host("user")?;
    let keys = [KeyPair::new()?, KeyPair::new()?];
    let nic = Nic {
        tap: link::TAP.to_owned(),
        host_addresses: vec![format!("{}/24", OUTER[0])],
        guest_addresses: vec![format!("{}/24", OUTER[1])],
    };
    let options = Options {
        programs: vec![folder.join("warren").display().to_string()],
        modules: vec!["tun".to_owned()],
        cpu_without: without.iter().map(|&flag| flag.to_owned()).collect(),
        memory_mib: 512,
        ..Options::new(nic, kernel_cache())
    };
    let guest = Guest::start(&host, &options)?;
    let flags = guest.run("grep -m 1 ^flags /proc/cpuinfo")?;
    for flag in WITHOUT {
        let has = flags.split_ascii_whitespace().any(|word| word == flag);
        ensure!(has != without.contains(&flag), "{flag} of a guest without {without:?}: {flags}");
    }
    let file = folder.join(format!("{NAME}.conf"));
    fs::write(&file, config(&keys, 0))?;
    let warren = env!("CARGO_BIN_EXE_warren");
    let near = host.spawn(&[warren, "link", "up", &file.display().to_string()])?;
    let config = config(&keys, 1);
    guest.run(&format!(
        "mkdir -p /tmp/link; printf '%s' '{config}' > /tmp/link/{NAME}.conf
         warren link up /tmp/link/{NAME}.conf > /tmp/link/log 2>&1 &"
    ))?;
    eventually("an answer", PATIENCE, || {
        host.sh(&format!("ping -n -q -c 1 -W 1 {}", INSIDE[1])).map(|_| true)
    })
    .with_context(|| format!("here {}, there {:?}", near.log(), guest.run("cat /tmp/link/log")))?;
    every_byte_arrives(&host, &guest)?;
    // What the other can do is told inside the session: it may come after the first answer.
    let wanted = if without.is_empty() { "AES-256-GCM" } else { "ChaCha20-Poly1305" };
    let told = RefCell::default();
    eventually("a cipher", PATIENCE, || {
        *told.borrow_mut() = ciphers(&host, &guest, warren)?;
        Ok(told.borrow().iter().all(|[cipher, _]| cipher == wanted))
    })
    .with_context(|| format!("told {told:?}"))?;
    Ok(told.into_inner())
}

/// A file from the guest, whose sum is the same on both sides.
fn every_byte_arrives(host: &Host, guest: &Guest) -> Result<()> {
    let sum = guest.run(&format!(
        "mkdir -p /tmp/www; cd /tmp/www; head -c {BYTES} /dev/urandom > file; httpd -p 80
         sha256sum < file"
    ))?;
    let curl = "curl --silent --show-error --fail --max-time 20";
    let got = host.sh(&format!("{curl} http://{}/file | sha256sum", INSIDE[1]))?;
    ensure!(got == sum, "{sum} became {got}");
    Ok(())
}

fn has_aes() -> bool {
    let cpu = fs::read_to_string(Path::new("/proc/cpuinfo")).unwrap_or_default();
    WITHOUT.iter().all(|flag| cpu.split_ascii_whitespace().any(|word| word == *flag))
}

#[test]
fn a_machine_without_instructions_for_aes_is_met_with_wireguards_own_cipher() {
    let directory = tempdir("cipher").unwrap();
    let folder = Path::new(&directory.0);
    strip(Path::new(env!("CARGO_BIN_EXE_warren")), &folder.join("warren")).unwrap();
    let told = linked(folder, &WITHOUT).unwrap();
    for [cipher, why] in &told {
        assert_eq!(cipher, "ChaCha20-Poly1305", "{told:?}");
        assert!(why.contains("no instructions for AES"), "{told:?}");
    }
    if has_aes() {
        let told = linked(folder, &[]).unwrap();
        assert!(told.iter().all(|[cipher, _]| cipher == "AES-256-GCM"), "{told:?}");
    }
}
