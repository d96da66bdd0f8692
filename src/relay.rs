//! `warren relay`: a relay on a machine of its own.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::server::{RelayConfig, RelayServer};
use anyhow::{Context, Result, ensure};
use control::{Kind, ServerUrl, Token};
use dial::Admin;
use dial::proxy::Proxies;
use noise::PublicKey;
use serde_json::{Value, json};

use crate::listen::{Listen, place};
use crate::log::{self, Level};

/// How often the server is asked for members.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// While it does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How often the members are written, with the time, though they are the same.
const WRITE_EVERY: Duration = Duration::from_secs(600);
/// What the server said last is good for so long.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);

/// Run a relay on a machine of its own, for nodes that find no direct path.
///
/// It registers with the server, which names it to all nodes, and admits members of the network
/// only. It goes on for a day when the server is away. Its token is made on the server with
/// `warren token create --scope relay:serve`. Ends on SIGTERM and SIGINT.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The token, or file:PATH
    #[arg(long, value_name = "TOKEN", env = "WARREN_TOKEN", hide_env_values = true)]
    token: String,
    /// Where the server is [default: where the token says]
    #[arg(long, value_name = "URL")]
    server: Option<ServerUrl>,
    /// The directory of the relay, which is made if it is missing
    #[arg(long, value_name = "DIR", default_value = "/var/lib/warren-relay", env = "WARREN_DATA")]
    data: PathBuf,
    #[command(flatten)]
    listen: Listen,
    /// What nodes connect to, as in https://HOST:PORT
    #[arg(long, value_name = "URL", env = "WARREN_URL")]
    url: ServerUrl,
    /// Where STUN requests are answered, too, as in 0.0.0.0:3478
    #[arg(long, value_name = "ADDR:PORT", env = "WARREN_STUN", value_delimiter = ',')]
    #[arg(value_parser = place)]
    stun: Vec<SocketAddr>,
    #[arg(long, value_enum, value_name = "LEVEL", help = log::HELP_INFO, ignore_case = true)]
    log: Option<Level>,
    #[command(flatten)]
    form: log::Form,
}

/// Relays until a signal.
pub(crate) fn run(args: Args) -> Result<()> {
    let level = args.log.or_else(Level::from_environment).unwrap_or(Level::Info);
    log::start_as(level, args.form);
    let token = match args.token.strip_prefix("file:") {
        None => args.token,
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the token from {path}"))?,
    };
    Token::parse(&token, Kind::Api)?;
    let most = control::limits::RELAY_STUN_MAX;
    ensure!(args.stun.len() <= most, "--stun: {most} addresses are enough");
    let mut admin = Admin::remote(args.server, &token, Proxies::from_environment()?)?;
    let listen = args.listen.listen;
    let quic = !args.listen.no_quic;
    let icmp = args.listen.icmp;
    let (tls, acme) = args.listen.certificate()?;
    let config = RelayConfig {
        data: args.data.clone(),
        listen,
        quic,
        icmp,
        url: args.url.clone(),
        stun: args.stun,
        tls,
        acme,
    };
    let relay = RelayServer::start(&config)?;
    let url = args.url.clone();
    // What the server is told of a relay, it takes from who holds that relay's key.
    admin = admin.proving(relay.private_key().clone());
    let mut books =
        Books { file: args.data.join("members.json"), url: args.url, known: None, written: None };
    books.begin(&relay);
    let mut out = std::io::stdout().lock();
    // Nothing depends on this line.
    let (at, url) = (relay.address(), &url);
    let quic = if relay.has_quic() { "UDP" } else { "no QUIC at UDP" };
    let _ = writeln!(
        out,
        "relaying on {at} with key {}\nreached at: {url}, TCP and {quic} {}",
        relay.public_key(),
        at.port()
    );
    let _ = out.flush();
    drop(out);
    host::linux::systemd::notify_ready();
    relay.wait(|relay| match books.ask(&mut admin, relay) {
        Ok(()) => ASK_EVERY,
        Err(error) => {
            tracing::warn!("{error:#}; members are those of the last answer");
            ASK_AGAIN
        }
    })?;
    Ok(())
}

/// What the relay knows of the network.
struct Books {
    file: PathBuf,
    url: ServerUrl,
    /// The version of the members that are known, and they, once the server was heard.
    known: Option<(u64, BTreeSet<PublicKey>)>,
    /// When they were last written.
    written: Option<Instant>,
}

impl Books {
    /// Begins with what was kept, if it is not too old.
    fn begin(&self, relay: &RelayServer) {
        match read(&self.file, now()) {
            Ok(Some((keys, left))) => relay.set_members(keys, left),
            Ok(None) => {}
            Err(error) => tracing::warn!("{error:#}; the server will say"),
        }
    }

    fn ask(&mut self, admin: &mut Admin, relay: &RelayServer) -> Result<()> {
        if self.known.is_none() {
            let mut own = json!({
                "url": self.url.to_string(),
                "key": relay.public_key().to_string(),
                "stun": relay.stun(),
            });
            // An older server knows no such word, and refuses it.
            if relay.has_quic() {
                own["quic"] = true.into();
            }
            if relay.has_icmp() {
                own["icmp"] = true.into();
            }
            call(admin, "POST", "/api/v1/relays", &own.to_string())?;
        }
        let path = match &self.known {
            None => "/api/v1/relays/members".to_owned(),
            Some((version, _)) => format!("/api/v1/relays/members?after={version}"),
        };
        let answer = match call(admin, "GET", &path, "") {
            Ok(answer) => answer,
            Err(error) => {
                // The server may have been set back to a copy: say again who we are.
                self.known = None;
                return Err(error);
            }
        };
        let version = answer["version"].as_u64().context("the server's answer has no version")?;
        match &self.known {
            Some(_) if answer["keys"].is_null() => relay.renew_members(GOOD_FOR),
            _ => {
                let keys = keys_of(&answer["keys"])?;
                relay.set_members(keys.clone(), GOOD_FOR);
                self.known = Some((version, keys));
                self.written = None;
            }
        }
        let is_fresh = self.written.is_some_and(|at| at.elapsed() < WRITE_EVERY);
        if let Some((_, keys)) = self.known.as_ref().filter(|_| !is_fresh) {
            write(&self.file, keys, now())?;
            self.written = Some(Instant::now());
        }
        Ok(())
    }
}

fn call(admin: &mut Admin, method: &str, path: &str, body: &str) -> Result<Value> {
    let reply = admin.call(method, path, body)?;
    let value: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let why = value["detail"].as_str().unwrap_or_default().escape_debug();
    ensure!(reply.status < 400, "the server refuses ({}): {why}", reply.status);
    Ok(value)
}

fn keys_of(value: &Value) -> Result<BTreeSet<PublicKey>> {
    let keys = value.as_array().context("the server's answer has no keys")?;
    let keys = keys.iter().map(|key| key.as_str().unwrap_or_default().parse());
    keys.collect::<Result<_, _>>().context("a key of the server's answer is none")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

/// Members that were kept, and for how long they are still good.
fn read(file: &Path, now: u64) -> Result<Option<(BTreeSet<PublicKey>, Duration)>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{}", file.display())),
    };
    let value: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?;
    let at = value["at_unix_s"].as_u64().unwrap_or(0);
    // A clock that was set back makes nothing good for longer.
    let age = now.abs_diff(at);
    let left = GOOD_FOR.saturating_sub(Duration::from_secs(age));
    Ok((!left.is_zero()).then_some((keys_of(&value["keys"])?, left)))
}

fn write(file: &Path, keys: &BTreeSet<PublicKey>, now: u64) -> Result<()> {
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let text = json!({ "at_unix_s": now, "keys": keys }).to_string();
    let next = file.with_extension("new");
    std::fs::write(&next, text).with_context(|| format!("{}", next.display()))?;
    std::fs::rename(&next, file).with_context(|| format!("{}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_14_what_was_kept_is_good_for_a_day_and_a_damaged_file_is_told() {
        let file = std::env::temp_dir().join(format!("warren-members-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        assert!(read(&file, 5).unwrap().is_none());
        let keys = BTreeSet::from([PublicKey([1; 32]), PublicKey([2; 32])]);
        let (made, day) = (1_800_000_000, 24 * 3600);
        write(&file, &keys, made).unwrap();
        let (back, left) = read(&file, made + 3600).unwrap().unwrap();
        assert_eq!((back, left), (keys, Duration::from_secs(day - 3600)));
        assert!(read(&file, made + day).unwrap().is_none());
        assert!(read(&file, made - day).unwrap().is_none(), "nor by a clock that was set back");
        std::fs::write(&file, "{").unwrap();
        assert!(read(&file, made).unwrap_err().to_string().contains("damaged"));
        std::fs::remove_file(&file).unwrap();
    }
}
