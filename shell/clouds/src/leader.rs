//! A gateway that asks and tells its provider where the routes of its pair lead.

use std::fmt;

use sites::Provider;

use crate::lead::{Lead, Routes};
use crate::retry::Failure;
use crate::{Error, aws, azure};

/// A conversation with the provider, as the machine that it runs.
pub struct Leader {
    lead: Lead,
    routes: Box<dyn Routes>,
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leader({})", self.lead)
    }
}

impl Leader {
    /// Prepares it; nobody is asked yet. What is sent bears `mark`, by which the machine's rules
    /// of routing keep it beside the network.
    ///
    /// # Errors
    /// If the endpoint is no address, or the environment's proxies are none.
    pub fn new(lead: &Lead, mark: u32) -> Result<Self, String> {
        let routes: Result<Box<dyn Routes>, Error> = match lead.provider {
            Provider::Azure => azure::routes(lead, mark),
            _ => aws::routes(lead, mark),
        };
        Ok(Self { lead: lead.clone(), routes: routes.map_err(|error| error.to_string())? })
    }

    /// Whether a route of the pair leads to the other gateway.
    ///
    /// # Errors
    /// What the provider said, or that the machine has no role.
    pub fn is_astray(&mut self) -> Result<bool, String> {
        let routes = self.routes.astray().map_err(|failure| self.told(&failure))?;
        Ok(!routes.is_empty())
    }

    /// Sets all routes that lead to the other gateway to this one; how many these were.
    ///
    /// # Errors
    /// Those of [`Leader::is_astray`]; routes that were set before the error stay so.
    pub fn set(&mut self) -> Result<usize, String> {
        let routes = self.routes.astray().map_err(|failure| self.told(&failure))?;
        for route in &routes {
            self.routes.set(route).map_err(|failure| self.told(&failure))?;
        }
        Ok(routes.len())
    }

    fn told(&self, failure: &Failure) -> String {
        let Lead { provider, region, .. } = &self.lead;
        let more = match failure.code.as_str() {
            "403" => "; `warren sites export --rights FILE` prints what the role needs",
            _ => "",
        };
        format!("{} {region}: {failure}{more}", provider.word())
    }
}
