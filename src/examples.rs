//! What is said of each command beside its words: examples for its long help and its manual page,
//! files, and what completes a name.
//!
//! A command may have its examples beside its own words instead. A test finds one that has neither.

use pages::Book;

/// Of `warren`.
pub(crate) const BOOK: Book = Book {
    examples: &EXAMPLES,
    files: &FILES,
    environment: &[
        (
            "HTTPS_PROXY",
            "The proxy through which servers are reached: http://[USER:PASSWORD@]HOST:PORT.",
        ),
        (
            "NO_PROXY",
            "Hosts, domains and prefixes that are reached without it, with commas between.",
        ),
        ("LOG_LEVEL", "How much services log: silent, error, warn, info, debug, trace."),
        ("NO_COLOR", "No colours, also on a terminal."),
    ],
    services: &["daemon", "serve", "relay", "wg"],
    named: &NAMED,
    named_flags: &[("--exit-node", "peers"), ("--gateway", "nodes")],
};

const EXAMPLES: [(&str, &str); 86] = [
    (
        "",
        "warren serve --url https://vpn.example.org   the server of a network
warren key create --reusable                 a token that lets nodes in
warren up TOKEN                              this machine is a node
warren status                                who is there, and by which path",
    ),
    ("down", "warren down   still a member; `warren up` goes on"),
    (
        "status",
        "warren status           one line a peer
warren status --links   with what each link loses and repairs
warren status --json    for programs; docs/commands.md has the fields",
    ),
    (
        "ip",
        "warren ip           this node's addresses
warren ip web       those of a peer",
    ),
    ("exit-node list", "warren exit-node list   the exits, and which one this node uses"),
    (
        "circuit",
        "warren circuit run -- curl https://example.org   one command through a circuit of its own
warren circuit open                              a circuit that stays, for many commands
warren circuit list                              those that are open",
    ),
    (
        "circuit open",
        "warren circuit open   chooses the hops itself, and prints the circuit's number",
    ),
    ("circuit list", "warren circuit list"),
    ("circuit show", "warren circuit show 3   the hops of circuit 3"),
    ("circuit close", "warren circuit close 3"),
    (
        "circuit directory sign",
        "warren circuit directory sign hops.toml --key hops.key   makes the key if it is not there",
    ),
    ("circuit directory check", "warren circuit directory check hops.toml --by KEY"),
    ("circuit directory show", "warren circuit directory show hops.toml --json"),
    (
        "circuit run",
        "warren circuit run -- curl https://example.org   ends the circuit with the command
warren circuit run -- bash                       a shell whose only way out it is",
    ),
    (
        "set",
        "warren set --exit-node vps                    all traffic goes through vps
warren set --exit-node auto                   through the nearest exit node
warren set --exit-node vps --for 60s          for a minute, unless it is said again
warren set --advertise-routes 192.168.1.0/24  offers a network; an administrator approves it
warren set --hostname printer                 another name for this node",
    ),
    (
        "doctor",
        "warren doctor          each trouble with its mend
warren doctor --json   for programs",
    ),
    ("wait", "warren wait --timeout 30s && ssh web   once the node is running"),
    ("logout", "warren logout"),
    (
        "metrics",
        "warren metrics                                  once
warren daemon --metrics 127.0.0.1:9586          at GET /metrics",
    ),
    ("debug", "warren debug bundle --out bundle.tar   a file for whoever helps"),
    ("debug bundle", "warren debug bundle > bundle.tar   counters, routes, rules, log; no secrets"),
    ("cleanup", "warren cleanup   after a daemon that was killed"),
    (
        "key",
        "warren key create                          lets one node in, once
warren key create --reusable --tag tag:web   many, each with a tag
warren key list
warren key expire 3                        by its number",
    ),
    (
        "key create",
        "warren key create --expires 24h             one node, within a day
warren key create --user ann                a node of ann's
warren key create --reusable --ephemeral    nodes that are forgotten when they stop",
    ),
    ("key list", "warren key list --json"),
    ("key expire", "warren key expire 3"),
    ("node list", "warren node list"),
    ("node show", "warren node show web"),
    ("node rename", "warren node rename web-1 web"),
    (
        "node tag",
        "warren node tag web tag:web tag:prod   these and no others
warren node tag web                    none",
    ),
    (
        "node move",
        "warren node move laptop ann        to another user
warren node move laptop --nobody   to none",
    ),
    ("node approve", "warren node approve web"),
    ("node expire", "warren node expire laptop   it joins again with a token"),
    ("node remove", "warren node remove laptop"),
    (
        "peer",
        "warren peer add phone --gateway office --qr   a code for the WireGuard app
warren peer list",
    ),
    ("peer list", "warren peer list"),
    ("peer remove", "warren peer remove phone"),
    ("policy check", "warren policy check policy.hujson   without a server"),
    ("policy get", "warren policy get > policy.hujson"),
    (
        "policy test",
        "warren policy test policy.hujson   what `set` would say
warren policy test                 of the policy that holds",
    ),
    ("policy set", "warren policy set policy.hujson"),
    ("route list", "warren route list"),
    (
        "route approve",
        "warren route approve office 192.168.1.0/24   exactly this one
warren route approve office --none           none any more",
    ),
    (
        "sites",
        "warren sites check sites.toml   what the file says
warren sites plan sites.toml    what would be done
warren sites apply sites.toml   does it",
    ),
    ("sites check", "warren sites check sites.toml"),
    ("sites plan", "warren sites plan sites.toml"),
    ("sites apply", "warren sites apply sites.toml"),
    ("sites destroy", "warren sites destroy sites.toml"),
    ("sites status", "warren sites status sites.toml"),
    (
        "sites quality",
        "warren sites quality sites.toml                        what is known of each path
warren sites quality --measure paris lyon sites.toml   measures what one of them has left",
    ),
    ("sites failover", "warren sites failover berlin sites.toml"),
    ("sites export", "warren sites export --rights sites.toml > rights.json"),
    ("circuit directory sign", "warren circuit directory sign hops.toml --key hops.key"),
    ("circuit directory check", "warren circuit directory check hops.toml"),
    ("circuit directory show", "warren circuit directory show hops.toml"),
    ("sites inventory", "warren sites inventory sites.toml > inventory.yml"),
    (
        "dns",
        "warren dns get
warren dns set --upstream 9.9.9.9",
    ),
    ("dns add", "warren dns add nas 10.7.0.10   a machine behind a gateway, by name"),
    ("dns remove", "warren dns remove nas"),
    ("dns get", "warren dns get"),
    ("dns set", "warren dns set --upstream 9.9.9.9   for all names that are in no zone"),
    ("user create", "warren user create ann"),
    ("user list", "warren user list"),
    ("user role", "warren user role ann admin"),
    ("user password", "warren user password ann   asks for it"),
    ("user sign-out", "warren user sign-out ann"),
    ("user remove", "warren user remove ann"),
    (
        "token",
        "warren token create --scope nodes:read   for a program that only looks
warren token list
warren token expire 3",
    ),
    ("token create", "warren token create --scope nodes:read --scope policy:write"),
    ("token list", "warren token list"),
    ("token expire", "warren token expire 3"),
    (
        "audit",
        "warren audit          what was done, the newest first
warren audit verify   whether the log is as it was written",
    ),
    ("audit verify", "warren audit verify"),
    ("backup", "warren backup warren-backup.tar   also while the server runs"),
    ("restore", "warren restore warren-backup.tar"),
    ("import", "warren import headscale /var/lib/headscale/db.sqlite --dry-run"),
    (
        "relay",
        "warren relay --token file:/etc/warren/relay.token --url https://relay.example:443   \\
after `warren token create --scope relay:serve` at the server",
    ),
    (
        "link",
        "warren link up wg0      as /etc/wireguard/wg0.conf says
warren link status      how all links of this machine are",
    ),
    (
        "link status",
        "warren link status           all links that are served here
warren link status --links   with what is lost and repaired",
    ),
    (
        "link metrics",
        "warren link metrics                            once
warren link metrics --listen 127.0.0.1:9587    at GET /metrics",
    ),
    ("wg", "warren wg wg0   then `wg set wg0 ...`, as with wireguard-go"),
    ("genkey", "warren genkey > private.key"),
    ("pubkey", "warren pubkey < private.key"),
    ("genpsk", "warren genpsk > preshared.key"),
    (
        "completions",
        "warren completions bash > /etc/bash_completion.d/warren
warren completions zsh > /usr/local/share/zsh/site-functions/_warren
warren completions fish > ~/.config/fish/completions/warren.fish",
    ),
    ("man", "warren man /usr/local/share/man/man1 --section 1"),
];

const FILES: [(&str, &[(&str, &str)]); 7] = [
    (
        "daemon",
        &[
            ("/var/lib/warren-node", "Keys and what the node was told last."),
            ("/run/warren/warren.sock", "The socket of its commands."),
            ("/etc/default/warren", "Variables for warren.service."),
        ],
    ),
    (
        "serve",
        &[
            ("/var/lib/warren", "Database, keys, certificates and audit log."),
            ("/etc/default/warren-server", "Variables for warren-server.service."),
        ],
    ),
    (
        "relay",
        &[
            ("/var/lib/warren-relay", "The relay's key, and the members that it heard of last."),
            ("/etc/default/warren-relay", "Variables for warren-relay.service."),
        ],
    ),
    ("link", &[("/etc/wireguard/NAME.conf", "The file of the link NAME, as wg-quick has it.")]),
    ("wg", &[("/run/wireguard/NAME.sock", "The socket that wg speaks with.")]),
    ("up", &[("/run/warren/warren.sock", "The socket of the daemon.")]),
    ("backup", &[("/var/lib/warren", "What is copied.")]),
];

const NAMED: [(&str, &str); 18] = [
    ("whois", "peers"),
    ("ping", "peers"),
    ("bandwidth", "peers"),
    ("why", "peers"),
    ("ip", "peers"),
    ("node show", "nodes"),
    ("node rename", "nodes"),
    ("node tag", "nodes"),
    ("node move", "nodes"),
    ("node approve", "nodes"),
    ("node expire", "nodes"),
    ("node remove", "nodes"),
    ("route approve", "nodes"),
    ("peer remove", "nodes"),
    ("link up", "files"),
    ("link reload", "links"),
    ("link status", "links"),
    ("link metrics", "links"),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_has_an_example_and_every_example_is_a_command() {
        let wanting = pages::wanting(&BOOK.dress(crate::Cli::command()));
        assert!(wanting.is_empty(), "add to src/examples.rs:\n{}", wanting.join("\n"));
    }

    #[test]
    fn what_is_said_of_a_command_is_of_one_that_is_there() {
        let program = crate::Cli::command();
        let is_there = |words: &str| {
            let mut at = Some(&program);
            for word in words.split_whitespace() {
                at = at.and_then(|command| command.find_subcommand(word));
            }
            at.is_some()
        };
        let said = BOOK.examples.iter().map(|(words, _)| *words);
        let said = said.chain(BOOK.files.iter().map(|(words, _)| *words));
        let said = said.chain(BOOK.named.iter().map(|(words, _)| *words));
        let gone: Vec<&str> = said.filter(|words| !is_there(words)).collect();
        assert!(gone.is_empty(), "no such commands: {gone:?}");
    }
}
