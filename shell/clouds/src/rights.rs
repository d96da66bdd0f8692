//! The least rights that the sites of a file need at their providers.

use serde_json::{Map, Value};
use sites::{File, Provider};

use crate::{aws, azure};

/// A policy document; by provider, if the file has several that have such documents. Where gateways
/// have a role, it is two: `operator` and `gateway`. None if the file has no such provider.
#[must_use]
pub fn rights(file: &File) -> Option<Value> {
    let mut all = Map::new();
    for site in &file.sites {
        let rights = match site.provider {
            Provider::Aws => aws::rights(file),
            Provider::Azure => azure::rights(file),
            Provider::OpenStack | Provider::Ssh => continue,
        };
        all.insert(site.provider.word().to_owned(), rights);
    }
    match all.len() {
        0 => None,
        1 => all.into_iter().next().map(|(_, rights)| rights),
        _ => Some(Value::Object(all)),
    }
}
