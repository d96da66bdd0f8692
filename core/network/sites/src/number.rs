//! The numbering plan: who has which network, so that none overlap.
//!
//! A planned network is `10.A.B.0/24`: A is the provider, B a number of the site among those of
//! its provider. With `site_bits = 20`, B has 4 bits and the machine 12. The gateway's last number
//! is 254, the second one's 253, and 252 is shared by both. Any range of at most 13 bits does;
//! 10.0.0.0/8 is the usual one.

use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use wire::prefix::Prefix;

use crate::file::{File, Provider, Site};
use crate::mistake::Mistake;
use crate::table::Mistakes;

/// Bits of an address before B and the machine's part.
const UPPER_BITS: u8 = 16;
/// The range leaves at least so many bits for A.
const RANGE_BITS_MAX: u8 = 13;
/// The last part of a gateway's address.
const GATEWAY: u32 = 254;

/// Numbers B that are in use at the providers, by provider's word and site.
pub type Taken = BTreeMap<(&'static str, String), u32>;

/// Where one site is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its number B, if it has a network of the plan.
    pub number: Option<u32>,
    /// Its networks, as its own machines know them.
    pub networks: Vec<Prefix>,
    /// The same as other sites know them: others for a site with an alias.
    pub known_as: Vec<Prefix>,
    /// Its gateways' addresses inside.
    pub gateways: Vec<Ipv4Addr>,
    /// The address that its pair shares there, to which machines send.
    pub shared: Option<Ipv4Addr>,
}

impl Place {
    /// What its gateways offer to route, as `--advertise-routes` has it: `OWN=ALIAS` where others
    /// know a network by another.
    #[must_use]
    pub fn offers(&self) -> String {
        let mut all: Vec<_> = self.known_as.iter().zip(&self.networks).collect();
        all.sort_unstable();
        let offer = |(known, own): (&Prefix, &Prefix)| match known == own {
            true => known.to_string(),
            false => format!("{own}={known}"),
        };
        let texts: Vec<String> = all.into_iter().map(offer).collect();
        texts.join(",")
    }
}

/// How much the plan has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Values of A.
    pub providers: u32,
    /// Sites of each provider.
    pub sites: u32,
    /// Machines of each site, beside one gateway.
    pub machines: u32,
}

/// The plan of a file: a place for each site, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbering {
    /// The places.
    pub places: Vec<Place>,
    /// How much there is room for.
    pub capacity: Capacity,
    range: Prefix,
}

impl Numbering {
    /// Numbers a file that was read from `text`. Sites keep the numbers that they have in `taken`.
    ///
    /// # Errors
    /// Networks that overlap, by the names of their sites; numbers that are used twice or up.
    pub fn new(file: &File, text: &str, taken: &Taken) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Mistakes::new(text);
        if file.range.bits() > RANGE_BITS_MAX {
            let told = format!(
                "range {} has no room for providers; use /8 to /{RANGE_BITS_MAX}",
                file.range
            );
            mistakes.add(0..0, told);
            return Err(mistakes.told());
        }
        let numbers = numbers(file, taken, &mut mistakes);
        let mut places = Vec::new();
        for (site, number) in file.sites.iter().zip(numbers) {
            places.push(place(file, site, number, &mut mistakes));
        }
        overlaps(file, &places, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(mistakes.told());
        }
        Ok(Self { places, capacity: capacity(file), range: file.range })
    }

    /// The routes that machines of a site need to reach all others: the range, and what other
    /// sites have outside of it.
    #[must_use]
    pub fn routes_of(&self, site: usize) -> Vec<Prefix> {
        let others = self.places.iter().enumerate().filter(|(index, _)| *index != site);
        let known = others.flat_map(|(_, place)| &place.known_as);
        let outside = known.filter(|prefix| !self.range.contains(prefix.address())).copied();
        let all: BTreeSet<Prefix> = std::iter::once(self.range).chain(outside).collect();
        all.into_iter().collect()
    }
}

fn capacity(file: &File) -> Capacity {
    let sites = 1 << (file.site_bits - UPPER_BITS);
    let machines = (1 << (32 - file.site_bits)) - 3;
    Capacity { providers: (1 << (UPPER_BITS - file.range.bits())) - 1, sites, machines }
}

/// Whether a site has a network of the plan.
fn is_planned(site: &Site) -> bool {
    site.subnets.is_empty() || site.alias
}

/// B of each site. Those chosen by hand come first, then those that are in use, then the lowest
/// that are free, in the order of the file.
fn numbers(file: &File, taken: &Taken, mistakes: &mut Mistakes<'_>) -> Vec<Option<u32>> {
    let last = capacity(file).sites - 1;
    let mut used: BTreeMap<(&str, u32), &str> = BTreeMap::new();
    let mut numbers = vec![None; file.sites.len()];
    let planned = || file.sites.iter().enumerate().filter(|(_, site)| is_planned(site));
    for (index, site) in planned() {
        let Some(number) = site.number else { continue };
        let at = site.spans.number.clone();
        if number > last {
            mistakes.add(at.clone(), format!("number is 0 to {last} with this site_bits"));
        }
        if let Some(other) = used.insert((site.provider.word(), number), &site.name) {
            let told = format!("{} and {other} have one number, {number}; change one", site.name);
            mistakes.add(at, told);
        }
        numbers[index] = Some(number);
    }
    for ((provider, site), number) in taken {
        used.entry((provider, *number)).or_insert(site);
    }
    for (index, site) in planned() {
        if numbers[index].is_none()
            && let Some(number) = taken.get(&(site.provider.word(), site.name.clone()))
            && used.get(&(site.provider.word(), *number)) == Some(&site.name.as_str())
        {
            numbers[index] = Some(*number);
        }
    }
    let mut next: BTreeMap<&str, u32> = BTreeMap::new();
    for (index, site) in planned() {
        if numbers[index].is_some() {
            continue;
        }
        let provider = site.provider.word();
        let from = next.entry(provider).or_default();
        while *from <= last && used.contains_key(&(provider, *from)) {
            *from += 1;
        }
        if *from > last {
            let told = format!(
                "no number is left for {}: the plan has {} sites of {provider}; give it subnets",
                site.name,
                last + 1
            );
            mistakes.add(site.spans.site.clone(), told);
            continue;
        }
        numbers[index] = Some(*from);
        used.insert((provider, *from), &site.name);
    }
    numbers
}

fn place(file: &File, site: &Site, number: Option<u32>, mistakes: &mut Mistakes<'_>) -> Place {
    let planned = number.and_then(|number| {
        let IpAddr::V4(base) = file.range.address() else { return None };
        let a = site.provider.number() << UPPER_BITS;
        let b = number << (32 - file.site_bits);
        let address = Ipv4Addr::from_bits(base.to_bits() | a | b);
        Prefix::new(IpAddr::V4(address), file.site_bits)
    });
    let networks =
        if site.subnets.is_empty() { planned.into_iter().collect() } else { site.subnets.clone() };
    let known_as = if site.alias { alias(site, planned, mistakes) } else { networks.clone() };
    let count = usize::from(site.gateways);
    let gateways = match networks.first() {
        _ if !site.inside.is_empty() => site.inside.clone(),
        Some(network) => gateways(network).take(count).collect(),
        None => Vec::new(),
    };
    let shared = shared(site, &networks, &gateways);
    Place { number, networks, known_as, gateways, shared }
}

/// The address that a pair shares, where a gateway may answer for one: on a LAN, and at OpenStack,
/// whose ports answer for what their pairs hold. In a network that is not of the plan it may be a
/// machine's, so it is one only if the file says so.
fn shared(site: &Site, networks: &[Prefix], own: &[Ipv4Addr]) -> Option<Ipv4Addr> {
    let may_answer = matches!(site.provider, Provider::Ssh | Provider::OpenStack);
    if !may_answer || site.gateways != 2 {
        return None;
    }
    let planned = networks.first().filter(|_| site.subnets.is_empty());
    let third = planned.and_then(|network| gateways(network).nth(2));
    site.shared.or(third).filter(|address| !own.contains(address))
}

/// The network of the plan under which a site is known whose own one collides.
fn alias(site: &Site, planned: Option<Prefix>, mistakes: &mut Mistakes<'_>) -> Vec<Prefix> {
    let (Some(planned), [network]) = (planned, &site.subnets[..]) else {
        let told = format!("{} has an alias, and so exactly one subnet", site.name);
        mistakes.add(site.spans.site.clone(), told);
        return Vec::new();
    };
    if network.bits() < planned.bits() {
        let told = format!(
            "{network} is wider than an alias, which has {} bits; list the part in use",
            planned.bits()
        );
        mistakes.add(site.spans.subnets[0].clone(), told);
        return Vec::new();
    }
    Prefix::new(planned.address(), network.bits()).into_iter().collect()
}

/// The gateways' addresses in a network: 254 and 253, and 252, which a pair shares; or the last
/// ones of a small network.
fn gateways(network: &Prefix) -> impl Iterator<Item = Ipv4Addr> {
    let IpAddr::V4(address) = network.address() else { unreachable!("files have IPv4 only") };
    let len = 1_u32 << (32 - network.bits());
    let last = GATEWAY.min(len - 2);
    (0..3).map(move |index| Ipv4Addr::from_bits(address.to_bits() + last - index))
}

/// Tells of every network that overlaps another one, by both names.
fn overlaps(file: &File, places: &[Place], mistakes: &mut Mistakes<'_>) {
    let mut all: Vec<(Prefix, usize, Range<usize>)> = Vec::new();
    for (index, (site, place)) in file.sites.iter().zip(places).enumerate() {
        for (at, prefix) in place.known_as.iter().enumerate() {
            let span = site.spans.subnets.get(at).unwrap_or(&site.spans.site).clone();
            if prefix.contains(file.range.address()) && prefix.bits() <= file.range.bits() {
                let told = format!("{prefix} of {} holds the whole range; narrow it", site.name);
                mistakes.add(span.clone(), told);
            }
            all.push((*prefix, index, span));
        }
    }
    // Sorted, a network lies directly behind one that holds it, or behind others in that one.
    all.sort_by_key(|(prefix, index, _)| (prefix.address(), prefix.bits(), *index));
    let mut open: Vec<&(Prefix, usize, Range<usize>)> = Vec::new();
    for one in &all {
        while open.last().is_some_and(|(wide, ..)| !wide.contains(one.0.address())) {
            open.pop();
        }
        if let Some(other) = open.last() {
            let (later, earlier) = if one.1 >= other.1 { (one, *other) } else { (*other, one) };
            let [name, known] = [later.1, earlier.1].map(|index| &file.sites[index].name);
            let told = format!(
                "{} of {name} overlaps {} of {known}; change one, or let {name} join under \
                 another network with alias = true",
                later.0, earlier.0
            );
            mistakes.add(later.2.clone(), told);
        }
        open.push(one);
    }
}
