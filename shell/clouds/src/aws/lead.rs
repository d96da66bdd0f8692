//! The routes of a pair at AWS, as the gateway that leads looks at them and sets them: with the
//! role of its machine, which needs three calls.

use std::time::{Duration, Instant};

use super::query::Client;
use super::read::{self, TAG_NETWORK, TAG_SITE};
use super::{filter, pair};
use crate::Error;
use crate::lead::{Lead, Routes};
use crate::retry::Failure;

/// Keys of a role, and whose interfaces these are, are asked for again after so long; keys last for
/// hours, and interfaces for as long as nobody removes them by hand.
const KEYS_FOR: Duration = Duration::from_secs(600);

/// What a gateway knows.
struct Own {
    client: Client,
    lead: Lead,
    keys_since: Instant,
    /// AWS's words for both interfaces, this gateway's first.
    interfaces: Option<[String; 2]>,
}

/// A way to look at the routes of a pair and to set them.
///
/// # Errors
/// If the endpoint is no address.
pub(crate) fn routes(lead: &Lead, mark: u32) -> Result<Box<dyn Routes>, Error> {
    let client = Client::new(&lead.region, lead.endpoint.as_deref())?;
    let client = client.of_machine(mark);
    let keys_since = Instant::now();
    Ok(Box::new(Own { client, lead: lead.clone(), keys_since, interfaces: None }))
}

impl Own {
    /// What bears the site's marks.
    fn marked(&self) -> Vec<(String, String)> {
        let mut parameters = filter(1, &format!("tag:{TAG_NETWORK}"), &self.lead.network);
        parameters.extend(filter(2, &format!("tag:{TAG_SITE}"), &self.lead.site));
        parameters
    }

    fn interfaces(&mut self) -> Result<[String; 2], Failure> {
        if let Some(known) = &self.interfaces {
            return Ok(known.clone());
        }
        let marked = self.marked();
        let answer = self.client.call("DescribeNetworkInterfaces", &marked)?;
        let all = read::items(&answer, "networkInterfaceSet");
        let at = |address: &str| {
            let mut all = all.iter();
            let found = all.find(|one| read::text(one, "privateIpAddress") == address);
            let id = found.map(|one| read::text(one, "networkInterfaceId"));
            id.ok_or_else(|| Failure::new("Missing", format!("no interface has {address}")))
        };
        let [own, other] = self.lead.pair().map(|address| at(&address.to_string()));
        let found = [own?, other?];
        self.interfaces = Some(found.clone());
        Ok(found)
    }

    fn look(&mut self) -> Result<Vec<String>, Failure> {
        let [_, other] = self.interfaces()?;
        let marked = self.marked();
        let answer = self.client.call("DescribeRouteTables", &marked)?;
        let mut astray = Vec::new();
        for table in read::items(&answer, "routeTableSet") {
            let id = read::text(table, "routeTableId");
            let routes = read::routes(table).into_iter();
            let routes = routes.filter(|route| route.interface == other);
            astray.extend(routes.map(|route| format!("{id} {}", route.to)));
        }
        Ok(astray)
    }
}

impl Routes for Own {
    fn astray(&mut self) -> Result<Vec<String>, Failure> {
        if self.keys_since.elapsed() > KEYS_FOR {
            self.keys_since = Instant::now();
            self.client.forget_keys();
            self.interfaces = None;
        }
        let found = self.look();
        if found.is_err() {
            // Keys that ended, a role that was changed, an interface that is another one now.
            self.client.forget_keys();
            self.interfaces = None;
        }
        found
    }

    fn set(&mut self, route: &str) -> Result<(), Failure> {
        let [own, _] = self.interfaces()?;
        let (table, to) = route.split_once(' ').unwrap_or_default();
        let parameters = [
            pair("RouteTableId", table),
            pair("DestinationCidrBlock", to),
            pair("NetworkInterfaceId", own),
        ];
        self.client.call("ReplaceRoute", &parameters).map(drop)
    }
}
