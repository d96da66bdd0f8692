//! Others' packet filters: a chain that drops packets stops ours too, since a packet has to pass
//! every chain. They are told of, never changed.

use super::{NFT_TABLE, Setup};
use crate::linux::program::{feed, find};

/// Where a chain stands that matters to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// What is for programs of this machine.
    Input,
    /// What goes through it.
    Forward,
}

/// What people should know of other filters on this machine: of those on what comes in, and at a
/// gateway of those on what goes through.
pub(super) fn warnings(setup: &Setup) -> Vec<String> {
    if !find("nft") {
        return legacy(setup);
    }
    let listed = feed("nft", &["-s", "list", "ruleset"], "").unwrap_or_default();
    let matters = |chain: &&Chain| chain.hook == Hook::Input || setup.forwards();
    let chains = dropping(&listed);
    let told = chains.iter().filter(matters).filter(|chain| !lets_pass(chain, &listed, setup));
    let mut warnings: Vec<String> = told.map(|chain| advice(chain, &listed, setup)).collect();
    warnings.extend(legacy(setup));
    warnings
}

fn legacy(setup: &Setup) -> Vec<String> {
    let names = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if !setup.forwards() || !names.lines().any(|line| line == "filter") {
        return Vec::new();
    }
    vec![format!(
        "iptables-legacy has rules that cannot be seen from here; if nothing passes, run \
         `iptables-legacy -I FORWARD -i {0} -j ACCEPT` and \
         `iptables-legacy -I FORWARD -o {0} -j ACCEPT`",
        setup.link
    )]
}

/// A chain that drops what it does not accept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// `ip filter`.
    pub(super) table: String,
    /// `FORWARD`.
    pub(super) name: String,
    /// Where it stands.
    pub(super) hook: Hook,
}

/// The chains of others in `ruleset`, as `nft list ruleset` prints it, that hook into what comes
/// in or goes through and drop by default or end with a verdict that refuses all.
pub(super) fn dropping(ruleset: &str) -> Vec<Chain> {
    let mut table = String::new();
    let mut chain = String::new();
    let mut hooked = None;
    let mut found = Vec::new();
    for line in ruleset.lines() {
        let text = line.trim();
        let bare = text.strip_prefix("counter ").unwrap_or(text);
        let here = |hook| Chain { table: table.clone(), name: chain.clone(), hook };
        if let Some(rest) = line.strip_prefix("table ") {
            table = rest.trim_end_matches([' ', '{']).to_owned();
        } else if let Some(rest) = text.strip_prefix("chain ") {
            chain = rest.trim_end_matches([' ', '{']).to_owned();
            hooked = None;
        } else if let Some(rest) = text.strip_prefix("type filter hook ") {
            hooked = match rest.split(' ').next() {
                Some("forward") => Some(Hook::Forward),
                Some("input") => Some(Hook::Input),
                _ => None,
            };
            found.extend(hooked.filter(|_| text.contains("policy drop")).map(here));
        } else if bare == "drop" || bare.starts_with("reject") {
            found.extend(hooked.map(here));
        }
    }
    found.retain(|c| c.table != format!("inet {NFT_TABLE}"));
    found.dedup();
    found
}

/// Whether a chain has rules that let our interface pass, itself or by the chains that it asks.
fn lets_pass(chain: &Chain, ruleset: &str, setup: &Setup) -> bool {
    let head = format!("table {} {{", chain.table);
    let lines = ruleset.lines().skip_while(|line| **line != head).skip(1);
    let table: Vec<&str> = lines.take_while(|line| !line.starts_with('}')).collect();
    let rules = |name: &str| {
        let head = format!("\tchain {name} {{");
        let lines = table.iter().skip_while(move |line| ***line != head).skip(1);
        lines.take_while(|line| **line != "\t}").copied().collect::<Vec<&str>>()
    };
    let asked = |line: &&str| {
        let mut words =
            line.split_whitespace().skip_while(|word| !matches!(*word, "jump" | "goto"));
        words.nth(1).map(str::to_owned)
    };
    let mut names = vec![chain.name.clone()];
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        for next in rules(&name).iter().filter_map(asked) {
            if !names.contains(&next) {
                names.push(next);
            }
        }
        at += 1;
    }
    let all: Vec<&str> = names.iter().flat_map(|name| rules(name)).collect();
    let passes = |way: &str| {
        let ours = format!("{way} \"{}\"", setup.link);
        all.iter().any(|line| {
            line.contains(&ours) && ["accept", "goto", "jump"].iter().any(|w| line.contains(w))
        })
    };
    match chain.hook {
        Hook::Input => passes("iifname"),
        Hook::Forward => passes("iifname") && passes("oifname"),
    }
}

fn advice(chain: &Chain, ruleset: &str, setup: &Setup) -> String {
    let Chain { table, name, hook } = chain;
    let link = &setup.link;
    let is_input = *hook == Hook::Input;
    let what = match hook {
        Hook::Input => format!(
            "the table {table} drops what comes in (chain {name}): peers reach no more of this \
             machine than it lets pass"
        ),
        Hook::Forward => format!("the table {table} drops forwarded packets (chain {name})"),
    };
    if table.ends_with(" firewalld") {
        return format!(
            "{what}: firewalld's; let ours through with `firewall-cmd --permanent --zone=trusted \
             --add-interface={link}` and `firewall-cmd --reload`"
        );
    }
    let tool = if table.starts_with("ip6 ") { "ip6tables" } else { "iptables" };
    let is_ufw = ruleset.contains("chain ufw-user-forward");
    match hook {
        Hook::Input if is_ufw => {
            format!("{what}: ufw's; let ours through with `ufw allow in on {link}`")
        }
        Hook::Forward if ruleset.contains("chain DOCKER-USER") => format!(
            "{what}: Docker's; let ours through with `{tool} -I DOCKER-USER -i {link} -j ACCEPT` \
             and `{tool} -I DOCKER-USER -o {link} -j ACCEPT`"
        ),
        Hook::Forward if is_ufw => format!(
            "{what}: ufw's; let ours through with `ufw route allow in on {link}` and \
             `ufw route allow out on {link}`"
        ),
        Hook::Input if name == "INPUT" => {
            format!("{what}; let ours through with `{tool} -I INPUT -i {link} -j ACCEPT`")
        }
        Hook::Forward if name == "FORWARD" => format!(
            "{what}; let ours through with `{tool} -I FORWARD -i {link} -j ACCEPT` and \
             `{tool} -I FORWARD -o {link} -j ACCEPT`"
        ),
        _ if is_input => format!("{what}; let `iifname {link}` pass there"),
        _ => format!(
            "{what}; let `iifname {link}` and `oifname {link}` pass there: nothing is routed else"
        ),
    }
}
