//! Where a cloud's sites are: one account's region or project, which is asked and told.

use std::collections::BTreeMap;

use sites::{Id, Properties, Step};

use wire::prefix::Prefix;

use crate::Error;
use crate::lock::{Held, Who};

/// Something of ours that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Thing {
    /// The provider's own word for it.
    pub(crate) its: String,
    pub(crate) properties: Properties,
    pub(crate) is_ours: bool,
    pub(crate) number: Option<u32>,
    /// When a machine began, in seconds since 1970.
    pub(crate) begun_s: Option<u64>,
}

/// All that is there, by the plan's names.
pub(crate) type Things = BTreeMap<Id, Thing>;

/// What a gateway's machine begins with.
pub(crate) struct Boot {
    /// Its user data.
    pub(crate) user_data: String,
    /// A word of its own for each machine that is meant, so that none is made twice.
    pub(crate) token: String,
}

/// Called when a machine is needed.
pub(crate) type Booting<'b> = &'b mut dyn FnMut() -> Result<Boot, Error>;

/// Networks as the plan writes them: sorted, with commas.
pub(crate) fn sorted(networks: Vec<String>) -> String {
    let mut read: Vec<(Option<Prefix>, String)> =
        networks.into_iter().map(|text| (text.parse().ok(), text)).collect();
    read.sort_unstable();
    let texts: Vec<String> = read.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

/// One account's region or project.
pub(crate) trait Place {
    /// What errors call it.
    fn name(&self) -> String;

    /// Looks at everything of ours.
    fn survey(&mut self) -> Result<(), Error>;

    /// What was seen last.
    fn things(&self) -> &Things;

    /// The provider's clock.
    fn now_s(&self) -> u64;

    /// Makes a resource, or makes it as it must be, and reads it back.
    fn make(&mut self, step: &Step, number: Option<u32>, boot: Booting<'_>) -> Result<(), Error>;

    /// Removes a resource of ours; one that is gone already is no error.
    fn remove(&mut self, id: &Id) -> Result<(), Error>;

    /// Takes the lock of a site.
    fn lock(&mut self, site: &str, who: &Who) -> Result<Held, Error>;

    /// A sign that its owner is alive, if it is time for one.
    fn renew(&mut self, held: &mut Held) -> Result<(), Error>;

    /// Gives the lock back.
    fn unlock(&mut self, held: &Held) -> Result<(), Error>;
}
