//! The coordination server as sites see it: keys, nodes, approved routes.

use control::name::SITES_TAG;
use serde_json::{Value, json};

use crate::Error;

/// A join key ends after so many seconds, used or not.
pub(crate) const KEY_S: u64 = 900;
/// What errors call the server.
const PLACE: &str = "the server";

/// The administrator's calls of a coordination server.
pub trait Server: Send {
    /// One call of the API.
    ///
    /// # Errors
    /// Why there is no answer, or why the server refused; for people.
    fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, String>;
}

/// A node as the server knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) is_ours: bool,
    pub(crate) online: bool,
    pub(crate) approved: Vec<String>,
    /// Approved routes that lead nowhere through it now, by its own word. A server of before does
    /// not say which.
    pub(crate) down: Option<Vec<String>>,
    pub(crate) place: Place,
}

impl Node {
    /// Whether it claims to lead in its pair: who stands by says that all its routes are down.
    fn claims_to_lead(&self) -> bool {
        self.online && !self.approved.is_empty() && self.down.as_ref().is_some_and(Vec::is_empty)
    }
}

/// Which gateway of a pair that shares an address leads: the only one that claims to. For a while
/// after one vanished both do, until the server sees that it is gone. That is not guessed at.
pub(crate) fn leading(pair: [Option<&Node>; 2]) -> Option<usize> {
    match pair.map(|node| node.is_some_and(Node::claims_to_lead)) {
        [true, false] => Some(0),
        [false, true] => Some(1),
        _ => None,
    }
}

/// What the server tells a node of its place among sites.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    /// Whether it passes on what sites send to each other.
    pub(crate) passes_on: bool,
    /// Through whom it reaches networks, as `NETWORK=GATEWAY`.
    pub(crate) through: Vec<String>,
}

fn call(server: &mut dyn Server, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
    server.call(method, path, body).map_err(|what| Error::new(PLACE, what))
}

pub(crate) fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

pub(crate) fn nodes(server: &mut dyn Server) -> Result<Vec<Node>, Error> {
    let answer = call(server, "GET", "/api/v1/nodes", &Value::Null)?;
    let nodes = answer["nodes"].as_array().into_iter().flatten();
    let read = |node: &Value| {
        Some(Node {
            id: node["id"].as_u64()?,
            name: node["name"].as_str()?.to_owned(),
            is_ours: texts(&node["tags"]).iter().any(|tag| tag == SITES_TAG),
            online: node["online"] == true,
            approved: texts(&node["routes"]["approved"]),
            down: node["routes"].get("down").map(texts),
            place: Place {
                passes_on: node["ways"]["passes_on"] == true,
                through: texts(&node["ways"]["through"]),
            },
        })
    };
    Ok(nodes.filter_map(read).collect())
}

/// A join key that works once: its number and its token.
pub(crate) fn key(server: &mut dyn Server, site: &str) -> Result<(u64, String), Error> {
    let body = json!({ "reusable": false, "ephemeral": false, "expires_in_s": KEY_S, "user": null,
                       "tags": [SITES_TAG, format!("tag:site-{site}")] });
    let answer = call(server, "POST", "/api/v1/keys", &body)?;
    match (answer["id"].as_u64(), answer["token"].as_str()) {
        (Some(id), Some(token)) => Ok((id, token.to_owned())),
        _ => Err(Error::new(PLACE, "it made no join key; update both programs")),
    }
}

/// Ends a key that was not used after all.
pub(crate) fn expire(server: &mut dyn Server, key: u64) -> Result<(), Error> {
    call(server, "POST", &format!("/api/v1/keys/{key}/expire"), &Value::Null).map(drop)
}

/// Approves exactly these routes of a node, and tells it its place.
pub(crate) fn approve(
    server: &mut dyn Server,
    name: &str,
    routes: &[&str],
    place: &Place,
) -> Result<(), Error> {
    let known = nodes(server)?.into_iter().find(|node| node.name == name);
    let Some(node) = known else {
        return Err(Error::new(PLACE, format!("there is no node {name} yet; apply again")));
    };
    let id = node.id;
    // A network may let nodes wait for an administrator, who has spoken now.
    call(server, "POST", &format!("/api/v1/nodes/{id}/approve"), &Value::Null)?;
    // First its place: others send to it from its first route on, and it answers the right way.
    if node.place != *place {
        let body = json!({ "passes_on": place.passes_on, "through": place.through });
        call(server, "POST", &format!("/api/v1/nodes/{id}/ways"), &body)?;
    }
    let body = json!({ "routes": routes });
    call(server, "POST", &format!("/api/v1/nodes/{id}/routes"), &body).map(drop)
}

/// Takes a node of ours out of the network, if it is there.
pub(crate) fn remove(server: &mut dyn Server, name: &str) -> Result<(), Error> {
    let known = nodes(server)?.into_iter().find(|node| node.name == name && node.is_ours);
    match known {
        Some(node) => {
            call(server, "DELETE", &format!("/api/v1/nodes/{}", node.id), &Value::Null).map(drop)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to every call.
    struct Told(Value);

    impl Server for Told {
        fn call(&mut self, _: &str, _: &str, _: &Value) -> Result<Value, String> {
            Ok(self.0.clone())
        }
    }

    const LAN: &str = "10.3.0.0/24";

    /// A gateway as the server shows it, that is online and has this route.
    fn gateway(online: bool, approved: &[&str], down: &[&str]) -> Value {
        json!({ "id": 1, "name": "acme-v-gw", "tags": [SITES_TAG], "online": online,
                "routes": { "approved": approved, "down": down } })
    }

    /// Who leads, once both were read.
    fn leads(pair: [&Value; 2]) -> Option<usize> {
        let nodes = nodes(&mut Told(json!({ "nodes": pair }))).unwrap();
        assert_eq!(nodes.len(), 2);
        leading([nodes.first(), nodes.get(1)])
    }

    #[test]
    fn who_claims_alone_leads_and_of_two_or_none_nobody_is_said_to() {
        let holds = gateway(true, &[LAN], &[]);
        let stands_by = gateway(true, &[LAN], &[LAN]);
        assert_eq!(leads([&holds, &stands_by]), Some(0));
        assert_eq!(leads([&stands_by, &holds]), Some(1));
        assert_eq!(leads([&holds, &holds]), None, "the one before is not seen to be gone yet");
        assert_eq!(leads([&stands_by, &stands_by]), None);
        let gone = gateway(false, &[LAN], &[]);
        assert_eq!(leads([&gone, &holds]), Some(1));
        assert_eq!(leads([&gone, &stands_by]), None);
        let fresh = gateway(true, &[], &[]);
        assert_eq!(leads([&holds, &fresh]), Some(0), "who has no route leads nowhere");
        let some = gateway(true, &[LAN, "10.9.0.0/24"], &[LAN]);
        assert_eq!(leads([&some, &holds]), Some(1), "one network of its LAN failed");
    }

    #[test]
    fn a_server_that_does_not_say_what_is_down_is_not_read_as_one_that_says_nothing_is() {
        let mut old = gateway(true, &[LAN], &[]);
        old["routes"].as_object_mut().unwrap().remove("down");
        let mut gone = old.clone();
        gone["online"] = json!(false);
        assert_eq!(leads([&old, &old]), None);
        assert_eq!(leads([&gone, &old]), None, "the one that is seen may stand by");
    }

    #[test]
    fn one_that_the_server_does_not_know_leads_nothing() {
        let told = json!({ "nodes": [gateway(true, &[LAN], &[])] });
        let nodes = nodes(&mut Told(told)).unwrap();
        assert_eq!(leading([None, nodes.first()]), Some(1));
        assert_eq!(leading([None, None]), None);
    }
}
