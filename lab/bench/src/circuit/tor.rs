//! Tor: a private network of three relays, which are its three authorities as well, and a client
//! whose every circuit is over A, B and C in this order. Programs reach it by torsocks.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::chain::{Chain, NAMES, word};
use super::running::{Inside, Running, program, until};

/// Where each relay is reached by all.
const RELAYS: [&str; 3] = ["10.10.1.2", "10.10.2.2", "10.10.3.2"];
const OR_PORT: u16 = 5_000;
const DIR_PORT: u16 = 7_000;
const SOCKS: u16 = 9_050;
/// A private network votes every 20 s; then the client builds.
const READY_MAX: Duration = Duration::from_secs(180);
const VOTES: &str = "TestingV3AuthInitialVotingInterval 20\nTestingV3AuthInitialVoteDelay 4\n\
                     TestingV3AuthInitialDistDelay 4\nV3AuthVotingInterval 20\n\
                     V3AuthVoteDelay 4\nV3AuthDistDelay 4\n";

pub(super) fn start(chain: &Chain) -> Result<Running> {
    let tor = program("tor")?;
    let gencert = program("tor-gencert")?;
    let mut authorities = String::new();
    let mut prints = Vec::new();
    for (i, at) in RELAYS.into_iter().enumerate() {
        let name = NAMES[i + 1];
        let dir = word(&chain.file(&format!("tor-{name}")));
        let out = chain.hosts[i + 1].sh(&format!(
            "umask 077; mkdir -p {dir}/keys; cd {dir}/keys
             echo bench | {gencert} --create-identity-key -m 12 -a {at}:{DIR_PORT} \
               --passphrase-fd 0 >/dev/null 2>&1
             awk '$1 == \"fingerprint\" {{ print $2 }}' authority_certificate
             {tor} --quiet --ignore-missing-torrc -f /nonexistent --list-fingerprint --orport 1 \
               --datadirectory {dir} --dirserver 'x 127.0.0.1:1 {}' | sed 's/^[^ ]* //; s/ //g'",
            "f".repeat(40)
        ))?;
        let mut lines = out.lines().map(str::trim).filter(|line| !line.is_empty());
        let identity = lines.next().context("tor-gencert made no certificate")?;
        let print = lines.next().context("tor said no fingerprint")?.to_owned();
        writeln!(
            authorities,
            "DirAuthority {name} orport={OR_PORT} no-v2 v3ident={identity} {at}:{DIR_PORT} {print}"
        )?;
        prints.push(print);
    }
    let mut running = Running::new(Inside::Words(Vec::new()));
    let shared = format!("TestingTorNetwork 1\nSafeLogging 0\nLog notice stdout\n{authorities}");
    for (i, at) in RELAYS.into_iter().enumerate() {
        let name = NAMES[i + 1];
        let dir = word(&chain.file(&format!("tor-{name}")));
        let conf = format!(
            "{shared}{VOTES}DataDirectory {dir}\nNickname {name}\nAddress {at}\n\
             ORPort {at}:{OR_PORT}\n\
             DirPort {at}:{DIR_PORT}\nSocksPort 0\nAuthoritativeDirectory 1\n\
             V3AuthoritativeDirectory 1\n\
             ContactInfo bench\nExitRelay 1\nExitPolicy accept *:*\nExitPolicyRejectPrivate 0\n\
             AssumeReachable 1\n"
        );
        let file = chain.file(&format!("torrc-{name}"));
        std::fs::write(&file, conf)?;
        running.roles[i + 1].push(chain.hosts[i + 1].spawn(&[&tor, "-f", &word(&file)])?);
    }
    let dir = word(&chain.file("tor-client"));
    let conf = format!(
        "{shared}DataDirectory {dir}\nSocksPort {SOCKS}\nEntryNodes {}\nMiddleNodes {}\n\
         ExitNodes {}\nStrictNodes 1\nEnforceDistinctSubnets 0\nUseEntryGuards 1\n",
        prints[0], prints[1], prints[2]
    );
    let file = chain.file("torrc-client");
    std::fs::write(&file, conf)?;
    let client = chain.client().spawn(&[&tor, "-f", &word(&file)])?;
    until("Tor is ready", READY_MAX, || Ok(client.log().contains("Bootstrapped 100%")))
        .with_context(|| format!("the client's log:\n{}", client.log()))?;
    running.roles[0].push(client);
    let torsocks = program("torsocks")?;
    running.inside =
        Inside::Words(vec![torsocks, "--quiet".to_owned(), "--port".to_owned(), SOCKS.to_string()]);
    Ok(running)
}
