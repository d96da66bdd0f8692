//! From HuJSON to a [`Directory`], for a policy that is checked where no server is.

use core::net::IpAddr;

use super::{FINDINGS_MAX, Reader};
use crate::directory::{Directory, NODES_MAX, Node, NodeId, User};
use crate::document::LIST_MAX;
use crate::hujson::{self, Field, Json, Value};
use crate::place::{Finding, quoted};

impl Directory {
    /// Reads a directory from a file: HuJSON with `users`, `nodes` and `reserved`, whose fields are
    /// those of [`User`] and [`Node`].
    ///
    /// # Errors
    /// Up to 20 mistakes in the order of the file, each with its place and how to mend it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<Finding>> {
        directory(bytes)
    }
}

fn directory(bytes: &[u8]) -> Result<Directory, Vec<Finding>> {
    let mut reader = Reader::default();
    let Some(json) = hujson::parse(bytes).map_err(|finding| vec![finding])? else {
        return Ok(Directory::default());
    };
    let directory = reader.directory(&json);
    reader.faults.sort_by_key(|finding| finding.place);
    reader.faults.truncate(FINDINGS_MAX);
    if reader.faults.is_empty() { Ok(directory) } else { Err(reader.faults) }
}

impl Reader {
    fn directory(&mut self, json: &Json) -> Directory {
        let fields = self.object(json, "an object with users and nodes");
        let [users, nodes, reserved] = self.sorted(fields, ["users", "nodes", "reserved"], &[]);
        let mut directory = Directory::default();
        for entry in self.entries(users, NODES_MAX) {
            directory.users.extend(self.user(entry));
        }
        for entry in self.entries(nodes, NODES_MAX) {
            directory.nodes.extend(self.node(entry));
        }
        for entry in self.entries(reserved, LIST_MAX) {
            let Some(text) = self.text(entry) else { continue };
            directory.reserved.extend(self.prefix(entry.place, text));
        }
        directory
    }

    fn entries<'a>(&mut self, field: Option<&'a Field>, max: usize) -> &'a [Json] {
        field.map_or(&[], |field| self.list(&field.value, "a list", max))
    }

    fn words(&mut self, field: Option<&Field>) -> Vec<String> {
        let entries = self.entries(field, LIST_MAX);
        entries.iter().filter_map(|entry| self.text(entry).map(str::to_owned)).collect()
    }

    fn user(&mut self, json: &Json) -> Option<User> {
        let fields = self.object(json, "an object with a name");
        let [name, email, roles] = self.sorted(fields, ["name", "email", "roles"], &[]);
        let roles = self.words(roles);
        let email = email.and_then(|field| self.text(&field.value).map(str::to_owned));
        let Some(name) = name else {
            self.fault(json.place, "a user without name", "add \"name\": \"alice\"");
            return None;
        };
        let name = self.text(&name.value)?.to_owned();
        Some(User { name, email, roles })
    }

    fn node(&mut self, json: &Json) -> Option<Node> {
        const KNOWN: [&str; 6] = ["id", "name", "addresses", "owner", "tags", "routes"];
        let fields = self.object(json, "an object with id and addresses");
        let [id, name, addresses, owner, tags, routes] = self.sorted(fields, KNOWN, &[]);
        let tags = self.words(tags);
        let name = name.and_then(|field| self.text(&field.value)).unwrap_or_default().to_owned();
        let owner = owner.and_then(|field| self.text(&field.value).map(str::to_owned));
        let mut all = Vec::new();
        for entry in self.entries(routes, LIST_MAX) {
            let Some(text) = self.text(entry) else { continue };
            all.extend(self.prefix(entry.place, text));
        }
        let mut own = Vec::new();
        for entry in self.entries(addresses, LIST_MAX) {
            let Some(text) = self.text(entry) else { continue };
            match text.parse::<IpAddr>() {
                Ok(address) => own.push(address),
                Err(_) => {
                    let what = format!("{} is no address", quoted(text));
                    self.fault(entry.place, what, "write 100.64.0.1 or fd7a::1, without a prefix");
                }
            }
        }
        let number = id.and_then(|field| match &field.value.value {
            Value::Number(text) | Value::Text(text) => text.parse().ok(),
            _ => None,
        });
        let Some(number) = number else {
            let place = id.map_or(json.place, |field| field.value.place);
            self.fault(place, "a node without a number", "add \"id\": 1, another for each");
            return None;
        };
        Some(Node { id: NodeId(number), name, addresses: own, owner, tags, routes: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_read_or_refused_with_places() {
        let text = "{ // two people\n\"users\": [{\"name\": \"ann\", \"roles\": [\"admin\"]},\n\
            {\"name\": \"ben\", \"email\": \"ben@example.com\"}],\n\
            \"nodes\": [{\"id\": 7, \"name\": \"gw\", \
            \"addresses\": [\"100.64.0.7\", \"fd7a::7\"], \"owner\": \"ann\",\n\
            \"tags\": [\"tag:gw\"], \"routes\": [\"10.0.0.0/8\"]}, {\"id\": \"8\"}],\n\
            \"reserved\": [\"100.64.0.0/10\"]}";
        let read = directory(text.as_bytes()).unwrap();
        assert_eq!((read.users.len(), read.nodes.len(), read.reserved.len()), (2, 2, 1));
        assert_eq!(read.users[1].email.as_deref(), Some("ben@example.com"));
        assert_eq!((read.nodes[0].id, read.nodes[1].id), (NodeId(7), NodeId(8)));
        assert_eq!(read.nodes[0].addresses.len(), 2);
        assert_eq!(read.nodes[0].user(), None);
        assert_eq!(directory(b"{}"), Ok(Directory::default()));
        let text =
            "{\"users\": [{}],\n\"nodes\": [{\"id\": -1, \"addresses\": [\"x\"]}, 5],\n\"a\": 1}";
        let faults = directory(text.as_bytes()).unwrap_err();
        let shown: Vec<_> = faults.iter().map(Finding::to_string).collect();
        assert_eq!(
            shown,
            [
                "1:12: a user without name: add \"name\": \"alice\"",
                "2:18: a node without a number: add \"id\": 1, another for each",
                "2:36: \"x\" is no address: write 100.64.0.1 or fd7a::1, without a prefix",
                "2:43: a number stands where an object with id and addresses belongs: write an \
                 object with id and addresses",
                "2:43: a node without a number: add \"id\": 1, another for each",
                "3:1: the key \"a\" is not known: known here are users, nodes, reserved",
            ]
        );
    }
}
