//! All accounts at clouds that a file names: each region or project is asked once, whoever's sites
//! are in it.

use std::collections::BTreeMap;

use sites::{Backend, File, Found, Id, Kind, Numbering, Provider, yes_or_no};

use crate::Error;
use crate::aws::Region;
use crate::azure::Subscription;
use crate::openstack::Project;
use crate::place::{Place, Thing};

/// All places of a file.
pub struct Clouds {
    places: Vec<Box<dyn Place>>,
    /// The place of each site of the file.
    of_site: BTreeMap<String, (Provider, usize)>,
    /// Sites whose place did not answer, and why.
    pub(crate) silent: Vec<(String, Error)>,
}

impl Clouds {
    /// Asks the places of all sites for what is there.
    ///
    /// # Errors
    /// If an endpoint is no address.
    pub(crate) fn survey(file: &File) -> Result<Self, Error> {
        let mut all = Self { places: Vec::new(), of_site: BTreeMap::new(), silent: Vec::new() };
        let mut known = BTreeMap::new();
        for site in &file.sites {
            let key = (site.provider, site.region.clone(), site.endpoint.clone());
            if let Some(index) = known.get(&key) {
                all.of_site.insert(site.name.clone(), (site.provider, *index));
                continue;
            }
            let region = site.region.as_deref();
            let endpoint = site.endpoint.as_deref();
            let place: Box<dyn Place> = match site.provider {
                Provider::Aws => Box::new(Region::new(region, endpoint, &file.network)?),
                Provider::OpenStack => Box::new(Project::new(region, endpoint, &file.network)?),
                Provider::Azure => Box::new(Subscription::new(region, endpoint, &file.network)?),
                Provider::Ssh => continue,
            };
            let index = all.places.len();
            all.places.push(place);
            known.insert(key, index);
            all.of_site.insert(site.name.clone(), (site.provider, index));
        }
        for (index, place) in all.places.iter_mut().enumerate() {
            if let Err(error) = place.survey() {
                let sites = all.of_site.iter().filter(|(_, (_, at))| *at == index);
                all.silent.extend(sites.map(|(site, _)| (site.clone(), error.clone())));
            }
        }
        Ok(all)
    }

    /// All that was found, in the plan's words. `is_member` says of a gateway's machine, by its
    /// node's name, whether it joined.
    pub(crate) fn found(&self, is_member: &dyn Fn(&str) -> bool, key_s: u64) -> Vec<Found> {
        let mut found = Vec::new();
        for place in &self.places {
            let now_s = place.now_s();
            for (id, thing) in place.things() {
                let mut properties = thing.properties.clone();
                if id.kind == Kind::Machine {
                    // One that has just begun may join yet; later its key has ended.
                    let age_s = thing.begun_s.map(|begun| now_s.saturating_sub(begun));
                    let may_yet = age_s.is_some_and(|age_s| age_s < key_s);
                    let word = yes_or_no(is_member(&id.name) || may_yet);
                    properties.insert("member".to_owned(), word.to_owned());
                }
                found.push(Found { id: id.clone(), properties, is_ours: thing.is_ours });
            }
        }
        found
    }

    /// Numbers of the plan that are in use, with the words of their providers.
    pub(crate) fn taken(&self) -> impl Iterator<Item = ((&'static str, String), u32)> {
        let all = self.places.iter().enumerate().flat_map(|(index, place)| {
            let mut sites = self.of_site.values().filter(move |(_, at)| *at == index);
            let word = sites.next().map_or("", |(provider, _)| provider.word());
            place.things().iter().map(move |(id, thing)| (word, id, thing))
        });
        all.filter_map(|(word, id, thing)| Some(((word, id.site.clone()), thing.number?)))
    }

    /// Which gateway of a site leads, by the routes of its table.
    pub(crate) fn active(&self, file: &File, numbering: &Numbering, index: usize) -> Option<usize> {
        let site = &file.sites[index];
        let (_, at) = self.of_site.get(&site.name)?;
        let things = self.places.get(*at)?.things();
        let routes = numbering.routes_of(index);
        let via = routes.iter().find_map(|to| {
            let id = Id::new(Kind::Route, &site.name, to.to_string());
            things.get(&id)?.properties.get("via").cloned()
        })?;
        (0..usize::from(site.gateways)).find(|at| sites::node_name(file, index, *at) == via)
    }

    /// Where gateways that run another program than ours are found from outside, by site; those
    /// whose addresses are there.
    pub(crate) fn outside(&self, file: &File) -> BTreeMap<String, String> {
        let others = file.sites.iter().enumerate();
        let others = others.filter(|(_, site)| site.backend != Backend::Warren);
        let public = |(index, site): (usize, &sites::Site)| {
            let id = Id::new(Kind::Address, &site.name, sites::node_name(file, index, 0));
            let things = self.places.get(self.of_site.get(&site.name)?.1)?.things();
            let public = things.get(&id)?.properties.get("public")?;
            (!public.is_empty()).then(|| (site.name.clone(), public.clone()))
        };
        others.filter_map(public).collect()
    }

    /// A gateway's machine.
    pub(crate) fn machine(&self, site: &str, name: &str) -> Option<&Thing> {
        let id = Id::new(Kind::Machine, site, name);
        self.places.iter().find_map(|place| place.things().get(&id))
    }

    /// The state of a gateway's machine.
    pub(crate) fn state(&self, site: &str, name: &str) -> String {
        let found = self.machine(site, name);
        let state = found.and_then(|thing| thing.properties.get("state").cloned());
        state.unwrap_or_else(|| "not there".to_owned())
    }

    /// The place where a resource is or is to be.
    ///
    /// # Errors
    /// If no site of the file says so.
    pub(crate) fn place(&mut self, id: &Id) -> Result<&mut dyn Place, Error> {
        let index = self.places.iter().position(|place| place.things().contains_key(id));
        let index = index.or_else(|| self.of_site.get(&id.site).map(|(_, at)| *at));
        match index.and_then(|index| self.places.get_mut(index)) {
            Some(place) => Ok(place.as_mut()),
            None => Err(Error::new(id, "no site of the file is in its region")),
        }
    }

    /// Whether it is in charge of a resource.
    pub(crate) fn has(&self, id: &Id) -> bool {
        self.of_site.contains_key(&id.site)
            || self.places.iter().any(|place| place.things().contains_key(id))
    }
}
