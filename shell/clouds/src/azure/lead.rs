//! The routes of a pair at Azure, as the gateway that leads looks at them and sets them: with the
//! identity of its machine. A route leads to an address there, so the addresses say all.

use serde_json::{Value, json};
use sites::Kind;

use super::Subscription;
use super::read::{NETWORK_API, list, text};
use crate::Error;
use crate::lead::{Lead, Routes};
use crate::retry::Failure;

/// What a gateway knows.
struct Own {
    subscription: Subscription,
    lead: Lead,
}

/// A way to look at the routes of a pair and to set them.
///
/// # Errors
/// If the environment's proxies are none.
pub(crate) fn routes(lead: &Lead, mark: u32) -> Result<Box<dyn Routes>, Error> {
    let endpoint = lead.endpoint.as_deref();
    let subscription = Subscription::new(Some(&lead.region), endpoint, &lead.network)?;
    let subscription = subscription.of_machine(mark);
    Ok(Box::new(Own { subscription, lead: lead.clone() }))
}

impl Own {
    fn table(&mut self) -> Result<String, Failure> {
        self.subscription.id_of(Kind::Table, &self.lead.site, "routes")
    }
}

impl Routes for Own {
    fn astray(&mut self) -> Result<Vec<String>, Failure> {
        let table = self.table()?;
        let answer = self.subscription.call("GET", &table, NETWORK_API, &Value::Null)?;
        let [_, other] = self.lead.pair().map(|address| address.to_string());
        let routes = list(&answer["properties"]["routes"]);
        let astray = routes.filter(|route| route["properties"]["nextHopIpAddress"] == other);
        let told = |route: &Value| {
            format!("{} {}", text(&route["name"]), text(&route["properties"]["addressPrefix"]))
        };
        Ok(astray.map(told).collect())
    }

    fn set(&mut self, route: &str) -> Result<(), Failure> {
        let table = self.table()?;
        let (name, to) = route.split_once(' ').unwrap_or_default();
        let [own, _] = self.lead.pair().map(|address| address.to_string());
        let body = json!({ "properties": { "addressPrefix": to, "nextHopType": "VirtualAppliance",
                                           "nextHopIpAddress": own } });
        let path = format!("{table}/routes/{name}");
        self.subscription.call("PUT", &path, NETWORK_API, &body).map(drop)
    }
}
