//! Others' packet filters: a chain that drops forwarded packets stops ours too, since a packet has
//! to pass every chain. They are told of, never changed.

use super::{NFT_TABLE, Setup};
use crate::program::feed;

/// What people should know of other filters on this machine.
pub(super) fn warnings(setup: &Setup) -> Vec<String> {
    let listed = feed("nft", &["list", "ruleset"], "").unwrap_or_default();
    let mut warnings: Vec<String> =
        dropping(&listed).into_iter().map(|chain| advice(&chain, &listed, setup)).collect();
    let legacy = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if legacy.lines().any(|line| line == "filter") {
        warnings.push(format!(
            "iptables-legacy has rules that cannot be seen from here; if nothing passes, run \
             `iptables-legacy -I FORWARD -i {0} -j ACCEPT` and \
             `iptables-legacy -I FORWARD -o {0} -j ACCEPT`",
            setup.link
        ));
    }
    warnings
}

/// A chain that drops what it does not accept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// `ip filter`.
    pub(super) table: String,
    /// `FORWARD`.
    pub(super) name: String,
}

/// The chains of others in `ruleset`, as `nft list ruleset` prints it, that hook into forwarding
/// and drop by default or end with a verdict that refuses all.
pub(super) fn dropping(ruleset: &str) -> Vec<Chain> {
    let (mut table, mut chain) = (String::new(), String::new());
    let (mut hooked, mut found) = (false, Vec::new());
    for line in ruleset.lines() {
        let text = line.trim();
        if let Some(rest) = line.strip_prefix("table ") {
            table = rest.trim_end_matches([' ', '{']).to_owned();
        } else if let Some(rest) = text.strip_prefix("chain ") {
            (chain, hooked) = (rest.trim_end_matches([' ', '{']).to_owned(), false);
        } else if text.starts_with("type filter hook forward") {
            hooked = true;
            if text.contains("policy drop") {
                found.push(Chain { table: table.clone(), name: chain.clone() });
            }
        } else if hooked && (text == "drop" || text.starts_with("reject")) {
            found.push(Chain { table: table.clone(), name: chain.clone() });
        }
    }
    found.retain(|c| c.table != format!("inet {NFT_TABLE}"));
    found.dedup();
    found
}

fn advice(chain: &Chain, ruleset: &str, setup: &Setup) -> String {
    let Chain { table, name } = chain;
    let link = &setup.link;
    let what = format!("the table {table} drops forwarded packets (chain {name})");
    if table.ends_with(" firewalld") {
        return format!(
            "{what}: firewalld's; let ours through with `firewall-cmd --permanent --zone=trusted \
             --add-interface={link}` and `firewall-cmd --reload`"
        );
    }
    let tool = if table.starts_with("ip6 ") { "ip6tables" } else { "iptables" };
    if ruleset.contains("chain DOCKER-USER") {
        return format!(
            "{what}: Docker's; let ours through with `{tool} -I DOCKER-USER -i {link} -j ACCEPT` \
             and `{tool} -I DOCKER-USER -o {link} -j ACCEPT`"
        );
    }
    if ruleset.contains("chain ufw-user-forward") {
        return format!(
            "{what}: ufw's; let ours through with `ufw route allow in on {link}` and \
             `ufw route allow out on {link}`"
        );
    }
    if name == "FORWARD" {
        return format!(
            "{what}; let ours through with `{tool} -I FORWARD -i {link} -j ACCEPT` and \
             `{tool} -I FORWARD -o {link} -j ACCEPT`"
        );
    }
    format!("{what}; let `iifname {link}` and `oifname {link}` pass there: nothing is routed else")
}
