//! `warren doctor`: whether this machine has what a node needs, and how to mend what it lacks.
//!
//! Each check looks at the thing itself: the server is asked from here, by each way that a node
//! uses; names by the system's own resolver; limits in `/proc`. What only the daemon knows, it is
//! asked for. A check yields findings; a finding that is not well has a mend.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use ::daemon::protocol::Request;
use anyhow::{Result, bail};
use control::ServerUrl;
use dial::http::Connection;
use dial::proxy::Proxies;
use host::KernelRandom;
use noise::Random as _;
use serde_json::{Value, json};
use wire::stun::{self, Message, Transaction};

use crate::admin::plain;
use crate::client::{Target, text, texts};

/// How long an answer of the server is waited for.
const WITHIN: Duration = Duration::from_secs(3);
/// Between two tries over UDP, which may lose one.
const AGAIN: Duration = Duration::from_millis(700);
/// The port that firewalls are usually opened for.
const PORT: u64 = 41_820;
/// The server's usual port for STUN.
const STUN_PORT: u16 = 3478;
/// A clock that is off by more, in seconds, is told of; by more than the second, it is broken.
const CLOCK_OFF_S: i64 = 5;
const CLOCK_BROKEN_S: i64 = 300;
/// The least MTU of IPv6, and so of a path that everything fits.
const MTU_MIN: u64 = 1280;
/// Bytes of socket buffers that a node wants, where it may not force them.
const BUFFER_BYTES: u64 = 4 << 20;

/// Look for what keeps this machine from being a node, and say how to mend it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Try this server, which the node need not belong to [default: the node's own]
    #[arg(long, value_name = "URL")]
    server: Option<ServerUrl>,
}

/// How a thing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Well,
    Odd,
    Broken,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Odd => "warn",
            Self::Broken => "FAIL",
        }
    }
}

/// What a check found.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    state: State,
    what: String,
    mend: Option<String>,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn well(&mut self, check: &'static str, what: impl Into<String>) {
        self.0.push(Finding { check, state: State::Well, what: what.into(), mend: None });
    }

    fn odd(&mut self, check: &'static str, what: impl Into<String>, mend: impl Into<String>) {
        let mend = Some(mend.into());
        self.0.push(Finding { check, state: State::Odd, what: what.into(), mend });
    }

    fn broken(&mut self, check: &'static str, what: impl Into<String>, mend: impl Into<String>) {
        let mend = Some(mend.into());
        self.0.push(Finding { check, state: State::Broken, what: what.into(), mend });
    }
}

/// Looks at everything, and fails if something is broken.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut found = Findings::default();
    let (status, net) = daemon(&args.target, &mut found);
    let told = texts(&status["server"]["urls"]).filter_map(|url| url.parse().ok());
    let urls: Vec<ServerUrl> = args.server.into_iter().chain(told).collect();
    match urls.first() {
        None => found.odd(
            "server",
            "no server is known",
            "join with `warren up TOKEN`, or try one with --server https://HOST",
        ),
        Some(url) => server(url, &net, &mut found),
    }
    clock(&net, &mut found);
    port(&status, &net, &mut found);
    names(&status, &mut found);
    mtu(&status, &mut found);
    kernel(&mut found);
    forwarding(&status, &mut found);
    let count = |state| found.0.iter().filter(|finding| finding.state == state).count();
    let broken = count(State::Broken);
    let odd = count(State::Odd);
    let shown = found.0.iter().map(|finding| {
        json!({ "check": finding.check, "state": finding.state.word().to_lowercase(),
                "what": finding.what, "mend": finding.mend })
    });
    let answer = json!({ "schema": 1, "ok": broken == 0, "checks": shown.collect::<Vec<_>>() });
    args.target.print(&answer, |_| printed(&found))?;
    if broken > 0 {
        bail!("{broken} of {} checks failed, {odd} warn", found.0.len());
    }
    Ok(())
}

fn printed(found: &Findings) -> String {
    let mut out = String::new();
    for Finding { check, state, what, mend } in &found.0 {
        let _ = writeln!(out, "{:<5} {check:<11} {}", state.word(), plain(what));
        if let Some(mend) = mend {
            let _ = writeln!(out, "{:<17} mend: {}", "", plain(mend));
        }
    }
    out
}

/// Asks the daemon how things are: status and netcheck, or nothing.
fn daemon(target: &Target, found: &mut Findings) -> (Value, Value) {
    let asked = target.connect().and_then(|mut client| {
        Ok((client.ask(&Request::Status)?, client.ask(&Request::Netcheck)?))
    });
    let (status, net) = match asked {
        Ok(answers) => answers,
        Err(why) => {
            let mend = "start it: systemctl start warren, or `warren daemon`";
            found.broken("daemon", format!("{why:#}"), mend);
            return (Value::Null, Value::Null);
        }
    };
    let state = text(&status, "state");
    let mend = match state {
        "running" => None,
        "no-network" => Some("join: warren up TOKEN"),
        "stopped" => Some("bring it up: warren up"),
        "needs-approval" => Some("on the server: warren node approve NAME"),
        "refused" => Some("see `warren status`; a new token lets it in: warren up TOKEN"),
        _ => Some("wait for it, and see `warren status`"),
    };
    match mend {
        None => found.well("daemon", "the node runs"),
        Some(mend) if matches!(state, "refused") => {
            found.broken("daemon", "the server refuses this node", mend);
        }
        Some(mend) => found.odd("daemon", format!("it answers; the node is: {state}"), mend),
    }
    for said in texts(&status["health"]) {
        found.odd("health", said, "it is said with the trouble");
    }
    (status, net)
}

/// The server by each way that a node uses. HTTPS has to work; the others are quicker ones.
fn server(url: &ServerUrl, net: &Value, found: &mut Findings) {
    let place = url.to_string();
    let proxies = match Proxies::from_environment() {
        Ok(proxies) => proxies,
        Err(why) => {
            found.broken("proxy", format!("HTTPS_PROXY: {why}"), "set it as http://HOST:PORT");
            Proxies::default()
        }
    };
    if let Some(proxy) = proxies.proxy(url.host()) {
        found.well("proxy", format!("HTTPS goes through {}:{}", proxy.host, proxy.port));
    }
    let begin = Instant::now();
    let ask = || -> io::Result<u16> {
        let mut connection = Connection::open(url, &proxies)?;
        let path = ("GET", "/api/v1/health");
        Ok(connection.request(path, &[], b"", 64 << 10, WITHIN)?.status)
    };
    match ask() {
        Ok(200) => {
            let ms = begin.elapsed().as_millis();
            found.well("https", format!("{place} answers in {ms} ms"));
        }
        Ok(503) => found.broken(
            "https",
            format!("{place} answers, and cannot read its books"),
            "on the server see its log: the disk or PostgreSQL",
        ),
        Ok(code) => found.broken(
            "https",
            format!("{place} answers {code}: who is there is no Warren server"),
            "check the URL, and what stands before the server (a proxy must pass all paths on)",
        ),
        Err(why) => found.broken("https", why.to_string(), mend_of(&why)),
    }
    let host = url.host().trim_matches(['[', ']']);
    udp("quic", host, url.port(), &quic_probe(), is_quic, found);
    let stun = texts(&net["stun"]).next().and_then(|at| at.rsplit_once(':'));
    let stun_port = stun.and_then(|(_, port)| port.parse().ok()).unwrap_or(STUN_PORT);
    let mut asked = Transaction::default();
    KernelRandom.fill(&mut asked);
    udp("stun", host, stun_port, &stun::request(&asked), |bytes| is_stun(&asked, bytes), found);
}

fn mend_of(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::ConnectionRefused => {
            "start `warren serve` there, and open its TCP port in the firewall"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "open its TCP port in the firewalls between; behind a proxy set HTTPS_PROXY"
        }
        _ if why.to_string().contains("resolve") || why.to_string().contains("lookup") => {
            "the server's name is not found: check the URL and /etc/resolv.conf"
        }
        _ => "check the URL, the network and HTTPS_PROXY",
    }
}

/// Sends something to a port until what is wanted comes back.
fn udp(
    check: &'static str,
    host: &str,
    port: u16,
    message: &[u8],
    is_answer: impl Fn(&[u8]) -> bool,
    found: &mut Findings,
) {
    let place = format!("{host}:{port}");
    let begin = Instant::now();
    let asked = ask_udp((host, port), message, is_answer);
    let mend = match check {
        "quic" => {
            "nothing is lost, HTTPS does the same more slowly: open UDP to that port in firewalls \
             between, or on the server (`--no-quic` is not set, the port is published)"
        }
        _ => {
            "without STUN nodes find no direct paths and go through the relay: open UDP to that \
             port, or let this network pass UDP"
        }
    };
    match asked {
        Ok(()) => {
            found.well(check, format!("{place} answers in {} ms", begin.elapsed().as_millis()));
        }
        Err(why) => found.odd(check, format!("{place} by UDP: {why}"), mend),
    }
}

fn ask_udp(
    at: (&str, u16),
    message: &[u8],
    is_answer: impl Fn(&[u8]) -> bool,
) -> Result<(), String> {
    let addresses: Vec<SocketAddr> = at.to_socket_addrs().map_err(|why| why.to_string())?.collect();
    let Some(to) = addresses.iter().find(|at| at.is_ipv4()).or_else(|| addresses.first()) else {
        return Err("its name has no address".to_owned());
    };
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u8; 16].into() };
    let ask = || -> io::Result<bool> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(AGAIN))?;
        let begin = Instant::now();
        let mut buffer = [0; 2048];
        while begin.elapsed() < WITHIN {
            socket.send(message)?;
            match socket.recv(&mut buffer) {
                Ok(len) if is_answer(&buffer[..len]) => return Ok(true),
                Ok(_) => {}
                Err(why)
                    if matches!(
                        why.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(false)
    };
    match ask() {
        Ok(true) => Ok(()),
        Ok(false) => Err("no answer".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// A datagram of a version of QUIC that nobody speaks: whoever speaks QUIC answers with the
/// versions that it speaks (RFC 9000, section 6).
fn quic_probe() -> Vec<u8> {
    let mut probe = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    let mut ids = [0; 16];
    KernelRandom.fill(&mut ids);
    probe.extend_from_slice(&ids[..8]);
    probe.push(8);
    probe.extend_from_slice(&ids[8..]);
    probe.resize(1200, 0);
    probe
}

/// A version negotiation: the long header with the version 0.
fn is_quic(bytes: &[u8]) -> bool {
    bytes.len() > 7 && bytes[0] & 0x80 != 0 && bytes[1..5] == [0; 4]
}

/// Whether this answers the question of `asked`.
fn is_stun(asked: &Transaction, bytes: &[u8]) -> bool {
    matches!(stun::parse(bytes), Ok(Message::Response(of, _)) if of == *asked)
}

/// Handshakes carry the time, and certificates and keys have an end.
fn clock(net: &Value, found: &mut Findings) {
    let Some(off_s) = net["clock_off_s"].as_i64() else { return };
    let mend = "let it be set: timedatectl set-ntp true, or chrony";
    let what = match off_s {
        0 => "it agrees with the server's".to_owned(),
        off_s => format!("it is {} s {}", off_s.abs(), if off_s > 0 { "ahead" } else { "behind" }),
    };
    match off_s.abs() {
        off if off > CLOCK_BROKEN_S => found.broken("clock", what, mend),
        off if off > CLOCK_OFF_S => found.odd("clock", what, mend),
        _ => found.well("clock", what),
    }
}

fn port(status: &Value, net: &Value, found: &mut Findings) {
    let Some(port) = status["port"].as_u64().filter(|port| *port > 0) else { return };
    let mapped = net["port_mapping"]["external"].as_str();
    let what = match mapped {
        Some(external) => format!("UDP {port}, which the gateway gives as {external}"),
        None => format!("UDP {port}"),
    };
    if port == PORT || mapped.is_some() {
        found.well("port", what);
    } else {
        found.odd(
            "port",
            format!("{what}: not the usual {PORT}, or it was taken"),
            format!(
                "see who has it: ss -ulpn 'sport = :{PORT}'; or name one: warren daemon --port"
            ),
        );
    }
    match net["udp"].as_bool() {
        Some(true) if net["mapping_varies"] == true => found.odd(
            "nat",
            "the translator maps each destination to another port: direct paths are rarer",
            "turn on UPnP, PCP or NAT-PMP at the router, or forward the port",
        ),
        Some(true) => found.well("nat", "UDP passes, and is mapped alike for all"),
        Some(false) => found.odd(
            "nat",
            "UDP leaves this network nowhere: everything goes through a relay",
            "ask for UDP to be let out; until then everything goes by HTTPS",
        ),
        None => {}
    }
}

/// The node's own name, as programs ask for it.
fn names(status: &Value, found: &mut Findings) {
    let name = text(&status["self"], "name");
    let domain = text(status, "domain");
    if name.is_empty() || domain.is_empty() || text(status, "state") != "running" {
        return;
    }
    if status["settings"]["accept_dns"] == false {
        found.odd("names", "names are off here", "turn them on: warren set --accept-dns");
        return;
    }
    let full = format!("{name}.{domain}");
    let own: Vec<IpAddr> =
        texts(&status["self"]["addresses"]).filter_map(|at| at.parse().ok()).collect();
    let mend = "see whether /etc/resolv.conf, resolvectl or another VPN leads elsewhere; health in \
                `warren status` says what was tried";
    let found_at = (full.as_str(), 0).to_socket_addrs();
    match found_at.map(|mut at| at.any(|at| own.contains(&at.ip()))) {
        Ok(true) => found.well("names", format!("{full} is found")),
        Ok(false) => found.broken("names", format!("{full} is found as somebody else"), mend),
        Err(why) => found.broken("names", format!("{full} is not found: {why}"), mend),
    }
}

fn mtu(status: &Value, found: &mut Findings) {
    let interface = text(status, "interface");
    let path = format!("/sys/class/net/{interface}/mtu");
    let own = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let narrow: Vec<String> = (status["peers"].as_array().into_iter().flatten())
        .filter_map(|peer| {
            let mtu = peer["path"]["mtu"].as_u64().filter(|mtu| *mtu < MTU_MIN)?;
            Some(format!("{} {mtu}", text(peer, "name")))
        })
        .collect();
    if !narrow.is_empty() {
        found.odd(
            "mtu",
            format!("paths that take less than {MTU_MIN} bytes: {}", narrow.join(", ")),
            "programs that send UDP of full size may lose it; give the interface that MTU: warren \
             daemon --mtu",
        );
    } else if let Some(own) = own {
        found.well("mtu", format!("{interface} takes {own} bytes, and every path its packets"));
    }
}

fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What the kernel must have and how much it may use.
fn kernel(found: &mut Findings) {
    if Path::new("/dev/net/tun").exists() {
        found.well("tun", "/dev/net/tun is there");
    } else {
        let mend = "modprobe tun; in a container add --device /dev/net/tun --cap-add NET_ADMIN";
        found.broken("tun", "there is no /dev/net/tun", mend);
    }
    let sizes =
        ["rmem_max", "wmem_max"].map(|name| (name, number(&format!("/proc/sys/net/core/{name}"))));
    let small: Vec<&str> = sizes
        .iter()
        .filter(|(_, bytes)| bytes.is_some_and(|bytes| bytes < BUFFER_BYTES))
        .map(|(name, _)| *name)
        .collect();
    if small.is_empty() {
        found.well("buffers", "sockets may have buffers of 4 MiB");
    } else {
        let set: Vec<String> =
            small.iter().map(|name| format!("sysctl -w net.core.{name}={BUFFER_BYTES}")).collect();
        found.well(
            "buffers",
            format!("forced by a daemon with CAP_NET_ADMIN; without it: {}", set.join(" and ")),
        );
    }
    let count = number("/proc/sys/net/netfilter/nf_conntrack_count");
    let max = number("/proc/sys/net/netfilter/nf_conntrack_max");
    if let Some((count, max)) = count.zip(max).filter(|(count, max)| count * 10 > max * 9) {
        found.broken(
            "conntrack",
            format!("the kernel follows {count} connections of {max}: new ones are dropped"),
            format!("sysctl -w net.netfilter.nf_conntrack_max={}", max * 4),
        );
    }
}

/// What a node that others go through needs.
fn forwarding(status: &Value, found: &mut Findings) {
    let own = &status["self"];
    let served: Vec<&str> = texts(&own["routes"]).collect();
    let name = text(own, "name");
    let peers = || status["peers"].as_array().into_iter().flatten();
    let carried = peers().filter(|peer| peer["gateway"] == name).count();
    if name.is_empty() || served.is_empty() && carried == 0 {
        return;
    }
    let interface = text(status, "interface");
    let on = number(&format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"));
    let what = format!("{} routes and {carried} plain peers go through here", served.len());
    match on {
        Some(0) => found.broken(
            "forwarding",
            format!("{what}, and the kernel forwards nothing from {interface}"),
            format!("sysctl -w net.ipv4.conf.{interface}.forwarding=1, and see who turns it off"),
        ),
        _ => found.well("forwarding", what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_quic_and_stun_are_told_from_others() {
        assert_eq!(quic_probe().len(), 1200, "less is not answered");
        assert!(is_quic(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        assert!(!is_quic(&[0xc0, 0, 0, 0, 1, 0, 0, 0]) && !is_quic(&[]) && !is_quic(&[0x80; 4]));
        let asked = [7; 12];
        let question = stun::request(&asked);
        let mut answer = [0; stun::RESPONSE_LEN_MAX];
        let seen = "192.0.2.7:41820".parse().unwrap();
        let len = stun::write_response(&asked, seen, &mut answer);
        assert!(is_stun(&asked, &answer[..len]) && !is_stun(&asked, &question));
        assert!(!is_stun(&[8; 12], &answer[..len]), "another's");
    }

    #[test]
    fn a_clock_is_judged_by_how_far_it_is_off() {
        for (off_s, wanted) in [
            (0, State::Well),
            (-5, State::Well),
            (60, State::Odd),
            (-400, State::Broken),
            (i64::from(i32::MAX), State::Broken),
        ] {
            let mut found = Findings::default();
            clock(&json!({ "clock_off_s": off_s }), &mut found);
            assert_eq!(found.0[0].state, wanted, "{off_s}");
        }
        let mut found = Findings::default();
        clock(&json!({ "clock_off_s": null }), &mut found);
        assert!(found.0.is_empty());
    }

    #[test]
    fn what_is_not_well_has_a_mend() {
        let mut found = Findings::default();
        port(&json!({ "port": 5000 }), &json!({ "udp": false }), &mut found);
        let peers = json!([{ "name": "x", "path": { "mtu": 900 } }]);
        mtu(&json!({ "interface": "none0", "peers": peers }), &mut found);
        assert_eq!(found.0.len(), 3);
        assert!(
            found.0.iter().all(|finding| finding.state == State::Odd && finding.mend.is_some())
        );
        let text = printed(&found);
        assert!(text.contains("warn  port") && text.contains("mend: ask for UDP"), "{text}");
    }
}
