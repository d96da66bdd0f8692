//! What a map means for the machine beyond its interface: names are answered and the system's
//! resolver is told so, subnets and an exit are led into the interface, and what is behind this
//! node is opened for peers. The work is [`host::names`]', [`host::names::resolver`]'s and
//! [`host::gateway`]'s; here is only when, and with what.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::{Map, Prefix};
use dns::Names;
use host::gateway::{self, Gateway, Setup};
use host::linux::monitor::Watch;
use host::names::resolver::{self, Applied, Wish};
use host::names::{Place, Server};
use node::translate::Pair;

use crate::Settings;
use crate::circuits;
use crate::exits;
use crate::plan::{self, Plan};
use crate::resolvers::{Taken, beside_exit};
use crate::system;

/// After something failed, another try.
const AGAIN: Duration = Duration::from_secs(10);
/// How often the machine is looked at while others change it; more rarely where a look takes long.
const LOOK_AFTER: Duration = Duration::from_millis(500);
/// A look takes one part of so many of the time, at most.
const LOOK_SHARE: u32 = 4;
/// How often it is looked at whatever is heard of changes.
const LOOK_ANYWAY: Duration = Duration::from_secs(30);
/// What is taken away more often than this within [`LOOK_ANYWAY`] is somebody's will, and told.
const TAKEN_MAX: usize = 3;

/// Names, resolver and gateway as they are in force.
#[derive(Debug)]
pub(crate) struct Gate {
    state: PathBuf,
    gateway: Option<Gateway>,
    setup: Option<Setup>,
    // dropped in this order: nobody is sent to a server that is gone
    resolver: Option<(Wish, Applied)>,
    server: Option<(Place, dns::Settings, Server)>,
    names_failed: Option<Instant>,
    taken_names: Taken,
    gateway_failed: Option<Instant>,
    /// What a user should know: of the gateway, of an exit that is none, of names, of what others
    /// take away.
    said: [Vec<String>; 4],
    /// Hears of what others change, where the kernel lets us.
    watch: Option<Watch>,
    is_stirred: bool,
    looked: (Instant, Duration),
    /// When something was put back.
    taken: VecDeque<Instant>,
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
            taken_names: Taken::default(),
            gateway_failed: None,
            said: [const { Vec::new() }; 4],
            watch: Watch::new()
                .inspect_err(|error| tracing::warn!("others' changes are seen late: {error}"))
                .ok(),
            is_stirred: false,
            looked: (Instant::now(), Duration::ZERO),
            taken: VecDeque::new(),
        }
    }

    /// Closes the interface before it is up: nothing is forwarded from it or to it until a map
    /// says what (threat PF-02). With a map that was kept (`is_known`), so is an exit.
    pub(crate) fn close(&mut self, link: &str, settings: &Settings, is_known: bool) {
        let is_closed = settings.exit_node.is_some() || settings.sends_all_by_circuit();
        let exit_lan = settings.exit_node_allow_lan_access;
        let led: Vec<_> = settings.circuit_for.iter().map(plan::wire_prefix).collect();
        let setup = Setup {
            link: link.to_owned(),
            exit: is_closed && is_known,
            exit_lan,
            uses: led.clone(),
            led,
            ..Setup::default()
        };
        let said = self.set_gateway(setup).unwrap_or_else(|error| vec![error.to_string()]);
        self.say(0, said);
    }

    /// Which of these routes the machine is ready to serve: its filter stands.
    pub(crate) fn ready<'r>(
        &self,
        routes: &'r [Prefix],
        settings: &Settings,
    ) -> impl Iterator<Item = &'r Prefix> {
        let setup = self.setup.clone().unwrap_or_default();
        routes.iter().filter(move |route| match route.is_default() {
            true => setup.serves_exit,
            false => setup.serves.contains(&plan::wire_prefix(&settings.behind(route))),
        })
    }

    /// What a user should know now.
    pub(crate) fn said(&self) -> impl Iterator<Item = &String> {
        self.said.iter().flatten()
    }

    /// Whom this machine asked for names before it asked us.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = IpAddr> {
        self.resolver.iter().flat_map(|(_, applied)| applied.upstreams()).copied()
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
        let upstreams: Vec<IpAddr> = self.upstreams().collect();
        let setup = setup(link, map, plan, settings, &upstreams);
        if self.setup.as_ref() != Some(&setup) && is_due(&mut self.gateway_failed) {
            let said = self.set_gateway(setup).unwrap_or_else(|error| {
                self.gateway_failed = Some(Instant::now());
                vec![error.to_string()]
            });
            self.say(0, said);
        }
        self.say(1, closed(map, settings).into_iter().collect());
        if is_due(&mut self.names_failed) {
            let carried = plan.carried().map(|prefix| plan::wire_prefix(&prefix)).collect();
            let result = self.set_names(link, map, settings, carried);
            self.names_failed = result.is_err().then(Instant::now);
            let beside = || beside_exit(self.resolver.as_ref(), map, settings);
            self.say(2, result.err().or_else(beside).into_iter().collect());
        }
    }

    /// Keeps what is to be known, and logs what is new of it.
    fn say(&mut self, what: usize, said: Vec<String>) {
        for text in said.iter().filter(|text| !self.said[what].contains(text)) {
            tracing::warn!("{text}");
        }
        self.said[what] = said;
    }

    /// Links, addresses or routes changed: what was done is to be looked at again.
    pub(crate) fn stir(&mut self) {
        self.is_stirred = true;
    }

    /// Looks at the machine if anything is heard of others' changes, and now and then.
    pub(crate) fn look_if_due(&mut self) {
        self.is_stirred |= self.watch.as_ref().is_some_and(Watch::is_stirred);
        let (at, took) = self.looked;
        let pause = if self.is_stirred { LOOK_AFTER.max(took * LOOK_SHARE) } else { LOOK_ANYWAY };
        if at.elapsed() >= pause {
            self.look();
        }
    }

    /// Compares what was set with what is there, puts back what is missing, and tells what others
    /// have in the way.
    pub(crate) fn look(&mut self) {
        let begin = Instant::now();
        self.is_stirred = false;
        let (Some(gateway), Some(setup)) = (&mut self.gateway, &self.setup) else {
            self.looked = (begin, Duration::ZERO);
            return;
        };
        let result = gateway.set(setup);
        let put_back = gateway.put_back();
        match result {
            Ok(said) => self.say(0, said),
            Err(error) => {
                // All of it again with the next map or second.
                self.setup = None;
                self.say(0, vec![error.to_string()]);
            }
        }
        self.looked = (begin, begin.elapsed());
        self.note_taken(&put_back);
    }

    /// What was put back is logged; told is whoever takes it away again and again.
    fn note_taken(&mut self, put_back: &[&str]) {
        self.taken.retain(|at| at.elapsed() < LOOK_ANYWAY);
        if !put_back.is_empty() {
            tracing::warn!("somebody took away, and it was put back: {}", put_back.join(", "));
            self.taken.push_back(Instant::now());
            self.taken.truncate(TAKEN_MAX + 1);
        }
        if self.taken.len() <= TAKEN_MAX {
            self.say(3, Vec::new());
        } else if !put_back.is_empty() {
            self.say(3, vec![format!(
                "another program of this machine takes away what Warren sets, again and again: {}; \
                 find it (`nft monitor`, `ip monitor rule`) and have it leave that alone",
                put_back.join(", ")
            )]);
        }
    }

    /// What is in the way of what peers send through this machine, or to itself.
    pub(crate) fn hindrances(&self, is_through: bool) -> Vec<String> {
        let of_input = |text: &&String| text.contains("drops what comes in");
        self.said[0].iter().filter(|text| of_input(text) != is_through).cloned().collect()
    }

    /// Undoes everything.
    pub(crate) fn clear(&mut self) -> Result<(), String> {
        self.resolver = None;
        self.server = None;
        self.gateway = None;
        self.setup = None;
        self.names_failed = None;
        self.gateway_failed = None;
        self.said = [const { Vec::new() }; 4];
        self.taken.clear();
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
        carried: Vec<node::Prefix>,
    ) -> Result<(), String> {
        let Some(map) = map.filter(|map| settings.accept_dns && !map.dns.domain.is_empty()) else {
            self.resolver = None;
            self.server = None;
            return Ok(());
        };
        let mut own = map.me.addresses.clone();
        own.retain(|address| address.is_ipv4() || !system::lacks_ipv6(link));
        let wish = wish(link, map);
        let everything = wish.everything || settings.sends_all_by_circuit();
        let wish = Wish { servers: own.clone(), everything, ..wish };
        let place = Place { addresses: own, also: carried };
        if self.server.as_ref().is_none_or(|(known, ..)| *known != place) {
            self.resolver = None;
            self.server = None;
            let names = Names::new(dns::Settings::default()).map_err(|e| e.to_string())?;
            let server = Server::start(&place, names).map_err(|e| e.to_string())?;
            self.server = Some((place, dns::Settings::default(), server));
        }
        let is_taken = self.resolver.as_ref().is_some_and(|(_, applied)| !applied.is_intact());
        if is_taken {
            self.taken_names.note(Instant::now())?;
            tracing::warn!("another program wrote /etc/resolv.conf: it leads to this node again");
        }
        if is_taken || self.resolver.as_ref().is_none_or(|(told, _)| *told != wish) {
            self.resolver = None;
            let paths = resolver::Paths::system(&self.state);
            let applied = resolver::apply(&wish, &paths).map_err(|e| e.to_string())?;
            if let Some((.., server)) = &self.server {
                server.set_zones(applied.zones().clone());
            }
            self.resolver = Some((wish, applied));
        }
        let before = self.resolver.iter().flat_map(|(_, applied)| applied.upstreams());
        // No name leaves beside a circuit that all else goes through.
        let before = match settings.sends_all_by_circuit() {
            true => vec![IpAddr::V4(node::circuit::NAME_ADDRESS)],
            false => before.copied().collect(),
        };
        let names = names(map, before);
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
fn setup(
    link: &str,
    map: Option<&Map>,
    plan: &Plan,
    settings: &Settings,
    upstreams: &[IpAddr],
) -> Setup {
    let wire = |list: &[Prefix]| list.iter().map(plan::wire_prefix).collect::<Vec<_>>();
    let me = map.map(|map| &map.me).filter(|me| me.approved);
    let mut serves: Vec<Prefix> = me.map(|me| me.routes.clone()).unwrap_or_default();
    serves.retain(|route| !circuits::is_offer(route));
    // The filter deals with addresses as they are behind us.
    serves.iter_mut().for_each(|route| *route = settings.behind(route));
    let (exits, subnets): (Vec<Prefix>, Vec<Prefix>) =
        serves.into_iter().partition(Prefix::is_default);
    let behind: Vec<Prefix> = plan.routes.iter().filter(|p| !p.is_default()).copied().collect();
    let mut setup = Setup {
        link: link.to_owned(),
        own: map.map(|map| map.me.addresses.clone()).unwrap_or_default(),
        overlay: wire(map.map(|map| &map.ranges[..]).unwrap_or_default()),
        sites: wire(&behind),
        serves: wire(&subnets),
        serves_exit: !exits.is_empty(),
        source_nat: settings.snat_subnet_routes && !settings.site_gateway,
        begins: if settings.site_gateway { wire(&subnets) } else { Vec::new() },
        carries: wire(&plan.carried().chain(plan.passed.iter().copied()).collect::<Vec<_>>()),
        uses: wire(&behind),
        exit: settings.exit_node.is_some() || settings.sends_all_by_circuit(),
        exit_lan: settings.exit_node_allow_lan_access,
        led: wire(&settings.circuit_for),
        doors: settings.socks.is_some(),
        hands_off: false,
    };
    setup.uses.extend(setup.led.iter().filter(|prefix| !prefix.is_default()).copied());
    if let Some(map) = map.filter(|map| circuits::is_exit(map)) {
        let names = circuits::name_server(map, settings.circuit_names, upstreams);
        open_for_circuits(&mut setup, names);
    }
    setup
}

/// What leaves a circuit here has one address; it goes where an exit leads, and to the name server.
/// Where this node serves nothing else, peers themselves go nowhere through it.
fn open_for_circuits(setup: &mut Setup, names: Option<Ipv4Addr>) {
    let address = node::circuit::EXIT_ADDRESS;
    let own = [IpAddr::V4(address), IpAddr::V6(node::circuit::six(address))];
    let own = own.map(node::Prefix::host);
    if !setup.serves_exit && setup.serves.is_empty() {
        setup.overlay = Vec::new();
        setup.sites = Vec::new();
    }
    setup.sites.extend(own);
    setup.uses.extend(own);
    setup.serves_exit = true;
    setup.serves.extend(names.map(|at| node::Prefix::host(IpAddr::V4(at))));
}

/// Why nothing leaves, or nothing comes of it, where an exit is wanted.
fn closed(map: Option<&Map>, settings: &Settings) -> Option<String> {
    let map = map?;
    let name = settings.exit_node.as_ref()?;
    match exits::no_exit(map, name) {
        Some(why) => Some(format!(
            "nothing leaves this machine: {why}; or use no exit node: `warren set --exit-node=`"
        )),
        None => exits::no_internet(&map.policy.rules, name),
    }
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

/// How addresses behind a peer are known here, if it has aliases.
fn aliases(peer: &control::Peer) -> Option<node::translate::Table> {
    let known = peer.aliases.iter().filter(|one| peer.routes.contains(&one.alias));
    let pairs: Vec<_> =
        known.filter_map(|one| Pair::new(one.alias.into(), one.prefix.into()).ok()).collect();
    // What is said of one address twice is said of none.
    let table = node::translate::Table::new(Vec::new(), pairs).ok()?;
    (!table.is_empty()).then_some(table)
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
        records: map.dns.records.clone(),
        aliases: map.peers.iter().filter_map(aliases).collect(),
        serial: u32::try_from(map.sequence & u64::from(u32::MAX)).unwrap_or(0),
    }
}
