//! `warren circuit directory`: the file of hops of several operators is signed, checked and shown.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail, ensure};
use control::text::{from_base64, to_base64};
use control::{SigningKey, VerifyingKey};
use directory::{Directory, FILE_BYTES_MAX, Hop};
use serde_json::{Value, json};

use crate::client::say;

#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  warren circuit directory sign hops.toml --key hops.key
  warren circuit directory check hops.toml --by KEY
  warren set --circuit-directory KEY:/etc/warren/hops.toml")]
pub(super) enum Words {
    /// Check a file, and put a signature into its last line
    Sign {
        /// The file
        file: PathBuf,
        /// Where the secret key is kept; one is made where there is none
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Say whether a file is good, and what no path can use of it
    Check {
        /// The file
        file: PathBuf,
        /// Whose signature it must have
        #[arg(long, value_name = "KEY")]
        by: Option<String>,
        /// As JSON, in a stable schema
        #[arg(long)]
        json: bool,
    },
    /// Show its hops, and who signed it
    Show {
        /// The file
        file: PathBuf,
        /// As JSON, in a stable schema
        #[arg(long)]
        json: bool,
    },
}

/// Does what is asked.
pub(super) fn run(words: Words) -> Result<()> {
    match words {
        Words::Sign { file, key } => sign(&file, &key),
        Words::Check { file, by, json } => check(&file, by.as_deref(), json),
        Words::Show { file, json } => show(&file, json),
    }
}

fn read(file: &Path) -> Result<String> {
    let at = || file.display().to_string();
    let len = fs::metadata(file).with_context(at)?.len();
    ensure!(len <= FILE_BYTES_MAX as u64, "{}: {len} bytes, at most {FILE_BYTES_MAX}", at());
    fs::read_to_string(file).with_context(at)
}

fn sign(file: &Path, key: &Path) -> Result<()> {
    let at = || file.display().to_string();
    let text = read(file)?;
    let directory = directory::check(&text).with_context(at)?;
    let key = signing_key(key)?;
    let signed = directory::sign(&text, &key).with_context(at)?;
    let next = file.with_extension("toml.new");
    fs::write(&next, &signed).and_then(|()| fs::rename(&next, file)).with_context(at)?;
    remark(&directory);
    let (by, digest) = (written(&key.verifying()), directory::digest(&signed));
    say(&format!("signed by {by}, digest {digest}\n"))
}

/// The key of a file, which is made where there is none.
fn signing_key(path: &Path) -> Result<SigningKey> {
    let at = || path.display().to_string();
    let seed = match fs::read_to_string(path) {
        Ok(text) => from_base64(text.trim()).unwrap_or_default(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut seed = vec![0; 32];
            noise::Random::fill(&mut host::KernelRandom, &mut seed);
            let mut options = fs::OpenOptions::new();
            let made = options.write(true).create_new(true).mode(0o600).open(path);
            made.and_then(|mut made| writeln!(made, "{}", to_base64(&seed))).with_context(at)?;
            seed
        }
        Err(error) => return Err(error).with_context(at),
    };
    let exact: Option<&[u8; 32]> = seed.first_chunk().filter(|_| seed.len() == 32);
    let key = exact.and_then(SigningKey::from_seed);
    key.with_context(|| format!("{}: no secret key: 32 bytes in base64", at()))
}

fn check(file: &Path, by: Option<&str>, as_json: bool) -> Result<()> {
    let at = || file.display().to_string();
    let text = read(file)?;
    let key = match by {
        Some(by) => Some(key_of(by).with_context(|| format!("--by {by}"))?),
        None => directory::signer(&text),
    };
    let Some(key) = key else {
        // Whoever writes it checks it before it is signed.
        let directory = directory::check(&text).with_context(at)?;
        remark(&directory);
        bail!("{}: it is good, and not signed; `warren circuit directory sign`", at());
    };
    let directory = directory::open(&text, &key, now_unix_s()).with_context(at)?;
    if as_json {
        return say(&format!("{}\n", shown(&directory, &text)));
    }
    remark(&directory);
    let count = directory.hops.len();
    say(&format!("good until {}: {count} hops, signed by {}\n", directory.until, written(&key)))
}

fn key_of(text: &str) -> Result<VerifyingKey> {
    let key = from_base64(text).and_then(|key| key.try_into().ok());
    key.map(VerifyingKey).context("a key is 32 bytes in base64, as `show` prints it")
}

fn show(file: &Path, as_json: bool) -> Result<()> {
    let text = read(file)?;
    let directory = directory::check(&text).with_context(|| file.display().to_string())?;
    if as_json {
        return say(&format!("{}\n", shown(&directory, &text)));
    }
    let line = |hop: &Hop| {
        let places: Vec<String> = hop.addresses.iter().map(ToString::to_string).collect();
        let exit = match (hop.exit, hop.refuses.is_empty()) {
            (false, _) => String::new(),
            (true, true) => "  exit".to_owned(),
            (true, false) => format!("  exit, but for {}", hop.refuses.join(", ")),
        };
        format!("{:<16} {:<12} {}{exit}\n", hop.name, hop.operator, places.join(", "))
    };
    let mut out: String = directory.hops.iter().map(line).collect();
    let by = directory::signer(&text).map_or_else(|| "nobody".to_owned(), |key| written(&key));
    out += &format!(
        "good until {}, signed by {by} (`check` looks at that), digest {}\n",
        directory.until,
        directory::digest(&text)
    );
    say(&out)
}

fn shown(directory: &Directory, text: &str) -> Value {
    let hop = |hop: &Hop| {
        json!({ "name": hop.name, "operator": hop.operator, "key": hop.key.to_string(),
                "addresses": hop.addresses, "exit": hop.exit, "refuses": hop.refuses })
    };
    json!({
        "schema": 1, "until": directory.until.to_string(),
        "hops": directory.hops.iter().map(hop).collect::<Vec<_>>(),
        "signer": directory::signer(text).map(|key| written(&key)),
        "digest": directory::digest(text), "remarks": directory.remarks(),
    })
}

fn remark(directory: &Directory) {
    for remark in directory.remarks() {
        // Nobody who closed standard error wants to know.
        let _ = writeln!(std::io::stderr(), "warren: {remark}");
    }
}

fn written(key: &VerifyingKey) -> String {
    to_base64(&key.0)
}

fn now_unix_s() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
