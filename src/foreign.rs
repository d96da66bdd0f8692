//! Words of Tailscale, Headscale and wg-quick that mean nothing here: what is meant instead. Words
//! that mean the same are taken where they stand, as `login` and `--authkey` are by `up`.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Commands: the word before, if it stands behind one, the word, and what is meant here.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("", "apply", "`warren policy set FILE` sets a policy, `warren link up FILE` runs a link"),
    ("", "appc-routes", "routes of a node: `warren route list`, on the server"),
    ("", "auth", "machines are let in by `warren node approve NODE`, on the server"),
    (
        "",
        "bugreport",
        "`warren debug bundle --out FILE` collects it, without secrets; nothing is sent anywhere",
    ),
    (
        "",
        "cert",
        "nodes get no certificates; `warren serve --acme NAME` gets the server's own, and what \
         goes through the network is encrypted without one",
    ),
    ("", "configtest", "`warren serve` says at its start what is wrong with its words"),
    ("", "configure", "nothing has to be configured; `warren doctor` tells what a machine lacks"),
    ("", "drive", "files are not shared; sshfs, NFS and SMB work through the network"),
    ("", "expose", "nothing is published to the Internet; a web server at an exit of yours can"),
    ("", "file", "files are not sent; `scp FILE NAME:` does it through the network"),
    ("", "funnel", "nothing is published to the Internet; a web server at an exit of yours can"),
    ("", "generate", "`warren genkey` makes a key, `warren key create` a token for joining"),
    ("", "health", "`warren status` begins with it, `warren doctor` looks closer"),
    ("", "install", "packages bring the service; `warren up` starts it"),
    ("", "licenses", "Apache-2.0 and MIT, as LICENSE beside the source says"),
    ("", "lock", "there is no lock of keys by nodes; your own server hands out every key"),
    ("", "nc", "`nc NAME PORT` works through the network as it is"),
    ("", "netmap", "`warren status --json` has the peers, `warren debug bundle` the whole map"),
    ("", "networks", "subnets are routes: `warren route list`, on the server, has all of them"),
    ("", "peers", "`warren status` has the peers, `warren peer` those that speak plain WireGuard"),
    (
        "",
        "profile",
        "a daemon is in one network; `warren logout` leaves it, and a container or a network \
         namespace can run another daemon",
    ),
    ("", "service", "the service is systemd's: systemctl enable --now warren"),
    ("", "ssh", "there is no SSH of Warren's own; `ssh NAME` works through the network"),
    ("", "start", "`warren up` starts the service and is up; `warren daemon` runs in a terminal"),
    (
        "",
        "stop",
        "`warren down` is down and stays a member; systemctl stop warren ends the service",
    ),
    ("", "strip", "`warren link up FILE` reads wg-quick's files as they are"),
    (
        "",
        "switch",
        "a daemon is in one network; `warren logout` leaves it, and a container or a network \
         namespace can run another daemon",
    ),
    ("", "update", "packages update it, as docs/updating.md says"),
    ("", "web", "`warren ui` serves the web interface to a browser on this machine"),
    (
        "link",
        "down",
        "a link runs in the foreground: Ctrl-C ends it, or systemctl stop warren-link@NAME",
    ),
    ("link", "add", "`warren link up FILE` makes the interface from a wg-quick file"),
    ("link", "set", "change the file, then `warren link reload NAME`; `wg set` works as well"),
    (
        "link",
        "show",
        "`warren link status`, with --links for what is lost; `wg show` works as well",
    ),
    ("link", "save", "the file is what is read, and nothing writes it: keep changes there"),
    ("exit-node", "suggest", "`warren exit-node list` shows them, with how the way to each is"),
    ("exit-node", "connect", "`warren set --exit-node NODE` uses one, `--exit-node ''` none"),
    ("node", "register", "a machine joins with `warren up TOKEN`, or is let in at a link"),
    ("node", "routes", "`warren route list` and `warren route approve NODE PREFIX`"),
    ("node", "approve-routes", "`warren route approve NODE PREFIX…`"),
    ("node", "list-routes", "`warren route list`"),
    ("node", "backfillips", "every node has both addresses from the beginning"),
    ("node", "logout", "`warren node expire NODE` ends its key, `warren node remove NODE` it"),
    ("route", "enable", "`warren route approve NODE PREFIX…`, with all that are to be approved"),
    ("route", "disable", "`warren route approve NODE PREFIX…`, without it; --none takes all"),
    ("route", "delete", "`warren route approve NODE PREFIX…`, without it; --none takes all"),
    ("user", "rename", "a user keeps its name: make another one, and `warren node move` its nodes"),
];

/// Flags: the command, the flag, and what is meant here.
const FLAGS: &[(&str, &str, &str)] = &[
    (
        "up",
        "--advertise-tags",
        "a node has the tags of its join key, `warren key create --tag TAG`, or those of `warren \
         node tag NODE TAG`, on the server",
    ),
    ("up", "--ssh", "there is no SSH of Warren's own; `ssh NAME` works through the network"),
    ("up", "--shields-up", "who may begin conversations is the policy's to say: leave out rules"),
    ("up", "--netfilter-mode", "rules are in a table of nftables of their own, and always there"),
    ("up", "--stateful-filtering", "the filter always knows connections"),
    ("up", "--force-reauth", "`warren logout`, then `warren up TOKEN`, makes it another machine"),
    ("up", "--accept-risk", "`warren set --for 60s` is on trial, and goes back by itself"),
    ("up", "--advertise-connector", "there are no connectors; `--advertise-routes` names prefixes"),
    ("up", "--nickname", "a daemon is in one network, which needs no other name"),
    ("up", "--auto-update", "packages update it, as docs/updating.md says"),
    ("up", "--unattended", "the service runs with nobody signed in"),
    ("key", "--user-id", "a user is named: --user NAME"),
    ("node", "--identifier", "a node is named, by its name or number, without a flag"),
    ("node", "-i", "a node is named, by its name or number, without a flag"),
    ("user", "--identifier", "a user is named, by its name or number, without a flag"),
    ("user", "-i", "a user is named, by its name or number, without a flag"),
    ("serve", "--config", "there is no file: flags, or WARREN_… in /etc/default/warren-server"),
    ("serve", "status", "this runs the network's server; nothing of a node is published"),
    ("serve", "reset", "this runs the network's server; nothing of a node is published"),
    ("serve", "https", "this runs the network's server; nothing of a node is published"),
    ("serve", "--bg", "this runs the network's server; nothing of a node is published"),
];

/// Commands whose flags are those of another.
const SAME: [(&str, &str); 6] = [
    ("set", "up"),
    ("login", "up"),
    ("nodes", "node"),
    ("users", "user"),
    ("preauthkeys", "key"),
    ("routes", "route"),
];

/// What is meant by a word that clap does not know; `asked` is the first word of the line.
pub(crate) fn meant(asked: &str, error: &Error) -> Option<String> {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.split(['=', ' ']).next().unwrap_or_default()),
        _ => None,
    };
    let asked = SAME.iter().find(|(other, _)| *other == asked).map_or(asked, |(_, own)| own);
    let (word, found) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = of(ContextKind::InvalidSubcommand)?;
            let before = if word == asked { "" } else { asked };
            (word, COMMANDS.iter().find(|(of, known, _)| *of == before && *known == word))
        }
        ErrorKind::UnknownArgument => {
            let word = of(ContextKind::InvalidArg)?;
            (word, FLAGS.iter().find(|(of, known, _)| *of == asked && *known == word))
        }
        _ => return None,
    };
    found.map(|(_, _, meant)| format!("warren: {word} means nothing here: {meant}\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn told(words: &[&str]) -> Option<String> {
        let line = [&["warren"], words].concat();
        let error = crate::Cli::command().try_get_matches_from_mut(line).err()?;
        meant(words[0], &error)
    }

    #[test]
    fn words_of_others_are_told_what_is_meant_here_and_none_is_one_of_ours() {
        for (before, word, meant) in COMMANDS {
            let line: Vec<&str> = [*before, *word].into_iter().filter(|w| !w.is_empty()).collect();
            let said = told(&line).unwrap_or_else(|| panic!("{line:?} is taken"));
            assert!(said.contains(meant) && !said.contains("similar"), "{said}");
        }
        for (command, flag, meant) in FLAGS {
            let verb = match *command {
                "key" => vec!["key", "create", *flag],
                "node" | "user" => vec![*command, "list", *flag],
                "serve" => vec!["serve", "--url", "https://x", *flag],
                _ => vec![*command, *flag],
            };
            let said = told(&verb).unwrap_or_else(|| panic!("{verb:?} is taken"));
            assert!(said.contains(meant), "{said}");
        }
        assert!(told(&["set", "--advertise-tags=tag:a"]).is_some(), "set is as up is");
        for own in [&["nonsense"][..], &["up", "--nonsense"], &["status"], &["node", "nonsense"]] {
            assert_eq!(told(own), None, "{own:?}");
        }
    }

    #[test]
    fn words_of_others_that_mean_the_same_are_taken() {
        for line in [
            "login https://vpn.example.com",
            "up --authkey warren-join-x --accept-routes",
            "up --auth-key=warren-join-x --login-server https://vpn.example.com",
            "login --login-server=https://vpn.example.com",
            "set --operator anna",
            "whois 100.64.0.7",
            "exit-node list",
            "version",
            "nodes list",
            "nodes delete web",
            "users list",
            "users destroy anna",
            "routes list",
            "preauthkeys create --reusable --ephemeral --expiration 24h --user anna --tags tag:a",
            "preauthkeys expire 3",
            "apikeys list",
            "debug bundle",
        ] {
            let words = ["warren"].into_iter().chain(line.split(' '));
            let taken = crate::Cli::command().try_get_matches_from_mut(words);
            assert!(taken.is_ok(), "{line}: {}", taken.unwrap_err());
        }
    }
}
