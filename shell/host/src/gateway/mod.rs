//! A node as a gateway for others, and a node that goes through gateways.
//!
//! What is wanted stands in a [`Setup`]; [`Gateway::set`] makes the machine so, in an order in
//! which nothing is open for a moment that will be closed after it:
//!
//! 1. `script` writes the nftables table `inet warren` as text, and `nft` puts it in place of the
//!    last one in one transaction. What peers may reach behind us passes, and nothing else is
//!    forwarded from our link or to it (PF-02); what is there reaches peers only in answer, from
//!    the first packet on (TS-2024-005, threat GW-02); an exit never leads to private networks,
//!    nor to the machine's own, which `place` tells (GW-01).
//! 2. `settings` turns on forwarding, only where it is needed, and writes down what was there.
//! 3. `routes` leads what goes through other gateways into our link: by a table of our own and
//!    two kinds of rules, which spare our own outer packets by their mark.
//!
//! What was set is compared with what is there at each call, and put back where somebody took it
//! away (GW-13). Others' tables are looked at (`others`), never changed: where one drops what would
//! have to pass, the words to mend it are a warning. Dropping a [`Gateway`] undoes everything;
//! [`clear_leftovers`] undoes what a killed one left, except that an exit stays closed until
//! then, so that nothing goes around it (GW-11, GW-09).

mod others;
mod place;
mod routes;
mod script;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use node::Prefix;

use crate::linux::netlink::{self, Family, Netlink};
use crate::linux::program::{feed, find};
use place::Place;
use routes::Routes;
use settings::Saved;

pub use place::TABLE;
pub use script::MARK;

/// The nftables table, of the family `inet`.
const NFT_TABLE: &str = "warren";

/// What a machine is to be for the network, and the network for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Our interface.
    pub link: String,
    /// This node's own addresses in the network.
    pub own: Vec<IpAddr>,
    /// The ranges of the network, from which peers send.
    pub overlay: Vec<Prefix>,
    /// Subnets behind other gateways whose hosts may send through their gateway as themselves.
    pub sites: Vec<Prefix>,
    /// Approved subnets behind this node, which peers may reach.
    pub serves: Vec<Prefix>,
    /// Whether this node leads peers to the Internet.
    pub serves_exit: bool,
    /// Whether what peers send into subnets comes from this node's address there. To the
    /// Internet it always does.
    pub source_nat: bool,
    /// Parts of `serves` whose hosts may begin conversations with peers.
    pub begins: Vec<Prefix>,
    /// Addresses of plain WireGuard peers that other peers reach through this node, and they
    /// others.
    pub carries: Vec<Prefix>,
    /// Approved subnets behind peers, which this node reaches through them.
    pub uses: Vec<Prefix>,
    /// Whether everything else goes through a peer, the exit.
    pub exit: bool,
    /// With an exit: whether local private networks are still reached directly.
    pub exit_lan: bool,
    /// What leads into a circuit and nowhere else; `uses` or `exit` have it as well.
    pub led: Vec<Prefix>,
    /// Whether programs of this machine speak as circuits.
    pub doors: bool,
    /// Leave nftables and settings alone; routes and rules only.
    pub hands_off: bool,
}

impl Setup {
    fn is_gateway(&self) -> bool {
        self.serves_exit || !self.serves.is_empty()
    }

    /// Whether anything passes through this machine for peers.
    fn forwards(&self) -> bool {
        self.is_gateway() || !self.carries.is_empty()
    }

    /// Whether anything of this family is served or carried.
    fn serves_family(&self, family: Family) -> bool {
        let own = self.own.iter().any(|a| Family::of(*a) == family);
        let mut passes = self.serves.iter().chain(&self.carries);
        passes.any(|p| Family::of(p.address()) == family) || self.serves_exit && own
    }
}

/// Why the machine is not as wanted.
#[derive(Debug)]
pub enum Error {
    /// The kernel refused an address, route or rule.
    Netlink(netlink::Error),
    /// `nft` refused, or is not there.
    Firewall(String),
    /// A setting or the record of it cannot be read or written.
    Setting(PathBuf, std::io::Error),
    /// There is no such interface.
    NoLink(String),
}

/// A setup in force; dropping it undoes all of it.
#[derive(Debug)]
pub struct Gateway {
    saved: Saved,
    routes: Routes,
    /// What is in force; unknown at first.
    table: Option<Table>,
    /// What somebody had taken away and was put back, until it is told.
    put_back: Vec<&'static str>,
}

/// The packet filter as it was set, and as `nft` has shown it then.
#[derive(Debug)]
struct Table {
    script: String,
    listed: Option<String>,
}

impl Gateway {
    /// Begins with what an earlier run left, which the first [`Gateway::set`] changes in place: an
    /// exit that it left closed is not open for a moment. Records are kept in the folder `state`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(state: &Path) -> Result<Self, Error> {
        let routes = Routes::present(&mut Netlink::open()?)?;
        Ok(Self { saved: Saved::load(state)?, routes, table: None, put_back: Vec::new() })
    }

    /// Makes the machine as `setup` says, in the network namespace of the calling thread; what
    /// is so already stays untouched, and what somebody took away is put back. Call it again when
    /// links, addresses, routes, rules, filters or settings change. Gives what people should know.
    ///
    /// # Errors
    /// [`Error`]; what was reached by then stays, and the next call goes on from it.
    pub fn set(&mut self, setup: &Setup) -> Result<Vec<String>, Error> {
        let mut netlink = Netlink::open()?;
        let link = netlink.link(&setup.link)?.ok_or_else(|| Error::NoLink(setup.link.clone()))?;
        let mut warnings = Vec::new();
        let wanted = if setup.hands_off {
            Vec::new()
        } else {
            settings::wanted(setup, &mut netlink, &link)?
        };
        // forwarding ends before the filter goes, and begins after it came
        self.saved.keep(&wanted)?;
        let place = Place::look(&mut netlink, &link)?;
        let script = if setup.hands_off { String::new() } else { script::script(setup, &place) };
        if self.set_table(setup, script)? {
            self.put_back.push("the packet filter (table inet warren)");
        }
        let is_bare = setup.exit && !find("nft") && !setup.hands_off;
        if is_bare {
            warnings.push(
                "there is no nft here: nothing but routes keeps traffic from leaving beside \
                 the exit; install nftables"
                    .to_owned(),
            );
        }
        let (missed, failed) = self.saved.set(&wanted)?;
        warnings.extend(failed.iter().map(ToString::to_string));
        if missed {
            self.put_back.push("forwarding");
        }
        let outcome = self.routes.set(setup, &place.inner, &mut netlink, &link)?;
        if outcome.missed {
            self.put_back.push("routing rules and routes (table 30561)");
        }
        warnings.extend(outcome.failed.into_iter().map(|(family, e)| {
            format!("{e}; {family} is not led through the network, and the rest is")
        }));
        if !setup.hands_off {
            warnings.extend(others::warnings(setup));
        }
        Ok(warnings)
    }

    /// What somebody had taken away and was put back, since this was asked last.
    pub fn put_back(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.put_back)
    }

    /// Sets the packet filter, if it is not so already; whether somebody had taken it away.
    fn set_table(&mut self, setup: &Setup, script: String) -> Result<bool, Error> {
        let before = self.table.as_ref().filter(|table| table.script == script);
        if !find("nft") {
            if setup.forwards() && !setup.hands_off {
                let why = "there is no nft here; install nftables".to_owned();
                return Err(Error::Firewall(why));
            }
            self.table = None;
            return Ok(false);
        }
        // One that was gone again before it could be listed is not as it was set.
        let is_known = |table: &&Table| table.listed.is_some() || table.script.is_empty();
        if before.filter(is_known).is_some_and(|table| table.listed == listed()) {
            return Ok(false);
        }
        let is_missed = before.is_some();
        let all = if script.is_empty() { script::removal() } else { script.clone() };
        feed("nft", &["-f", "-"], &all).map_err(Error::Firewall)?;
        self.table = Some(Table { script, listed: listed() });
        Ok(is_missed)
    }

    /// Undoes everything, as far as it can be; the first error is told.
    fn clear(&mut self) -> Result<(), Error> {
        let routes = Netlink::open().and_then(|mut netlink| self.routes.clear(&mut netlink));
        let settings = self.saved.restore();
        let script = if find("nft") { remove_table() } else { Ok(()) };
        self.table = None;
        routes.map_err(Error::Netlink).and(settings).and(script)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(e) = self.clear() {
            tracing::error!("the gateway is not wholly undone: {e}");
        }
    }
}

/// Removes what an earlier run left: rules, routes, the nftables table, and settings that are still
/// as we made them.
///
/// # Errors
/// [`Error`]; everything was tried.
pub fn clear_leftovers(state: &Path) -> Result<(), Error> {
    let routes =
        Netlink::open().and_then(|mut netlink| Routes::present(&mut netlink)?.clear(&mut netlink));
    let settings = Saved::load(state).and_then(|mut saved| saved.restore());
    let table = if find("nft") { remove_table() } else { Ok(()) };
    routes.map_err(Error::Netlink).and(settings).and(table)
}

/// Our table as `nft` shows it; none if it is not there.
fn listed() -> Option<String> {
    feed("nft", &["-s", "list", "table", "inet", NFT_TABLE], "").ok()
}

/// Removes our table; one that is not there is no error.
fn remove_table() -> Result<(), Error> {
    let listed = feed("nft", &["list", "tables", "inet"], "").map_err(Error::Firewall)?;
    if !listed.lines().any(|line| line.trim() == format!("table inet {NFT_TABLE}")) {
        return Ok(());
    }
    feed("nft", &["-f", "-"], &script::removal()).map(drop).map_err(Error::Firewall)
}

impl From<netlink::Error> for Error {
    fn from(e: netlink::Error) -> Self {
        Self::Netlink(e)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Netlink(e) => e.fmt(f),
            Self::Firewall(why) => write!(f, "the packet filter is not set: {why}"),
            Self::Setting(path, e) => {
                write!(f, "cannot change {}: {e}; {}", path.display(), settings::mend(path, e))
            }
            Self::NoLink(name) => {
                write!(f, "there is no interface {name}; is the network up?")
            }
        }
    }
}

impl std::error::Error for Error {}
