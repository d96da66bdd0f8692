//! `warren backup` and `warren restore`: everything that a server has, in one file, and back.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ::server::Restored;
use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control::ServerUrl;
use serde_json::{Value, json};

use crate::admin::{DATA, Session, Target};
use crate::client::say;

const PATH: &str = "/api/v1/backup";

/// Copy everything that a server has into one file, also while the server runs.
///
/// With a token (scope backup:read) it is a server elsewhere that is copied. `warren restore` takes
/// it back. The file has the server's own keys: keep it as you keep the directory. A server whose
/// books are in PostgreSQL says how they are copied.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the server on this machine [default: /var/lib/warren]
    #[arg(long, value_name = "DIR", env = "WARREN_DATA")]
    data: Option<PathBuf>,
    /// A server elsewhere [default: where the token says]
    #[arg(long, value_name = "URL", requires = "token")]
    server: Option<ServerUrl>,
    /// A token of `warren token create`, or file:PATH; the server elsewhere that it is for
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// As JSON, in a stable schema
    #[arg(long)]
    json: bool,
    /// The new file
    file: PathBuf,
}

/// Restore a server on this machine from a backup, also while it runs.
///
/// The file is looked at first, and refused if it is damaged or another server's. A server that
/// runs restarts with it; its nodes come back by themselves. What was there before is kept as
/// before-restore.db beside it. What was revoked after the backup was made must be revoked again.
/// In an empty directory it makes the server of which the backup is.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// The directory of the server on this machine
    #[arg(long, value_name = "DIR", default_value = DATA, env = "WARREN_DATA")]
    data: PathBuf,
    /// As JSON, in a stable schema
    #[arg(long)]
    json: bool,
    /// A file of `warren backup`
    file: PathBuf,
}

/// Restores the file.
pub(crate) fn restore(args: RestoreArgs) -> Result<()> {
    let RestoreArgs { data, json, file } = args;
    // A file that is not there leaves nothing behind.
    File::open(&file)
        .with_context(|| format!("{}", file.display()))
        .context("nothing was restored")?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&data);
    made.with_context(|| format!("cannot make {}", data.display()))?;
    let restored = ::server::restore(&data, &file).context("nothing was restored")?;
    let is_running = restored == Restored::Running;
    say(&match (json, is_running) {
        (true, _) => format!("{}\n", json!({ "schema": 1, "running": is_running })),
        (false, true) => "restored; the server has restarted with it\n".to_owned(),
        (false, false) => "restored; no server runs, start `warren serve`\n".to_owned(),
    })
}

/// Writes the file.
pub(crate) fn run(args: Args) -> Result<()> {
    let len = match args.token {
        None => {
            let data = args.data.unwrap_or_else(|| DATA.into());
            ::server::backup(&data, &args.file).context("no backup was made")?
        }
        Some(token) => {
            let target = Target::new(None, args.server, Some(token), args.json);
            fetch(&mut target.open()?, &args.file).context("no backup was made")?
        }
    };
    let text = match args.json {
        true => format!("{}\n", json!({ "schema": 1, "bytes": len })),
        false => format!("{}: {len} bytes\n", args.file.display()),
    };
    say(&text)
}

/// Has a server make a copy, and reads it: all of it, or no file.
fn fetch(session: &mut Session, to: &Path) -> Result<u64> {
    ensure!(!to.exists(), "{}: it is there already; a backup overwrites nothing", to.display());
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let _ = std::fs::remove_file(&part);
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let file = new.with_context(|| format!("cannot write {}", part.display()))?;
    let made = session.call("POST", PATH, &Value::Null);
    let done = made.and_then(|made| {
        let one = format!("{PATH}/{}", made["id"]);
        let len = made["bytes"].as_u64().context("the server's answer cannot be understood")?;
        let read = pieces(session, &one, len, file);
        // Whether or not it was read, nobody wants it any more.
        let _ = session.call("DELETE", &one, &Value::Null);
        read?;
        std::fs::hard_link(&part, to).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(len)
    });
    let _ = std::fs::remove_file(&part);
    done
}

fn pieces(session: &mut Session, one: &str, len: u64, mut file: File) -> Result<()> {
    let mut offset = 0;
    while offset < len {
        let answer = session.call("GET", &format!("{one}?offset={offset}"), &Value::Null)?;
        let data = answer["data"].as_str().unwrap_or_default();
        let piece = STANDARD.decode(data).context("the server's answer cannot be understood")?;
        if piece.is_empty() {
            bail!("the server's copy ended after {offset} of {len} bytes; try again");
        }
        file.write_all(&piece).context("cannot write the file")?;
        offset += piece.len() as u64;
    }
    file.sync_all().context("cannot write the file")
}
