//! What a map means for the machine beyond its interface: names are answered and the system's
//! resolver is told so, subnets and an exit are led into the interface, and what is behind this
//! node is opened for peers. The work is [`host::names`]', [`host::resolver`]'s and
//! [`host::gateway`]'s; here is only when, and with what.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::{Map, Prefix};
use dns::Names;
use host::gateway::{self, Gateway, Setup};
use host::names::{Place, Server};
use host::resolver::{self, Applied, Wish};

use crate::Settings;
use crate::plan::{self, Plan};

/// After something failed, another try.
const AGAIN: Duration = Duration::from_secs(10);

/// Names, resolver and gateway as they are in force.
#[derive(Debug)]
pub(crate) struct Gate {
    state: PathBuf,
    gateway: Option<Gateway>,
    setup: Option<Setup>,
    // dropped in this order: nobody is sent to a server that is gone
    resolver: Option<(Wish, Applied)>,
    server: Option<(Vec<IpAddr>, dns::Settings, Server)>,
    names_failed: Option<Instant>,
    gateway_failed: Option<Instant>,
    /// What a user should know: of the gateway, of an exit that is none, of names.
    said: [Vec<String>; 3],
}

impl Gate {
    /// Puts back the resolvers that a killed daemon left; what it left of routes stays until
    /// [`Gate::apply`] or [`Gate::clear`], so that nothing goes around an exit meanwhile.
    pub(crate) fn new(state: &Path) -> Self {
        if let Err(error) = resolver::restore_leftovers(&resolver::Paths::system(state)) {
            tracing::error!("{error}");
        }
        Self {
            state: state.to_owned(),
            gateway: None,
            setup: None,
            resolver: None,
            server: None,
            names_failed: None,
            gateway_failed: None,
            said: [const { Vec::new() }; 3],
        }
    }

    /// What a user should know now.
    pub(crate) fn said(&self) -> impl Iterator<Item = &String> {
        self.said.iter().flatten()
    }

    /// Brings everything in line. Without a map nothing is served or named, and an exit that is
    /// wanted stays closed.
    pub(crate) fn apply(
        &mut self,
        link: &str,
        map: Option<&Map>,
        plan: &Plan,
        settings: &Settings,
    ) {
        let is_due = |failed: &mut Option<Instant>| {
            failed.take_if(|at| at.elapsed() >= AGAIN);
            failed.is_none()
        };
        let setup = setup(link, map, plan, settings);
        if self.setup.as_ref() != Some(&setup) && is_due(&mut self.gateway_failed) {
            let said = self.set_gateway(setup).unwrap_or_else(|error| {
                self.gateway_failed = Some(Instant::now());
                vec![error.to_string()]
            });
            self.say(0, said);
        }
        self.say(1, closed(map, plan, settings).into_iter().collect());
        if is_due(&mut self.names_failed) {
            let result = self.set_names(link, map, settings);
            self.names_failed = result.is_err().then(Instant::now);
            self.say(2, result.err().into_iter().collect());
        }
    }

    /// Keeps what is to be known, and logs what is new of it.
    fn say(&mut self, what: usize, said: Vec<String>) {
        for text in said.iter().filter(|text| !self.said[what].contains(text)) {
            tracing::warn!("{text}");
        }
        self.said[what] = said;
    }

    /// Links, addresses or routes changed: what was done is looked at again.
    pub(crate) fn look_again(&mut self) {
        if let (Some(gateway), Some(setup)) = (&mut self.gateway, &self.setup)
            && let Err(error) = gateway.set(setup)
        {
            tracing::warn!("{error}");
            self.setup = None;
        }
    }

    /// Undoes everything.
    pub(crate) fn clear(&mut self) -> Result<(), String> {
        (self.resolver, self.server) = (None, None);
        (self.gateway, self.setup) = (None, None);
        (self.names_failed, self.gateway_failed) = (None, None);
        self.said = [const { Vec::new() }; 3];
        gateway::clear_leftovers(&self.state).map_err(|error| error.to_string())
    }

    fn set_gateway(&mut self, setup: Setup) -> Result<Vec<String>, gateway::Error> {
        let gateway = match &mut self.gateway {
            Some(gateway) => gateway,
            None => self.gateway.insert(Gateway::new(&self.state)?),
        };
        let warnings = gateway.set(&setup)?;
        self.setup = Some(setup);
        Ok(warnings)
    }

    fn set_names(
        &mut self,
        link: &str,
        map: Option<&Map>,
        settings: &Settings,
    ) -> Result<(), String> {
        let Some(map) = map.filter(|map| settings.accept_dns && !map.dns.domain.is_empty()) else {
            (self.resolver, self.server) = (None, None);
            return Ok(());
        };
        let wish = wish(link, map);
        if self.server.as_ref().is_none_or(|(addresses, ..)| *addresses != map.me.addresses) {
            (self.resolver, self.server) = (None, None);
            let names = Names::new(dns::Settings::default()).map_err(|e| e.to_string())?;
            let place = Place { addresses: map.me.addresses.clone(), ..Place::default() };
            let server = Server::start(&place, names).map_err(|e| e.to_string())?;
            self.server = Some((map.me.addresses.clone(), dns::Settings::default(), server));
        }
        if self.resolver.as_ref().is_none_or(|(told, _)| *told != wish) {
            self.resolver = None;
            let paths = resolver::Paths::system(&self.state);
            let applied = resolver::apply(&wish, &paths).map_err(|e| e.to_string())?;
            self.resolver = Some((wish, applied));
        }
        let before = self.resolver.iter().flat_map(|(_, applied)| applied.upstreams());
        let names = names(map, before.copied().collect());
        if let Some((_, known, server)) = &mut self.server
            && *known != names
        {
            server.set(Names::new(names.clone()).map_err(|e| e.to_string())?);
            *known = names;
        }
        Ok(())
    }
}

/// What the map makes of this machine.
fn setup(link: &str, map: Option<&Map>, plan: &Plan, settings: &Settings) -> Setup {
    let wire = |list: &[Prefix]| list.iter().map(plan::wire_prefix).collect::<Vec<_>>();
    let me = map.map(|map| &map.me).filter(|me| me.approved);
    let serves: Vec<Prefix> = me.map(|me| me.routes.clone()).unwrap_or_default();
    let (exits, subnets): (Vec<Prefix>, Vec<Prefix>) =
        serves.into_iter().partition(Prefix::is_default);
    let behind: Vec<Prefix> = plan.routes.iter().filter(|p| !p.is_default()).copied().collect();
    Setup {
        link: link.to_owned(),
        own: map.map(|map| map.me.addresses.clone()).unwrap_or_default(),
        overlay: wire(map.map(|map| &map.ranges[..]).unwrap_or_default()),
        sites: wire(&behind),
        serves: wire(&subnets),
        serves_exit: !exits.is_empty(),
        source_nat: settings.snat_subnet_routes && !settings.site_gateway,
        begins: if settings.site_gateway { wire(&subnets) } else { Vec::new() },
        uses: wire(&behind),
        exit: settings.exit_node.is_some(),
        exit_lan: settings.exit_node_allow_lan_access,
        hands_off: false,
    }
}

/// Why nothing leaves, where an exit is wanted and there is none.
fn closed(map: Option<&Map>, plan: &Plan, settings: &Settings) -> Option<String> {
    let name = settings.exit_node.as_ref()?;
    let is_there = plan.routes.iter().any(Prefix::is_default);
    (map.is_some() && !is_there).then(|| {
        format!(
            "nothing leaves this machine: the exit node {name} is not in the network or its \
             default route is not approved; approve it, or `warren set --exit-node=`"
        )
    })
}

fn wish(link: &str, map: &Map) -> Wish {
    let ranges = map.ranges.iter().map(plan::wire_prefix);
    let reverse = ranges.flat_map(|range| dns::reverse_zones(&range));
    Wish {
        link: link.to_owned(),
        servers: map.me.addresses.clone(),
        domain: map.dns.domain.clone(),
        zones: map.dns.zones.iter().map(|(zone, _)| zone.clone()).chain(reverse).collect(),
        everything: !map.dns.resolvers.is_empty(),
    }
}

/// The names of the map; what the network has no resolvers for is asked of those from `before`.
fn names(map: &Map, before: Vec<IpAddr>) -> dns::Settings {
    let own = (map.me.name.clone(), map.me.addresses.clone());
    let peers = map.peers.iter().map(|peer| (peer.name.clone(), peer.addresses.clone()));
    let told = &map.dns.resolvers;
    dns::Settings {
        domain: map.dns.domain.clone(),
        own: map.me.name.clone(),
        hosts: std::iter::once(own).chain(peers).collect(),
        ranges: map.ranges.iter().map(plan::wire_prefix).collect(),
        resolvers: if told.is_empty() { before } else { told.clone() },
        zones: map.dns.zones.clone(),
        serial: u32::try_from(map.sequence & u64::from(u32::MAX)).unwrap_or(0),
    }
}
