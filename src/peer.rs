//! `warren peer`: machines that speak WireGuard and run no daemon of ours, such as phones.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use control::Prefix;
use host::KernelRandom;
use noise::{PrivateKey, PublicKey};
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use serde_json::{Value, json};

use crate::admin::{Session, Target, lifetime, plain, table};
use crate::client::{say, text, texts};

/// What fits every way to the gateway: the least MTU of IPv6.
const MTU: u32 = 1280;
/// Seconds between packets that keep translators' mappings to the gateway alive.
const KEEPALIVE_S: u32 = 25;

/// Manage plain WireGuard peers: phones, routers, whatever runs no daemon of ours.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Let a machine in that speaks WireGuard, and print the file for it, once.
    ///
    /// It reaches the network through one node, its gateway, and by UDP only: no relay, no other
    /// path, no repair of lossy lines. A new route needs a new file.
    #[command(after_help = "Example: warren peer add phone --gateway office --qr")]
    Add(Add),
    /// Show all plain peers and the nodes that carry them.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Take a plain peer out of the network at once.
    Remove {
        #[command(flatten)]
        target: Target,
        /// The peer's name or number
        peer: String,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    #[command(flatten)]
    target: Target,
    /// Its name in the network
    name: String,
    /// The node that carries it; its UDP port must be reached from where the peer is
    #[arg(long, value_name = "NODE")]
    gateway: String,
    /// Print a code for the WireGuard app's camera in place of the file
    #[arg(long, conflicts_with_all = ["public_key", "json"])]
    qr: bool,
    /// Its public key, if it made its key pair itself [default: a new pair]
    #[arg(long, value_name = "KEY")]
    public_key: Option<PublicKey>,
    /// Write the file here, for its owner only
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where it finds the gateway, as HOST:PORT [default: what the gateway says, public first]
    #[arg(long, value_name = "ADDRESS", value_parser = endpoint)]
    endpoint: Option<String>,
    /// A prefix beyond the network that it sends there, such as 0.0.0.0/0; may be repeated
    #[arg(long = "route", value_name = "PREFIX")]
    routes: Vec<Prefix>,
    /// The user to whom it belongs
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A tag, as in tag:phone; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// When its key ends, as in 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<u64>,
}

/// A host with a port. What is wrong is said before anything is asked.
fn endpoint(text: &str) -> Result<String, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_good = text.parse::<SocketAddr>().is_ok()
        || text.rsplit_once(':').is_some_and(|(host, port)| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
            !host.is_empty() && host.bytes().all(plain) && is_port(port)
        });
    let wrong = || format!("{text:?} is no place; write 203.0.113.7:41820, [2001:db8::7]:41820");
    is_good.then(|| text.to_owned()).ok_or_else(wrong)
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Add(add) => run_add(add),
        Words::List { target } => {
            let mut session = target.open()?;
            session.ask("GET", "/api/v1/peers", &Value::Null, shown)
        }
        Words::Remove { target, peer } => {
            let mut session = target.open()?;
            let id = session.node(&peer)?;
            let path = format!("/api/v1/peers/{id}");
            session.ask("DELETE", &path, &Value::Null, |_| String::new())
        }
    }
}

fn shown(answer: &Value) -> String {
    let columns = [
        ("ID", "id"),
        ("NAME", "name"),
        ("ADDRESSES", "addresses"),
        ("GATEWAY", "through"),
        ("EXPIRES", "expires"),
        ("TAGS", "tags"),
        ("USER", "user"),
    ];
    let rows = answer["peers"].as_array().into_iter().flatten().cloned().map(|mut peer| {
        let gateway = text(&peer["gateway"], "name").to_owned();
        let away = if peer["gateway"]["online"] == true { "" } else { " (away)" };
        peer["through"] = json!(gateway + away);
        peer
    });
    table(&rows.collect(), &columns)
}

fn run_add(add: Add) -> Result<()> {
    let mut session = add.target.open()?;
    let pair = add.public_key.is_none().then(|| PrivateKey::generate(&mut KernelRandom));
    let key = add.public_key.or_else(|| pair.as_ref().map(PrivateKey::public));
    let key = key.context("there is no key")?;
    let gateway = session.node(&add.gateway)?;
    let place = match &add.endpoint {
        Some(place) => place.clone(),
        None => place_of(&mut session, gateway, &add.gateway)?,
    };
    let tagged = |tag: &String| match tag.starts_with("tag:") {
        true => tag.clone(),
        false => format!("tag:{tag}"),
    };
    let wanted = json!({
        "name": add.name, "key": key.to_string(), "gateway": gateway, "user": add.user,
        "tags": add.tags.iter().map(tagged).collect::<Vec<_>>(), "expires_in_s": add.expires,
    });
    let mut answer = session.call("POST", "/api/v1/peers", &wanted)?;
    let file = file(&answer, pair.as_ref(), &place, &add.routes);
    answer["file"] = json!(file);
    if let Some(path) = &add.out {
        let mut options = std::fs::OpenOptions::new();
        let made = options.create_new(true).write(true).mode(0o600).open(path);
        let written = made.and_then(|mut out| out.write_all(file.as_bytes()));
        written.with_context(|| {
            format!(
                "{} is in the network, but its file cannot be written to {}; `warren peer remove \
                 {0}` and add it again",
                add.name,
                path.display()
            )
        })?;
    }
    tell(&add.name, &add.gateway, &place);
    match (add.qr, &add.out) {
        (true, _) => say(&code(&file)?),
        (false, Some(_)) => session.print(&answer, |_| String::new()),
        (false, None) => session.print(&answer, |_| file.clone()),
    }
}

/// What this way into the network cannot do, beside what is printed.
fn tell(name: &str, gateway: &str, place: &str) {
    let told = format!(
        "{name} reaches the network through {gateway} alone, by UDP to {place}: no relay, no other \
         path, no repair.\nWho is asked for names is {gateway}. The private key is shown once and \
         kept nowhere; a new route or gateway needs a new file.\n"
    );
    // Standard output is for the file; who closed standard error does not want this.
    let _ = std::io::stderr().write_all(told.as_bytes());
}

/// Where a gateway is found by those outside: a public address of IPv4 first.
fn place_of(session: &mut Session, id: u64, name: &str) -> Result<String> {
    let answer = session.call("GET", &format!("/api/v1/nodes/{id}"), &Value::Null)?;
    let places = texts(&answer["node"]["endpoints"]).filter_map(|at| at.parse().ok());
    let mut places: Vec<SocketAddr> = places.collect();
    places.sort_by_key(|place| (!is_public(place.ip()), place.is_ipv6()));
    let Some(place) = places.first() else {
        bail!("{name} says no place where it is reached; name one with --endpoint HOST:PORT");
    };
    Ok(place.to_string())
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let shared = Prefix::new([100, 64, 0, 0].into(), 10);
            let is_shared = shared.is_ok_and(|shared| shared.contains(address));
            !(v4.is_private() || v4.is_link_local() || v4.is_loopback() || is_shared)
        }
        IpAddr::V6(v6) => !(v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_loopback()),
    }
}

/// The wg-quick file, which all WireGuard apps read.
fn file(answer: &Value, pair: Option<&PrivateKey>, place: &str, routes: &[Prefix]) -> String {
    let peer = &answer["peer"];
    let gateway = &answer["gateway"];
    let whole = |address: &str| if address.contains(':') { 128 } else { 32 };
    let own = texts(&peer["addresses"]).map(|address| format!("{address}/{}", whole(address)));
    let own: Vec<String> = own.collect();
    let names = texts(&gateway["addresses"]).map(str::to_owned);
    let mut names: Vec<String> = names.take(1).collect();
    names.extend(answer["network"]["domain"].as_str().filter(|d| !d.is_empty()).map(Into::into));
    let ranges = texts(&answer["network"]["ranges"]).map(str::to_owned);
    let allowed: Vec<String> = ranges.chain(routes.iter().map(ToString::to_string)).collect();
    let key = pair.map_or_else(
        || "# PrivateKey = the one that belongs to the public key you gave".to_owned(),
        |pair| format!("PrivateKey = {}", pair.to_base64()),
    );
    let mut out = format!("[Interface]\n{key}\n");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name} = {}", plain(value));
    };
    line("Address", &own.join(", "));
    line("DNS", &names.join(", "));
    line("MTU", &MTU.to_string());
    out += "\n[Peer]\n";
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name} = {}", plain(value));
    };
    line("PublicKey", text(gateway, "key"));
    line("AllowedIPs", &allowed.join(", "));
    line("Endpoint", place);
    line("PersistentKeepalive", &KEEPALIVE_S.to_string());
    out
}

/// A code that a camera reads from the terminal.
fn code(file: &str) -> Result<String> {
    let code = QrCode::with_error_correction_level(file, EcLevel::L)
        .map_err(|why| anyhow::anyhow!("the file fits no code: {why}; give fewer --route"))?;
    // Dark terminals are the rule: what is white there is what the camera takes for paper.
    let mut drawn = code.render::<Dense1x2>();
    let drawn = drawn.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark);
    Ok(drawn.build() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Value {
        json!({
            "peer": { "addresses": ["100.64.0.5", "fd77::5"] },
            "gateway": { "key": "K=", "addresses": ["100.64.0.2", "fd77::2"] },
            "network": { "ranges": ["100.64.0.0/10", "fd77::/48"], "domain": "warren.internal" },
        })
    }

    #[test]
    fn the_file_has_what_wg_quick_wants() {
        let pair = PrivateKey::generate(&mut KernelRandom);
        let routes = ["10.7.0.0/16".parse().unwrap()];
        let told = file(&answer(), Some(&pair), "192.0.2.1:41820", &routes);
        let wanted = format!(
            "[Interface]\nPrivateKey = {}\nAddress = 100.64.0.5/32, fd77::5/128\n\
             DNS = 100.64.0.2, warren.internal\nMTU = 1280\n\n[Peer]\nPublicKey = K=\n\
             AllowedIPs = 100.64.0.0/10, fd77::/48, 10.7.0.0/16\nEndpoint = 192.0.2.1:41820\n\
             PersistentKeepalive = 25\n",
            pair.to_base64()
        );
        assert_eq!(told, wanted);
        let told = file(&answer(), None, "192.0.2.1:41820", &[]);
        assert!(told.starts_with("[Interface]\n# PrivateKey"), "{told}");
    }

    #[test]
    fn a_code_fits_a_terminal_and_a_file_that_is_too_long_is_told() {
        let pair = PrivateKey::generate(&mut KernelRandom);
        let drawn = code(&file(&answer(), Some(&pair), "192.0.2.1:41820", &[])).unwrap();
        let (lines, wide) = (drawn.lines().count(), drawn.lines().next().unwrap().chars().count());
        assert!(drawn.starts_with(&"█".repeat(wide)), "the margin is light");
        assert!(lines <= 40 && wide <= 76, "{lines} lines of {wide}");
        let why = code(&"x".repeat(4000)).unwrap_err().to_string();
        assert!(why.contains("--route"), "{why}");
    }

    #[test]
    fn a_place_is_a_host_with_a_port() {
        for good in ["192.0.2.1:1", "[2001:db8::7]:41820", "gw.example.com:41820"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["", "gw", "gw:", "gw:0", "gw:70000", ":41820", "g w:1", "2001:db8::7:x"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn public_places_are_told_from_private_ones() {
        for (text, is) in [
            ("203.0.113.1", true),
            ("10.1.2.3", false),
            ("192.168.1.1", false),
            ("100.72.0.1", false),
            ("169.254.1.1", false),
            ("2001:db8::1", true),
            ("fd00::1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_public(text.parse().unwrap()), is, "{text}");
        }
    }
}
