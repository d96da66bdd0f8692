//! What happened between two looks at the network, as values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::Node;

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A node joined and is in.
    Joined,
    /// A node waits for an administrator to let it in.
    Waits,
    /// A node was let in.
    Approved,
    /// A node is gone from the books.
    Removed,
    /// A node is in touch again.
    Online,
    /// A node is not in touch any more.
    Offline,
    /// A node's key ends within a week.
    ExpiresSoon,
    /// A node's key is over.
    Expired,
    /// A node offers routes that nobody approved.
    RoutesWait,
    /// The routes through a node changed.
    Routes,
    /// Another policy holds.
    Policy,
}

impl Kind {
    /// The word for it, as receivers know it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Waits => "waits",
            Self::Approved => "approved",
            Self::Removed => "removed",
            Self::Online => "online",
            Self::Offline => "offline",
            Self::ExpiresSoon => "expires-soon",
            Self::Expired => "expired",
            Self::RoutesWait => "routes-wait",
            Self::Routes => "routes",
            Self::Policy => "policy",
        }
    }
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    /// The node that it is about, as it is now, or was last.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) policy_version: Option<u64>,
}

impl Event {
    /// The event in a line for people.
    pub(crate) fn text(&self) -> String {
        let name = self.node.as_ref().map_or("", |node| &node.name);
        match self.kind {
            Kind::Joined => format!("{name} joined the network"),
            Kind::Waits => format!("{name} waits for approval: warren node approve {name}"),
            Kind::Approved => format!("{name} was let in"),
            Kind::Removed => format!("{name} was taken out of the network"),
            Kind::Online => format!("{name} is in touch again"),
            Kind::Offline => format!("{name} is not in touch any more"),
            Kind::ExpiresSoon => format!("the key of {name} ends within a week"),
            Kind::Expired => format!("the key of {name} is over"),
            Kind::RoutesWait => {
                format!("{name} offers routes that wait: warren route approve {name}")
            }
            Kind::Routes => format!("the routes through {name} changed"),
            Kind::Policy => "another policy holds".to_owned(),
        }
    }
}

/// A node in one look.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) node: Arc<Node>,
    /// Whether it is in touch; none as long as nobody knows, after a start.
    pub(crate) online: Option<bool>,
}

/// The network in one look.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) at: u64,
    pub(crate) policy_version: u64,
    pub(crate) nodes: BTreeMap<u64, Seen>,
}

/// What happened from one look to the next, nodes in the order of their numbers.
pub(crate) fn changes(before: &View, after: &View, now: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for (id, seen) in &after.nodes {
        let node = &seen.node;
        let mut add = |kind| {
            events.push(Event { kind, node: Some(Arc::clone(node)), policy_version: None });
        };
        let Some(known) = before.nodes.get(id) else {
            add(if node.approved { Kind::Joined } else { Kind::Waits });
            continue;
        };
        let was = &known.node;
        match (was.approved, node.approved) {
            (false, true) => add(Kind::Approved),
            (true, false) => add(Kind::Waits),
            _ => {}
        }
        match (known.online, seen.online) {
            (Some(false), Some(true)) => add(Kind::Online),
            (Some(true), Some(false)) => add(Kind::Offline),
            _ => {}
        }
        if node.is_expired(now) && !was.is_expired(before.at) {
            add(Kind::Expired);
        } else if node.ends_soon(now) && !was.ends_soon(before.at) {
            add(Kind::ExpiresSoon);
        }
        if waiting(node) > 0 && waiting(node) != waiting(was) {
            add(Kind::RoutesWait);
        }
        if node.routes() != was.routes() {
            add(Kind::Routes);
        }
    }
    for (id, known) in &before.nodes {
        if !after.nodes.contains_key(id) {
            let node = Some(Arc::clone(&known.node));
            events.push(Event { kind: Kind::Removed, node, policy_version: None });
        }
    }
    if after.policy_version != before.policy_version {
        let policy_version = Some(after.policy_version);
        events.push(Event { kind: Kind::Policy, node: None, policy_version });
    }
    events
}

fn waiting(node: &Node) -> usize {
    node.host.routes.iter().filter(|route| !node.approved_routes.contains(route)).count()
}

#[cfg(test)]
mod tests {
    use noise::PublicKey;

    use super::*;

    const DAY_S: u64 = 86_400;

    fn node(id: u64) -> Node {
        Node {
            id,
            machine_key: PublicKey([id as u8; 32]),
            node_key: PublicKey([id as u8 + 100; 32]),
            name: format!("n{id}"),
            number: id as u32,
            user: None,
            tags: Vec::new(),
            ephemeral: false,
            approved: true,
            created: 0,
            begun: Some(0),
            expires: None,
            renewable: None,
            last_seen: None,
            host: control::HostInfo::default(),
            approved_routes: Vec::new(),
            gateway: None,
            ways: control::Ways::default(),
        }
    }

    fn view(at: u64, nodes: &[(Node, Option<bool>)]) -> View {
        let seen = |(node, online): &(Node, Option<bool>)| {
            (node.id, Seen { node: Arc::new(node.clone()), online: *online })
        };
        View { at, policy_version: 1, nodes: nodes.iter().map(seen).collect() }
    }

    fn kinds(before: &View, after: &View) -> Vec<Kind> {
        changes(before, after, after.at).into_iter().map(|event| event.kind).collect()
    }

    #[test]
    fn who_comes_waits_is_let_in_and_goes_is_told_once() {
        let waits = Node { approved: false, ..node(1) };
        let all = [
            (view(1, &[]), view(2, &[(node(1), Some(false))]), vec![Kind::Joined]),
            (view(1, &[]), view(2, &[(waits.clone(), None)]), vec![Kind::Waits]),
            (view(1, &[(waits, None)]), view(2, &[(node(1), None)]), vec![Kind::Approved]),
            (view(1, &[(node(1), None)]), view(2, &[]), vec![Kind::Removed]),
        ];
        for (before, after, wanted) in all {
            assert_eq!(kinds(&before, &after), wanted);
            assert_eq!(kinds(&after, &View { at: 3, ..after.clone() }), []);
        }
    }

    #[test]
    fn touch_is_told_where_it_was_known_before() {
        for (was, is, wanted) in [
            (Some(true), Some(false), vec![Kind::Offline]),
            (Some(false), Some(true), vec![Kind::Online]),
            (None, Some(true), vec![]),
            (None, Some(false), vec![]),
            (Some(true), Some(true), vec![]),
        ] {
            let (before, after) = (view(1, &[(node(1), was)]), view(2, &[(node(1), is)]));
            assert_eq!(kinds(&before, &after), wanted, "{was:?} {is:?}");
        }
    }

    #[test]
    fn a_key_is_told_of_a_week_before_its_end_and_at_it() {
        let ending = Node { expires: Some(100 * DAY_S), ..node(1) };
        let at = |day: u64| view(day * DAY_S, &[(ending.clone(), None)]);
        assert_eq!(kinds(&at(91), &at(92)), []);
        assert_eq!(kinds(&at(92), &at(93)), [Kind::ExpiresSoon]);
        assert_eq!(kinds(&at(93), &at(99)), []);
        assert_eq!(kinds(&at(99), &at(100)), [Kind::Expired]);
        assert_eq!(kinds(&at(100), &at(101)), []);
        // Of a short life no week before.
        let short = Node { expires: Some(2 * DAY_S), ..node(1) };
        let at = |day: u64| view(day * DAY_S, &[(short.clone(), None)]);
        assert_eq!(kinds(&at(0), &at(1)), []);
    }

    #[test]
    fn routes_and_policy_are_told() {
        let route: control::Prefix = "10.7.0.0/16".parse().unwrap();
        let mut offers = node(1);
        offers.host.routes = vec![route];
        let serves = Node { approved_routes: vec![route], ..offers.clone() };
        let (plain, offers) = (view(1, &[(node(1), None)]), view(2, &[(offers, None)]));
        assert_eq!(kinds(&plain, &offers), [Kind::RoutesWait]);
        assert_eq!(kinds(&offers, &view(3, &[(serves, None)])), [Kind::Routes]);
        assert_eq!(kinds(&plain, &View { policy_version: 2, ..plain.clone() }), [Kind::Policy]);
    }
}
