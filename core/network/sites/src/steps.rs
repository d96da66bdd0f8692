//! The difference between what must be true and what is, as ordered steps.

use core::fmt;
use std::collections::BTreeMap;

use crate::graph::{Id, Properties, Resource};

/// A resource that a provider reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Which.
    pub id: Id,
    /// With what.
    pub properties: Properties,
    /// Whether it bears our tag. What does not is never changed.
    pub is_ours: bool,
}

/// What the providers report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// All that was found.
    pub found: Vec<Found>,
}

/// What is to be done with one resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is made.
    Create,
    /// These properties change: name, before, after.
    Change(Vec<(String, String, String)>),
    /// It is removed.
    Delete,
    /// Nothing may be done; a person has to decide.
    Refuse,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is to be done.
    pub action: Action,
    /// With which resource.
    pub id: Id,
    /// How it is to be afterwards; how it is, if it is removed.
    pub properties: Properties,
    /// Why.
    pub why: String,
}

/// The steps from what is found to what is desired, in their order: removals first, from what
/// needs others to what is needed, then the rest the other way round. `only` keeps other sites
/// out of it.
#[must_use]
pub fn steps(desired: &[Resource], report: &Report, only: Option<&str>) -> Vec<Step> {
    let is_meant = |id: &Id| only.is_none_or(|only| id.site == only);
    let found: BTreeMap<&Id, &Found> = report.found.iter().map(|one| (&one.id, one)).collect();
    let wanted: BTreeMap<&Id, &Resource> = desired.iter().map(|one| (&one.id, one)).collect();
    let mut steps = Vec::new();
    let gone = found.values().rev().filter(|one| one.is_ours && !wanted.contains_key(&one.id));
    for one in gone.filter(|one| is_meant(&one.id)) {
        steps.push(Step {
            action: Action::Delete,
            id: one.id.clone(),
            properties: one.properties.clone(),
            why: "it is ours and no site of the file needs it".to_owned(),
        });
    }
    for (id, resource) in wanted.iter().filter(|(id, _)| is_meant(id)) {
        let (action, why) = match found.get(*id) {
            None => (Action::Create, resource.why.clone()),
            Some(one) => match difference(resource, one) {
                None => continue,
                Some(difference) => difference,
            },
        };
        let properties = resource.properties.clone();
        steps.push(Step { action, id: (*id).clone(), properties, why });
    }
    steps
}

/// What has to be done so that a found resource is as it must be.
fn difference(wanted: &Resource, found: &Found) -> Option<(Action, String)> {
    let mut changes = Vec::new();
    for (key, after) in &wanted.properties {
        let before = found.properties.get(key).map_or("", String::as_str);
        if before != after {
            changes.push((key.clone(), before.to_owned(), after.clone()));
        }
    }
    if changes.is_empty() {
        return None;
    }
    if !found.is_ours {
        let why = "something of this name is there that Warren did not make; remove it, or rename \
                   the site";
        return Some((Action::Refuse, why.to_owned()));
    }
    let fixed = changes.iter().find(|(key, ..)| wanted.id.kind.fixed().contains(&key.as_str()));
    if let Some((key, before, after)) = fixed {
        let why = format!(
            "{key} is {before} and cannot become {after} while it exists; destroy the site first"
        );
        return Some((Action::Refuse, why));
    }
    Some((Action::Change(changes), wanted.why.clone()))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, why, .. } = self;
        match &self.action {
            Action::Create => write!(f, "create {id}: {why}"),
            Action::Delete => write!(f, "delete {id}: {why}"),
            Action::Refuse => write!(f, "refuse {id}: {why}"),
            Action::Change(changes) => {
                write!(f, "change {id}")?;
                for (key, before, after) in changes {
                    write!(f, ", {key} from {before:?} to {after:?}")?;
                }
                write!(f, ": {why}")
            }
        }
    }
}
