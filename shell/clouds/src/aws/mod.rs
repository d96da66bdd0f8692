//! Sites at AWS: what is there by our tags, and how it becomes what the plan says.
//!
//! The life of a resource: it is looked for by the tags `warren:net`, `warren:site` and
//! `warren:role`; what is not there is made with its tags in the same call, so nothing of ours is
//! ever without them. Then its properties are set, and read back until they are as the plan says
//! or a deadline has passed. An answer that was lost is no loss: the next look finds what was made.
//!
//! A gateway's own program asks with its machine's role: [`routes`] are what it may do.
//!
//! What lacks our tags is never changed. There are two exceptions inside a network that is ours:
//! one rule of its default group, which bears our word, and routes of our own table.

mod credentials;
mod lead;
mod lock;
mod made;
mod query;
mod read;
mod remove;
mod rights;
mod sign;

use std::collections::BTreeMap;

pub(crate) use lead::routes;
use query::{Client, Parameters};
use read::{TAG_NETWORK, TAG_NUMBER, TAG_ROLE, TAG_SITE, TAGGED};
pub(crate) use rights::rights;

use sites::{Id, Kind, Step};
use xmltree::Element;

use crate::lock::{Held, Who};
use crate::place::{Booting, Place, Thing, Things, sorted};
use crate::retry::Failure;
use crate::time::read_answer;
use crate::{Error, make};

/// Pages of one answer; each has up to a thousand resources.
const PAGES_MAX: usize = 100;

/// One region of AWS.
pub(crate) struct Region {
    client: Client,
    network: String,
    things: Things,
    /// What the plan calls a resource, by AWS's word.
    names: BTreeMap<String, Id>,
}

impl Place for Region {
    fn name(&self) -> String {
        format!("aws {}", self.client.region)
    }

    fn survey(&mut self) -> Result<(), Error> {
        let name = self.name();
        self.look_at_all().map_err(|failure| Error::new(name, failure.what))
    }

    fn things(&self) -> &Things {
        &self.things
    }

    fn now_s(&self) -> u64 {
        self.client.now_s()
    }

    fn make(&mut self, step: &Step, number: Option<u32>, boot: Booting<'_>) -> Result<(), Error> {
        make::make(self, step, number, boot)
    }

    fn remove(&mut self, id: &Id) -> Result<(), Error> {
        make::remove(self, id)
    }

    fn lock(&mut self, site: &str, who: &Who) -> Result<Held, Error> {
        self.take_lock(site, who).map_err(|failure| Error::new(site, failure.what))
    }

    fn renew(&mut self, held: &mut Held) -> Result<(), Error> {
        let name = self.name();
        self.renew_lock(held).map_err(|failure| Error::new(name, failure.what))
    }

    fn unlock(&mut self, held: &Held) -> Result<(), Error> {
        let name = self.name();
        self.give_lock(held).map_err(|failure| Error::new(name, failure.what))
    }
}

impl Region {
    /// For a region, at its usual place or at `endpoint`.
    ///
    /// # Errors
    /// If there is no such place.
    pub(crate) fn new(
        region: Option<&str>,
        endpoint: Option<&str>,
        network: &str,
    ) -> Result<Self, Error> {
        let client = Client::new(region.unwrap_or_default(), endpoint)?;
        let network = network.to_owned();
        Ok(Self { client, network, things: Things::new(), names: BTreeMap::new() })
    }

    fn look_at_all(&mut self) -> Result<(), Failure> {
        for kind in TAGGED {
            self.look(kind, None)?;
        }
        self.look_at_rules(None)
    }

    /// What the plan calls a resource of ours; nothing for others.
    fn name_of(&self, aws: &str) -> String {
        self.names.get(aws).map(|id| id.name.clone()).unwrap_or_default()
    }

    /// AWS's word for a resource of ours.
    fn aws_of(&self, kind: Kind, site: &str, name: &str) -> Option<String> {
        self.things.get(&Id::new(kind, site, name)).map(|thing| thing.its.clone())
    }

    /// Looks at all of a kind, of one site or of all, and forgets what was known of them.
    fn look(&mut self, kind: Kind, site: Option<&str>) -> Result<(), Failure> {
        let Some(words) = read::words(kind) else { return Ok(()) };
        let mut parameters = filter(1, &format!("tag:{TAG_NETWORK}"), &self.network);
        if let Some(site) = site {
            parameters.extend(filter(2, &format!("tag:{TAG_SITE}"), site));
        }
        let answers = self.pages(words.describe, parameters)?;
        let is_meant = |id: &Id| site.is_none_or(|site| site == id.site);
        self.things.retain(|id, _| !(id.kind == kind && is_meant(id)));
        if kind == Kind::Table {
            self.things.retain(|id, _| !(id.kind == Kind::Route && is_meant(id)));
        }
        for answer in &answers {
            for element in read::resources(answer, &words) {
                self.note(kind, element, words.id)?;
            }
        }
        Ok(())
    }

    /// Keeps what an answer says of one resource.
    fn note(&mut self, kind: Kind, element: &Element, key: &str) -> Result<(), Failure> {
        let Some(site) = read::tag(element, TAG_SITE) else { return Ok(()) };
        let Some(role) = read::tag(element, TAG_ROLE) else { return Ok(()) };
        let aws = read::text(element, key);
        let mut id = Id::new(kind, &site, role);
        // What exists twice by accident is ours as well, and nobody wants it.
        if self.things.contains_key(&id) {
            id.name = format!("{} {aws}", id.name);
        }
        let properties = read::properties(kind, element, &|aws| self.name_of(aws));
        let number = read::tag(element, TAG_NUMBER).and_then(|text| text.parse().ok());
        let begun_s = read_answer(&read::text(element, "launchTime"));
        let thing = Thing { its: aws.clone(), properties, is_ours: true, number, begun_s };
        self.names.insert(aws, id.clone());
        self.things.insert(id, thing);
        if kind == Kind::Table {
            self.note_routes(element, &site)?;
        }
        Ok(())
    }

    /// Routes of a table of ours. What leads to others' interfaces somebody else made.
    fn note_routes(&mut self, table: &Element, site: &str) -> Result<(), Failure> {
        for route in read::routes(table) {
            let name = self.name_of(&route.interface);
            let is_gone = route.is_gone || (name.is_empty() && self.is_gone(&route.interface)?);
            let via = match (name.is_empty(), is_gone) {
                (false, false) => name.clone(),
                (_, true) => format!("{} (gone)", route.interface),
                (true, false) => "something that Warren did not make".to_owned(),
            };
            let is_ours = is_gone || !name.is_empty();
            let id = Id::new(Kind::Route, site, route.to.clone());
            let properties = [("to".to_owned(), route.to), ("via".to_owned(), via)].into();
            let its = route.interface;
            let thing = Thing { its, properties, is_ours, number: None, begun_s: None };
            self.things.insert(id, thing);
        }
        Ok(())
    }

    /// Whether an interface is nowhere.
    fn is_gone(&mut self, interface: &str) -> Result<bool, Failure> {
        if interface.is_empty() {
            return Ok(false);
        }
        let parameters = vec![("NetworkInterfaceId.1".to_owned(), interface.to_owned())];
        match self.client.call("DescribeNetworkInterfaces", &parameters) {
            Ok(_) => Ok(false),
            Err(failure) if failure.is_absence() => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    /// The rule of ours in the default group of each network of ours.
    fn look_at_rules(&mut self, site: Option<&str>) -> Result<(), Failure> {
        let is_meant = |id: &Id| site.is_none_or(|site| site == id.site);
        self.things.retain(|id, _| !(id.kind == Kind::MachineRule && is_meant(id)));
        let networks: BTreeMap<String, String> = self
            .things
            .iter()
            .filter(|(id, _)| id.kind == Kind::Network && is_meant(id))
            .map(|(id, thing)| (thing.its.clone(), id.site.clone()))
            .collect();
        if networks.is_empty() {
            return Ok(());
        }
        let mut parameters = filter(1, "group-name", "default");
        parameters.push(("Filter.2.Name".to_owned(), "vpc-id".to_owned()));
        for (at, network) in networks.keys().enumerate() {
            parameters.push((format!("Filter.2.Value.{}", at + 1), network.clone()));
        }
        for answer in self.pages("DescribeSecurityGroups", parameters)? {
            for group in read::items(&answer, "securityGroupInfo") {
                let Some(site) = networks.get(&read::text(group, "vpcId")) else { continue };
                let aws = read::text(group, "groupId");
                let word = made::rule_word(&self.network);
                let rules = read::items(group, "ipPermissions").into_iter();
                let ranges = rules.flat_map(|rule| read::items(rule, "ipRanges"));
                let ours = ranges.filter(|range| read::text(range, "description") == word);
                let from = ours.map(|range| read::text(range, "cidrIp"));
                let from = sorted(from.collect());
                let id = Id::new(Kind::MachineRule, site, "default");
                self.names.insert(aws.clone(), id.clone());
                if !from.is_empty() {
                    let properties = [("from".to_owned(), from)].into();
                    let its = aws;
                    let thing =
                        Thing { its, properties, is_ours: true, number: None, begun_s: None };
                    self.things.insert(id, thing);
                }
            }
        }
        Ok(())
    }

    /// All pages of an answer.
    fn pages(&mut self, action: &str, parameters: Parameters) -> Result<Vec<Element>, Failure> {
        let mut answers = Vec::new();
        let mut token = String::new();
        while answers.len() < PAGES_MAX {
            let mut parameters = parameters.clone();
            if !token.is_empty() {
                parameters.push(("NextToken".to_owned(), token.clone()));
            }
            let answer = self.client.call(action, &parameters)?;
            token = read::text(&answer, "nextToken");
            answers.push(answer);
            if token.is_empty() {
                break;
            }
        }
        Ok(answers)
    }
}

/// One parameter of a call.
fn pair(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// A filter of a question: what must have which value.
fn filter(at: usize, name: &str, value: &str) -> Parameters {
    vec![
        (format!("Filter.{at}.Name"), name.to_owned()),
        (format!("Filter.{at}.Value.1"), value.to_owned()),
    ]
}
