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

/// How long `up` waits unless told otherwise.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// The same where somebody has to open a link and sign in.
const SIGN_IN_WITHIN: Duration = Duration::from_secs(600);

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
    /// Another word for TOKEN, as Tailscale has it
    #[arg(long, alias = "auth-key", value_name = "TOKEN", hide = true, conflicts_with = "token")]
    authkey: Option<String>,
    /// Another word for URL, as Tailscale has it
    #[arg(long, value_name = "URL", hide = true, conflicts_with = "token")]
    login_server: Option<String>,
    /// Print a QR code of the link also where no terminal is
    #[arg(long)]
    qr: bool,
    /// Give up after this time, as in 30s, or never; the daemon goes on with it [default: 60s, or
    /// 10m where somebody has to sign in]
    #[arg(long, value_name = "TIME", value_parser = limit)]
    timeout: Option<Limit>,
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
    let login_server = args.login_server.map(with_scheme);
    if args.authkey.is_some() && login_server.is_some() {
        let told = "the token has the server's address: --login-server is passed over\n";
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
    let word = args.token.or(args.authkey).or(login_server);
    let token = word.map(read_token).transpose()?.map(with_key).transpose()?;
    let mut client = args.target.connect_or_start()?;
    let changes = args.wish.changes();
    let reset = args.reset;
    let force = args.force;
    let answer = client.ask(&Request::Up { token, changes, reset, force })?;
    let mut status = wait_telling(&mut client, args.timeout.unwrap_or(Limit::Usual), args.qr)?;
    status["changed"] = answer["changed"].clone();
    args.target.print(&status, |status| {
        let addresses: Vec<&str> = texts(&status["self"]["addresses"]).collect();
        let name = text(&status["self"], "name");
        let changed = if status["changed"] == false { "unchanged" } else { "changed" };
        let said: String = texts(&answer["said"]).map(|line| format!("{line}\n")).collect();
        format!("{name} is up: {}\n{changed}\n{said}", addresses.join(" "))
    })
}

/// How long a command waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// As long as is usual: longer where somebody has to sign in.
    Usual,
    /// So long.
    Within(Duration),
    /// Until it is so.
    Never,
}

impl Limit {
    /// Whether it was waited for long enough.
    fn is_over(self, waited: Duration, signs_in: bool) -> bool {
        match self {
            Self::Usual if signs_in => waited >= SIGN_IN_WITHIN,
            Self::Usual => waited >= UP_WITHIN,
            Self::Within(limit) => waited >= limit,
            Self::Never => false,
        }
    }
}

/// Reads `30s`, or `never`.
fn limit(text: &str) -> Result<Limit, String> {
    if text == "never" {
        return Ok(Limit::Never);
    }
    let seconds = lifetime(text).map_err(|why| format!("{why}, or never"))?;
    Ok(Limit::Within(Duration::from_secs(seconds)))
}

/// Asks for the status until it says that the node runs, for at most `limit`.
///
/// # Errors
/// It will not run by itself, or not in time; why.
pub(crate) fn wait_until_running(client: &mut Client, limit: Limit) -> Result<Value> {
    wait_telling(client, limit, false)
}

fn wait_telling(client: &mut Client, limit: Limit, has_qr: bool) -> Result<Value> {
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
            "needs-approval" => {
                let name = text(&status["self"], "name");
                format!("an administrator: on the server, warren node approve {name}")
            }
            "stopped" => bail!("the node is down; `warren up` brings it up"),
            "no-network" => bail!("the node belongs to no network; `warren up TOKEN` joins one"),
            _ if status["health"].as_array().is_some_and(|health| !health.is_empty()) => {
                why(&status) + &trying
            }
            _ => format!("the server's answer{trying}"),
        };
        if limit.is_over(begin.elapsed(), !told.is_empty()) {
            bail!(
                "not running within {} s; it waits for: {waits_for}; the daemon goes on with it, \
                 and `warren wait` waits",
                begin.elapsed().as_secs()
            );
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

/// A server's address as `up` knows one.
fn with_scheme(url: String) -> String {
    if url.contains("://") { url } else { format!("https://{url}") }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_up_after_a_minute_unless_somebody_signs_in_or_it_is_told_otherwise() {
        let s = Duration::from_secs;
        assert!(!Limit::Usual.is_over(s(59), false) && Limit::Usual.is_over(s(60), false));
        assert!(!Limit::Usual.is_over(s(599), true) && Limit::Usual.is_over(s(600), true));
        assert!(!Limit::Never.is_over(s(1 << 40), false));
        assert_eq!(limit("90s"), Ok(Limit::Within(s(90))));
        assert_eq!(limit("never"), Ok(Limit::Never));
        assert!(limit("0s").unwrap_err().contains("or never"));
    }
}
