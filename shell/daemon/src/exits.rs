//! Whether a node is an exit, and whether rules let anything through it.

use control::{Map, Prefix};
use policy::{Ranges, Rules};

use crate::plan::is_called;

/// Exits that an answer names, at most.
const NAMED_MAX: usize = 8;

/// Why `called` is no exit of this network; `None` if it is one.
pub(crate) fn no_exit(map: &Map, called: &str) -> Option<String> {
    let leads_out = |peer: &&control::Peer| peer.routes.iter().any(Prefix::is_default);
    let me = &map.me;
    if let Some(peer) = map.peers.iter().find(|peer| is_called(peer, called)) {
        let name = &peer.name;
        return (!leads_out(&peer)).then(|| {
            // Exactly what is named is approved: what is in use stays only if it is named, too.
            let known: String = peer.routes.iter().map(|route| format!("{route} ")).collect();
            format!(
                "{name} is no exit node: its default routes are not offered or not approved; there \
                 `warren set --advertise-exit-node`, on the server `warren route approve {name} \
                 {known}0.0.0.0/0 ::/0`"
            )
        });
    }
    let is_me = me.name.eq_ignore_ascii_case(called.split('.').next().unwrap_or_default())
        || called.parse().is_ok_and(|address| me.addresses.contains(&address));
    if is_me {
        return Some(format!("{called} is this node, which is no exit for itself"));
    }
    let exits: Vec<&str> =
        map.peers.iter().filter(leads_out).map(|peer| &peer.name[..]).take(NAMED_MAX).collect();
    let known = match exits.is_empty() {
        true => "no exit node is there; one offers itself with `warren set --advertise-exit-node` \
                 and is approved with `warren route approve`"
            .to_owned(),
        false => format!("exit nodes are: {}", exits.join(", ")),
    };
    Some(format!("no node that this one may talk to is called {called:?}; {known}"))
}

/// What to tell of rules that let nothing pass to the Internet, where an exit leads there.
pub(crate) fn no_internet(rules: &str, exit: &str) -> Option<String> {
    let Ok(Some(rules)) = Rules::read(rules) else { return None };
    let internet = Ranges::internet();
    let leads_out = rules.outward.iter().any(|rule| rule.destinations.intersects(&internet));
    (!leads_out).then(|| {
        format!(
            "nothing is reached through the exit node {exit}: the policy lets this node reach no \
             address of the Internet (`*` is nodes and subnets); name autogroup:internet in the \
             dst of a rule, or `warren set --exit-node=`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_without_the_internet_are_told_of() {
        let rule = |to: &str| policy::Rule {
            sources: Ranges::everything(),
            destinations: Ranges::of_prefixes([to.parse().unwrap()]),
            services: vec![policy::Service { protocol: None, first: 0, last: 65_535 }],
            line: 1,
            compress: false,
        };
        let text = |to: &[&str]| {
            let outward = to.iter().map(|to| rule(to)).collect();
            Rules::new(Vec::new(), outward).print().unwrap()
        };
        let told = no_internet(&text(&["100.64.0.0/10", "10.0.0.0/8"]), "vps").unwrap();
        assert!(told.contains("autogroup:internet") && told.contains("vps"), "{told}");
        assert_eq!(no_internet(&text(&["100.64.0.0/10", "9.9.9.9/32"]), "vps"), None);
        assert_eq!(no_internet(policy::OPEN, "vps"), None, "without a policy all is allowed");
    }
}
