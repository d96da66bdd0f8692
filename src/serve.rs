//! `warren serve`: the coordination service.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ::server::store::Enrolment;
use ::server::{Config, Ended, HOOKS_MAX, Hook, Provider, Server, Stun};
use anyhow::{Context, Result};
use control::{Prefix, ServerUrl};
use dial::Admin;
use host::linux::systemd::Watchdog;

use crate::admin::{DATA, lifetime};
use crate::listen::{Listen, place};
use crate::log::{self, Level};

/// What a server answers that lives.
const HEALTH: &str = "/api/v1/health";
/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren serve --url https://vpn.example.com             a server at port 443
  warren serve --data /tmp/trial --url https://10.0.0.1  one to try, in a folder of its own";

/// Run the server of a network: names, addresses, keys and policy, and a relay.
///
/// Nodes reach each other directly where they can. What finds no direct path goes through this
/// server's relay, encrypted from node to node; `warren relay` runs more of them elsewhere. It
/// prints where it is reached, what it answers, and the next command.
///
/// Everything is in one directory: database, keys, certificate, and the socket for the commands
/// `key`, `node`, `user`, `route`, `policy`, `token` and `audit` on this machine. The certificate
/// is made at the first start and need not be trusted by anybody: join tokens carry the server's
/// key. For programs that call the API over plain HTTPS, `--acme` gets one that is trusted. Ends on
/// SIGTERM and SIGINT.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of the server, which is made if it is missing
    #[arg(long, value_name = "DIR", default_value = DATA, env = "WARREN_DATA")]
    data: PathBuf,
    /// A PostgreSQL database instead of SQLite in that directory, as postgres://USER@HOST/DATABASE,
    /// or file:PATH of a file that has it, password and all
    #[arg(long, value_name = "URL", env = "WARREN_STORE", hide_env_values = true)]
    store: Option<String>,
    #[command(flatten)]
    listen: Listen,
    /// What nodes connect to, as in https://HOST:PORT; several, or with commas, the preferred first
    #[arg(long, value_name = "URL", required = true, env = "WARREN_URL", value_delimiter = ',')]
    url: Vec<ServerUrl>,
    /// Where STUN requests are answered, as in 0.0.0.0:3478; two, so that nodes see whether their
    /// NAT maps each destination to another port [default: ports 3478 and 3479 where --listen is,
    /// if free]
    #[arg(long, value_name = "ADDR:PORT", env = "WARREN_STUN", value_delimiter = ',')]
    #[arg(value_parser = place)]
    stun: Vec<SocketAddr>,
    /// Answer no STUN requests
    #[arg(long, conflicts_with = "stun")]
    no_stun: bool,
    /// The IPv4 range of a new network [default: 100.64.0.0/10]
    #[arg(long, value_name = "PREFIX")]
    range: Option<Prefix>,
    /// The domain below which nodes have their names
    #[arg(long, value_name = "DOMAIN", default_value = "warren.internal")]
    domain: String,
    /// New nodes wait for `warren node approve`
    #[arg(long)]
    approve: bool,
    /// How long a node's key lasts before it must rotate, as in 180d [default: without end]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    node_lifetime: Option<u64>,
    /// Where events are posted, as in https://HOST/PATH; may be repeated
    #[arg(long, value_name = "URL", env = "WARREN_WEBHOOK", hide_env_values = true)]
    #[arg(value_delimiter = ' ', requires = "webhook_secret")]
    webhook: Vec<String>,
    /// What events are signed with, or file:PATH of a file that has it
    #[arg(long, value_name = "SECRET", env = "WARREN_WEBHOOK_SECRET", hide_env_values = true)]
    webhook_secret: Option<String>,
    /// Take no reports of nodes how their links are, which pages show
    #[arg(long)]
    no_link_reports: bool,
    /// The file of an OpenID Connect provider, by which people may sign in (docs/people.md)
    #[arg(long, value_name = "FILE")]
    oidc: Option<PathBuf>,
    #[arg(long, value_enum, value_name = "LEVEL", help = log::HELP_INFO, ignore_case = true)]
    log: Option<Level>,
    #[command(flatten)]
    form: log::Form,
}

/// Serves until a signal.
pub(crate) fn run(args: Args) -> Result<()> {
    let level = args.log.or_else(Level::from_environment).unwrap_or(Level::Info);
    log::start_as(level, args.form);
    let hosts = args.url.iter().map(ServerUrl::host);
    if let Err(why) = control::name::check_domain(&args.domain, hosts) {
        anyhow::bail!("--domain {:?}: {why}; take another, as in warren.internal", args.domain);
    }
    let listen = args.listen.listen;
    let quic = !args.listen.no_quic;
    let icmp = args.listen.icmp;
    let (tls, acme) = args.listen.certificate()?;
    let hooks = hooks(&args.webhook, args.webhook_secret)?;
    let config = Config {
        data: args.data,
        store: args.store.map(store).transpose()?,
        listen,
        quic,
        icmp,
        urls: args.url,
        stun: match args.stun {
            places if places.is_empty() && !args.no_stun => Stun::Usual,
            places => Stun::At(places),
        },
        range: args.range,
        domain: args.domain,
        terms: Enrolment { needs_approval: args.approve, lifetime_s: args.node_lifetime },
        tls,
        acme,
        hooks,
        link_reports: !args.no_link_reports,
        oidc: args.oidc.as_deref().map(Provider::read).transpose().map_err(anyhow::Error::msg)?,
        clock: server::unix_s,
        ephemeral_away_s: None,
    };
    if let Some(watchdog) = Watchdog::from_environment() {
        let data = config.data.clone();
        let run = move || tell(watchdog, &data);
        std::thread::Builder::new().name("warren-watchdog".to_owned()).spawn(run)?;
    }
    loop {
        let server = Server::start(config.clone())?;
        let mut out = std::io::stdout().lock();
        // When it can be used, for people and for whoever started it. Nothing depends on it: after
        // a restore the terminal may be gone.
        let _ = out.write_all(told(&server, &config).as_bytes());
        let _ = out.flush();
        drop(out);
        host::linux::systemd::notify_ready();
        if server.wait()? == Ended::Told {
            return Ok(());
        }
    }
}

/// Where the server is reached, what it answers, and what comes next.
fn told(server: &Server, config: &Config) -> String {
    let (at, key) = (server.address(), server.public_key());
    let urls: Vec<String> = config.urls.iter().map(ToString::to_string).collect();
    let quic = match server.has_quic() {
        true => format!("UDP {at} (relay by QUIC)"),
        false => "no QUIC".to_owned(),
    };
    let stun: Vec<String> = server.stun().iter().map(ToString::to_string).collect();
    let stun = match &stun[..] {
        [] => "no STUN".to_owned(),
        places => format!("UDP {} (STUN)", places.join(", ")),
    };
    let data = match config.data == Path::new(DATA) {
        true => String::new(),
        false => format!(" --data {}", config.data.display()),
    };
    let urls = urls.join(", ");
    format!(
        "serving on {at} with key {key}\n\
         reached at: {urls}\n\
         answers: TCP {at} (members, administrators, relay by HTTPS); {quic}; {stun}\n\
         next: warren key create{data}, then on a machine: warren up TOKEN\n"
    )
}

/// Tells systemd that the server lives whenever it has answered here as it answers others.
fn tell(mut watchdog: Watchdog, data: &Path) {
    loop {
        let answer = Admin::local(data).and_then(|mut admin| admin.call("GET", HEALTH, ""));
        match answer {
            // A database that is away, which it tells by its status, is mended by no new start.
            Ok(_) => watchdog.tell(),
            Err(error) => tracing::warn!("the server does not answer itself: {error}"),
        }
        std::thread::sleep(watchdog.every());
    }
}

/// Who is told of what happens.
fn hooks(urls: &[String], secret: Option<String>) -> Result<Vec<Hook>> {
    let urls: Vec<&str> = urls.iter().map(|url| url.trim()).filter(|url| !url.is_empty()).collect();
    if urls.len() > HOOKS_MAX {
        anyhow::bail!("--webhook was given {} times; {HOOKS_MAX} are the most", urls.len());
    }
    let secret = secret.map(|text| read(text, "the secret of webhooks")).transpose()?;
    let secret = secret.unwrap_or_default();
    let hook = |url: &&str| Hook::new(url, &secret).map_err(|why| anyhow::anyhow!("{why}"));
    urls.iter().map(hook).collect()
}

/// A URL, or the one in a file.
fn store(text: String) -> Result<String> {
    read(text, "the store's URL")
}

/// A text, or the one in a file.
fn read(text: String, what: &str) -> Result<String> {
    let Some(path) = text.strip_prefix("file:") else { return Ok(text) };
    let read = std::fs::read_to_string(path);
    let read = read.with_context(|| format!("cannot read {what} from {path}"))?;
    Ok(read.trim().to_owned())
}
