//! The lock of a site at AWS is the key pair `warren-lock-…`: EC2 gives such a name once. Its tags
//! say whose it is and until when. The private half is thrown away unread, and no machine has the
//! public one.

use super::query::Parameters;
use super::read::{self, TAG_NETWORK, TAG_SITE};
use super::{Region, filter, pair};
use crate::lock::{Held, LOCK_S, TRIES, Who, refused};
use crate::retry::Failure;

const TAG_BY: &str = "warren:by";
const TAG_UNTIL: &str = "warren:until";

impl Region {
    fn lock_name(&self, site: &str) -> String {
        format!("warren-lock-{}-{site}", self.network)
    }

    /// Takes the lock of a site.
    ///
    /// # Errors
    /// Who has it, or what AWS said.
    pub(super) fn take_lock(&mut self, site: &str, who: &Who) -> Result<Held, Failure> {
        let name = self.lock_name(site);
        for _ in 0..TRIES {
            let until = self.client.now_s() + LOCK_S;
            let mut parameters = vec![pair("KeyName", &name), pair("KeyType", "ed25519")];
            parameters.extend(tags(&[
                (TAG_NETWORK, &self.network),
                (TAG_SITE, site),
                (TAG_BY, &who.to_string()),
                (TAG_UNTIL, &until.to_string()),
            ]));
            let failure = match self.client.call("CreateKeyPair", &parameters) {
                Ok(answer) => {
                    let id = read::text(&answer, "keyPairId");
                    return Ok(Held::new(&name, id));
                }
                Err(failure) => failure,
            };
            if !failure.is_lost && failure.code != "InvalidKeyPair.Duplicate" {
                return Err(failure);
            }
            let answer = self.client.call("DescribeKeyPairs", &filter(1, "key-name", &name))?;
            let Some(pair_of) = read::items(&answer, "keySet").first().copied() else { continue };
            let id = read::text(pair_of, "keyPairId");
            let by = read::tag(pair_of, TAG_BY).unwrap_or_default();
            if by == who.to_string() {
                return Ok(Held::new(&name, id));
            }
            let until = read::tag(pair_of, TAG_UNTIL).and_then(|text| text.parse().ok());
            let left_s = until.unwrap_or(0_u64).saturating_sub(self.client.now_s());
            if let Some(what) = refused(site, &by, left_s, who) {
                return Err(Failure { code: "Locked".to_owned(), what, is_lost: false });
            }
            self.done("DeleteKeyPair", &[pair("KeyPairId", id)])?;
        }
        Err(Failure {
            code: "Locked".to_owned(),
            what: format!("others take the lock of {site} all the time; try again"),
            is_lost: false,
        })
    }

    /// A sign that its owner is alive, if it is time for one.
    pub(super) fn renew_lock(&mut self, held: &mut Held) -> Result<(), Failure> {
        if !held.is_due() {
            return Ok(());
        }
        let until = (self.client.now_s() + LOCK_S).to_string();
        let parameters = [
            pair("ResourceId.1", &held.its),
            pair("Tag.1.Key", TAG_UNTIL),
            pair("Tag.1.Value", until),
        ];
        self.done("CreateTags", &parameters)
    }

    /// Gives the lock back.
    pub(super) fn give_lock(&mut self, held: &Held) -> Result<(), Failure> {
        self.done("DeleteKeyPair", &[pair("KeyName", &held.name)])
    }
}

fn tags(list: &[(&str, &str)]) -> Parameters {
    let mut parameters = vec![pair("TagSpecification.1.ResourceType", "key-pair")];
    for (at, (key, value)) in list.iter().enumerate() {
        let stem = format!("TagSpecification.1.Tag.{}", at + 1);
        parameters.push((format!("{stem}.Key"), (*key).to_owned()));
        parameters.push((format!("{stem}.Value"), (*value).to_owned()));
    }
    parameters
}
