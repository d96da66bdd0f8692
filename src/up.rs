//! `warren up`: joins if that is yet to be done, and is up.

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use ::daemon::Client;
use ::daemon::protocol::Request;
use anyhow::{Context, Result, anyhow, bail};
use control::ServerUrl;
use dial::proxy::Proxies;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use serde_json::Value;

use crate::admin::lifetime;
use crate::client::{Target, text, texts};
use crate::wish::Wish;

/// How often the daemon is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The same once it takes its time.
const ASK_LATER_EVERY: Duration = Duration::from_millis(200);
/// How long nothing is said of waiting.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren up warren-join-…                  join the network of a token, and be up
  warren up file:/etc/warren/token         the same, with the token from a file
  warren up https://vpn.example.com        join as whoever signs in at the link that is printed
  warren up                                be up again, as it was left";

/// Join a network, if that is yet to be done, and be up.
///
/// Where no daemon runs, root's `up` starts the service of the machine, and has it start at boot.
///
/// Without a token, with the server's address, it prints a link and a QR code: whoever opens it, in
/// any browser on any device, sees which machine asks, signs in, and lets it in. The server's
/// certificate has to be one that this machine trusts, or its key follows as in https://HOST#KEY.
///
/// Returns when the node is running, or with what keeps it. Settings that are not mentioned stay
/// as they are if none is mentioned; else they must be repeated, or dropped with --reset.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The token that `warren key create` printed, file:PATH, or - for standard input; or the
    /// server's address, as in https://HOST, to sign in
    #[arg(value_name = "TOKEN|URL")]
    token: Option<String>,
    /// Print a QR code of the link also where no terminal is
    #[arg(long)]
    qr: bool,
    /// Give up after this time, as in 30s [default: never]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    timeout: Option<u64>,
    /// Drop earlier settings that are not mentioned
    #[arg(long)]
    reset: bool,
    /// Take an exit node that is none yet: nothing leaves this machine until it is
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    wish: Wish,
}

/// Asks for it, and waits until it is so.
pub(crate) fn run(args: Args) -> Result<()> {
    let token = args.token.map(read_token).transpose()?.map(with_key).transpose()?;
    let mut client = args.target.connect_or_start()?;
    let (changes, reset, force) = (args.wish.changes(), args.reset, args.force);
    client.ask(&Request::Up { token, changes, reset, force })?;
    let limit = args.timeout.map(Duration::from_secs);
    let status = wait_telling(&mut client, limit, args.qr)?;
    args.target.print(&status, |status| {
        let addresses: Vec<&str> = texts(&status["self"]["addresses"]).collect();
        format!("{} is up: {}\n", text(&status["self"], "name"), addresses.join(" "))
    })
}

/// Asks for the status until it says that the node runs, for at most `limit`.
///
/// # Errors
/// It will not run by itself, or not in time; why.
pub(crate) fn wait_until_running(client: &mut Client, limit: Option<Duration>) -> Result<Value> {
    wait_telling(client, limit, false)
}

fn wait_telling(client: &mut Client, limit: Option<Duration>, has_qr: bool) -> Result<Value> {
    let begin = Instant::now();
    let mut said = String::new();
    let mut told = String::new();
    loop {
        let status = client.ask(&Request::Status)?;
        let trying: Vec<&str> = texts(&status["server"]["trying"]).collect();
        let trying = match &trying[..] {
            [] => String::new(),
            addresses => format!("; trying {}", addresses.join(", ")),
        };
        let waits_for = match text(&status, "state") {
            "running" => return Ok(status),
            "refused" => bail!("{}", why(&status)),
            "needs-sign-in" => {
                let url = text(&status["sign_in"], "url");
                if url != told {
                    tell_link(url, text(&status["self"], "key"), has_qr);
                    told = url.to_owned();
                }
                format!("somebody who opens {url}")
            }
            "needs-approval" => "an administrator: warren node approve NAME".to_owned(),
            "stopped" => bail!("the node is down; `warren up` brings it up"),
            "no-network" => bail!("the node belongs to no network; `warren up TOKEN` joins one"),
            _ if status["health"].as_array().is_some_and(|health| !health.is_empty()) => {
                why(&status) + &trying
            }
            _ => format!("the server's answer{trying}"),
        };
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            bail!("not running within {} s; it waits for: {waits_for}", begin.elapsed().as_secs());
        }
        if begin.elapsed() > SILENT_FOR && waits_for != said && told.is_empty() {
            let _ = writeln!(std::io::stderr(), "waiting: {waits_for}");
            said = waits_for;
        }
        let is_soon = begin.elapsed() < SILENT_FOR;
        std::thread::sleep(if is_soon { ASK_EVERY } else { ASK_LATER_EVERY });
    }
}

fn why(status: &Value) -> String {
    texts(&status["health"]).collect::<Vec<_>>().join("; ")
}

/// Tells people where to sign in.
fn tell_link(url: &str, key: &str, has_qr: bool) {
    let mut err = std::io::stderr();
    let key = key.get(..12).unwrap_or(key);
    let _ = writeln!(
        err,
        "Open this link in any browser, on any device, and sign in:\n\n  {url}\n\nThe page shows \
         the key {key}…; if it shows another, refuse it."
    );
    if has_qr || err.is_terminal() {
        let _ = write!(err, "{}", qr(url).unwrap_or_default());
    }
}

/// A QR code as text: light on dark, whatever the terminal's colours are.
fn qr(url: &str) -> Option<String> {
    let code = QrCode::new(url).ok()?;
    let mut picture = code.render::<Dense1x2>();
    picture.dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).quiet_zone(true);
    let lines = picture.build();
    Some(lines.lines().map(|line| format!("\x1b[97;40m{line}\x1b[0m\n")).collect())
}

/// The address of a server with its key, which the server says if none follows.
fn with_key(word: String) -> Result<String> {
    let is_place = word.starts_with("https://");
    if !is_place || word.contains('#') {
        return Ok(word);
    }
    let url: ServerUrl = word.parse().map_err(|why| anyhow!("{word}: {why}"))?;
    let key = dial::server_key(&url, &Proxies::from_environment()?).with_context(|| {
        format!(
            "cannot learn the key of {url}; if its certificate is its own, give the key that \
             `warren serve` prints: warren up '{url}#KEY'"
        )
    })?;
    Ok(format!("{url}#{key}"))
}

fn read_token(word: String) -> Result<String> {
    let text = if word == "-" {
        std::io::read_to_string(std::io::stdin()).context("cannot read the token")?
    } else if let Some(path) = word.strip_prefix("file:") {
        std::fs::read_to_string(path).with_context(|| format!("cannot read the token in {path}"))?
    } else {
        word
    };
    Ok(text.trim().to_owned())
}
