//! Gateways that run strongSwan or OpenVPN: what stands in their files, out of the same plan.
//!
//! Such a gateway is no node of the network. It has a tunnel to the gateway of each site with which
//! its own is joined, and knows it by a certificate of the authority that the operator keeps. By
//! IPsec each end may begin. By OpenVPN every gateway has a server, and is a client of those that
//! stand above it in the file, as source 001 has it (`client-config-dir`, `iroute`).
//!
//! A machine at a cloud is made with all that it is to have, since nobody logs into it. What it was
//! made with is one word, which its tag keeps; with another word it is made again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use wire::fnv;
use wire::prefix::Prefix;

use crate::backend::{Backend, OPENVPN_PORT};
use crate::file::{File, Host, Topology};
use crate::graph::{Id, Kind, Known, Resource, list, neighbours, node_name, resource};
use crate::number::{Numbering, Place};

/// Silence after which an end is taken for dead, s.
const DEAD_S: u8 = 5;

/// A file of a gateway's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// Where it goes.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The folder that OpenVPN has for a network of ours.
#[must_use]
pub fn openvpn_folder(file: &File) -> String {
    format!("/etc/openvpn/warren-{}", file.network)
}

/// The files of the gateway of a site.
#[must_use]
pub fn texts(file: &File, numbering: &Numbering, site: usize, known: &Known) -> Vec<Text> {
    let scene = Scene { file, numbering, site, known };
    match file.sites[site].backend {
        Backend::Warren => Vec::new(),
        Backend::Ipsec => vec![scene.ipsec()],
        Backend::OpenVpn => scene.openvpn(),
    }
}

/// The other ends of a gateway's tunnels, by their gateways' names.
#[must_use]
pub fn foreign_ends(file: &File, site: usize) -> Vec<String> {
    neighbours(file, site).into_iter().map(|other| node_name(file, other, 0)).collect()
}

/// The mark of all files of a site's gateway.
#[must_use]
pub fn config(file: &File, numbering: &Numbering, site: usize, known: &Known) -> String {
    let all = texts(file, numbering, site, known);
    let all: String = all.iter().map(|file| format!("{}\n{}", file.path, file.text)).collect();
    mark(&all)
}

/// What the machine of a site's gateway is made with, where it is at a cloud: the backend, and the
/// marks of its configuration and of the authority.
#[must_use]
pub fn made(file: &File, numbering: &Numbering, site: usize, known: &Known) -> String {
    let config = config(file, numbering, site, known);
    format!("{} {config} {}", file.sites[site].backend.word(), known.authority)
}

/// Makes of what a site at a cloud must be one whose gateway runs another program: it is no node
/// that joins, and has no routes that anybody approves.
pub(crate) fn at_cloud(
    file: &File,
    numbering: &Numbering,
    site: usize,
    known: &Known,
    all: &mut Vec<Resource>,
) {
    let own = &file.sites[site];
    all.retain(|one| one.id.site != own.name || one.id.kind != Kind::Approval);
    let is_machine = |one: &&mut Resource| one.id.site == own.name && one.id.kind == Kind::Machine;
    for machine in all.iter_mut().filter(is_machine) {
        machine.properties.remove("member");
        let made = made(file, numbering, site, known);
        machine.properties.insert("made".to_owned(), made);
        machine.why = format!("the gateway; it begins with {}", own.backend.program());
    }
}

/// A site with which one is joined and whose gateway's address is not known, if there is one.
#[must_use]
pub fn unknown_end<'f>(file: &'f File, site: usize, known: &Known) -> Option<&'f str> {
    let ends = neighbours(file, site).into_iter();
    let mut names = ends.map(|other| file.sites[other].name.as_str());
    names.find(|name| !known.outside.contains_key(*name))
}

/// Adds what the gateway of a site must be.
pub(crate) fn desired(
    file: &File,
    numbering: &Numbering,
    site: usize,
    known: &Known,
    all: &mut Vec<Resource>,
) -> Option<Id> {
    let own = &file.sites[site];
    let host = own.hosts.first().map(Host::to_string)?;
    let id = Id::new(Kind::Foreign, &own.name, node_name(file, site, 0));
    all.push(resource(
        id.clone(),
        [
            ("host", host.clone()),
            ("backend", own.backend.word().to_owned()),
            ("config", config(file, numbering, site, known)),
            ("authority", known.authority.clone()),
            ("forwards", "on".to_owned()),
            ("state", "running".to_owned()),
        ],
        vec![],
        format!("{host} runs {} as the gateway of {}", own.backend.program(), own.name),
    ));
    Some(id)
}

/// By which a change of a text is seen; nobody is deceived by it.
#[must_use]
pub fn mark(text: &str) -> String {
    format!("{:016x}", fnv::sum(text.bytes()))
}

/// A site that is configured, and all that is known of the others.
struct Scene<'s> {
    file: &'s File,
    numbering: &'s Numbering,
    site: usize,
    known: &'s Known,
}

impl Scene<'_> {
    fn place(&self, site: usize) -> &Place {
        &self.numbering.places[site]
    }

    fn name(&self, site: usize) -> String {
        node_name(self.file, site, 0)
    }

    /// Where a site's gateway is found from outside.
    fn outside(&self, site: usize) -> &str {
        self.known.outside.get(&self.file.sites[site].name).map_or("%any", String::as_str)
    }

    /// The networks that `from` reaches through its neighbour `through`.
    fn beyond(&self, from: usize, through: usize) -> Vec<Prefix> {
        let mut sites = BTreeSet::from([through]);
        let mut open = vec![through];
        while let Some(at) = open.pop().filter(|_| self.file.topology != Topology::Mesh) {
            for next in neighbours(self.file, at) {
                if next != from && sites.insert(next) {
                    open.push(next);
                }
            }
        }
        sites.into_iter().flat_map(|site| self.place(site).networks.clone()).collect()
    }

    /// The whole of strongSwan's file.
    fn ipsec(&self) -> Text {
        let network = &self.file.network;
        let own = self.name(self.site);
        let mut text = format!("{}connections {{\n", head(network));
        for other in neighbours(self.file, self.site) {
            let name = self.name(other);
            let at = self.outside(other);
            let near = list(&self.beyond(other, self.site));
            let far = list(&self.beyond(self.site, other));
            let _ = write!(
                text,
                "  {name} {{
    version = 2
    remote_addrs = {at}
    proposals = aes256gcm16-prfsha256-ecp256,default
    encap = yes
    unique = replace
    keyingtries = 0
    dpd_delay = {DEAD_S}s
    local {{
      auth = pubkey
      certs = warren-{network}.pem
      id = {own}
    }}
    remote {{
      auth = pubkey
      cacerts = warren-{network}.pem
      id = {name}
    }}
    children {{
      {name} {{
        local_ts = {near}
        remote_ts = {far}
        esp_proposals = aes256gcm16-ecp256,default
        start_action = start
        dpd_action = restart
        close_action = start
      }}
    }}
  }}
"
            );
        }
        text += "}\n";
        Text { path: format!("/etc/swanctl/conf.d/warren-{network}.conf"), text }
    }

    /// A server, what it knows of each client, and a client for each server above.
    fn openvpn(&self) -> Vec<Text> {
        let all = neighbours(self.file, self.site);
        let (above, below): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|other| *other < self.site);
        let mut all = vec![self.openvpn_server(&below)];
        for other in below {
            let mut text = head(&self.file.network);
            for prefix in self.beyond(self.site, other) {
                let _ = writeln!(text, "iroute {}", spelt(prefix));
            }
            for prefix in self.beyond(other, self.site) {
                let _ = writeln!(text, "push \"route {}\"", spelt(prefix));
            }
            let path = format!("{}/clients/{}", openvpn_folder(self.file), self.name(other));
            all.push(Text { path, text });
        }
        all.extend(above.into_iter().map(|other| self.openvpn_client(other)));
        all
    }

    fn openvpn_server(&self, clients: &[usize]) -> Text {
        let folder = openvpn_folder(self.file);
        let site = self.site;
        let mut text = format!(
            "{}dev wvpn-s\ndev-type tun\ntopology subnet\nserver 100.127.{site}.0 255.255.255.0\n\
             proto udp\nport {OPENVPN_PORT}\ndh none\nclient-config-dir {folder}/clients\n\
             ccd-exclusive\nkeepalive 1 {DEAD_S}\nremote-cert-tls client\npersist-tun\n{}",
            head(&self.file.network),
            self.openvpn_rest("server")
        );
        for client in clients {
            for prefix in self.beyond(site, *client) {
                let _ = writeln!(text, "route {}", spelt(prefix));
            }
        }
        Text { path: format!("{folder}/server.conf"), text }
    }

    fn openvpn_client(&self, server: usize) -> Text {
        let name = self.name(server);
        let text = format!(
            "{}client\ndev wvpn-c{server}\ndev-type tun\nproto udp\nremote {} {OPENVPN_PORT}\n\
             nobind\nconnect-retry 1 5\nremote-cert-tls server\nverify-x509-name {name} name\n{}",
            head(&self.file.network),
            self.outside(server),
            self.openvpn_rest(&name)
        );
        Text { path: format!("{}/client-{name}.conf", openvpn_folder(self.file)), text }
    }

    /// What a server and a client have both.
    fn openvpn_rest(&self, what: &str) -> String {
        let folder = openvpn_folder(self.file);
        let network = &self.file.network;
        format!(
            "ca {folder}/authority.pem\ncert {folder}/own.pem\nkey {folder}/key.pem\n\
             tls-version-min 1.2\ndata-ciphers AES-256-GCM\npersist-key\nverb 1\n\
             status /run/warren-openvpn-{network}-{what}.status 2\nstatus-version 2\n"
        )
    }
}

fn head(network: &str) -> String {
    format!("# Of `warren sites` for {network}: what is changed here is changed back.\n")
}

/// A network with its mask, as OpenVPN wants it.
fn spelt(prefix: Prefix) -> String {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.bits())).unwrap_or(0);
    format!("{} {}", prefix.address(), core::net::Ipv4Addr::from(mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Taken;

    fn all(backend: &str, topology: &str) -> Vec<Vec<Text>> {
        let mut text = format!("network = \"acme\"\ntopology = \"{topology}\"\n");
        for name in ["a", "b", "c"] {
            text += &format!(
                "[[site]]\nname = \"{name}\"\nprovider = \"ssh\"\nbackend = \"{backend}\"\n\
                 hosts = [\"root@gw-{name}\"]\n"
            );
        }
        let file = File::read(&text).unwrap();
        let numbering = Numbering::new(&file, &text, &Taken::new()).unwrap();
        let outside = [("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "192.0.2.3")];
        let outside = outside.map(|(name, at)| (name.to_owned(), at.to_owned())).into();
        let known = Known { outside, ..Known::default() };
        (0..3).map(|site| texts(&file, &numbering, site, &known)).collect()
    }

    fn named<'t>(texts: &'t [Text], end: &str) -> &'t str {
        let found = texts.iter().find(|text| text.path.ends_with(end));
        found.map_or("", |text| text.text.as_str())
    }

    #[test]
    fn each_end_of_ipsec_names_the_other_and_both_networks() {
        let all = all("ipsec", "mesh");
        let a = named(&all[0], "/etc/swanctl/conf.d/warren-acme.conf");
        let b = named(&all[1], "warren-acme.conf");
        for (text, other, at, near, far) in [
            (a, "acme-b-gw1", "192.0.2.2", "10.4.0.0/24", "10.4.1.0/24"),
            (b, "acme-a-gw1", "192.0.2.1", "10.4.1.0/24", "10.4.0.0/24"),
        ] {
            for line in [
                format!("  {other} {{\n"),
                format!("remote_addrs = {at}\n"),
                format!("id = {other}\n"),
                format!("local_ts = {near}\n        remote_ts = {far}\n"),
            ] {
                assert!(text.contains(&line), "{line}\nis not in\n{text}");
            }
        }
        assert_eq!(a.matches("version = 2").count(), 2, "one for each other site");
        assert_eq!(a.matches('{').count(), a.matches('}').count());
    }

    #[test]
    fn in_a_star_what_is_beyond_the_hub_goes_through_the_hub() {
        let all = all("ipsec", "star");
        let edge = named(&all[2], "warren-acme.conf");
        assert!(edge.contains("local_ts = 10.4.2.0/24\n"), "{edge}");
        assert!(edge.contains("remote_ts = 10.4.0.0/24,10.4.1.0/24\n"), "{edge}");
        let hub = named(&all[0], "warren-acme.conf");
        let toward = "local_ts = 10.4.0.0/24,10.4.1.0/24\n        remote_ts = 10.4.2.0/24\n";
        assert!(hub.contains(toward), "{hub}");
    }

    #[test]
    fn source_001_each_gateway_serves_those_below_and_asks_those_above() {
        let all = all("openvpn", "mesh");
        let server = named(&all[0], "server.conf");
        for line in ["server 100.127.0.0 255.255.255.0", "route 10.4.1.0 255.255.255.0"] {
            assert!(server.contains(line), "{server}");
        }
        let client = named(&all[0], "clients/acme-b-gw1");
        assert!(client.contains("iroute 10.4.1.0 255.255.255.0\n"), "{client}");
        assert!(client.contains("push \"route 10.4.0.0 255.255.255.0\"\n"), "{client}");
        let asks = named(&all[1], "client-acme-a-gw1.conf");
        assert!(asks.contains("remote 192.0.2.1 1194\n"), "{asks}");
        assert!(asks.contains("verify-x509-name acme-a-gw1 name\n"), "{asks}");
        let count =
            |site: &[Text], part: &str| site.iter().filter(|t| t.path.contains(part)).count();
        assert_eq!([0, 1, 2].map(|site| count(&all[site], "/client-")), [0, 1, 2]);
        assert_eq!([0, 1, 2].map(|site| count(&all[site], "/clients/")), [2, 1, 0]);
    }
}
