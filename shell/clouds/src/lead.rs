//! A pair of gateways at a cloud: its routes at the provider, looked at and set by the gateway
//! itself, with the role of its machine.
//!
//! Which routes these are the provider says: those of the site's own table that lead to the other
//! gateway of the pair. Nothing else is ever set, whatever a route is to or to whom it leads.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use sites::{File, Numbering, Provider, node_name};

use crate::retry::Failure;

/// Letters of a setting, at most.
const LEN_MAX: usize = 1024;
/// What is written where it is wrong.
const FORM: &str = "write PROVIDER,REGION,NETWORK,SITE,OWN,OTHER, as in \
                    aws,eu-west-1,acme,dublin,10.1.0.254,10.1.0.253, and the API's address behind \
                    it where that is not the usual one";

/// Whose routes a gateway sets to itself while it leads, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lead {
    /// Who runs the site's machines: AWS or Azure.
    pub(crate) provider: Provider,
    pub(crate) region: String,
    /// By which everything of ours is marked.
    pub(crate) network: String,
    pub(crate) site: String,
    /// This gateway's address in the site, and that of the pair's other one.
    pub(crate) own: Ipv4Addr,
    pub(crate) other: Ipv4Addr,
    /// The provider's API, where it is not at its usual place.
    pub(crate) endpoint: Option<String>,
}

impl Lead {
    /// What the gateway of this name sets; none if its site has no pair with a role.
    pub(crate) fn of(file: &File, numbering: &Numbering, index: usize, name: &str) -> Option<Self> {
        let site = &file.sites[index];
        site.role.as_ref()?;
        let at = (0..2).find(|at| node_name(file, index, *at) == name)?;
        let gateways = &numbering.places[index].gateways;
        Some(Self {
            provider: site.provider,
            region: site.region.clone()?,
            network: file.network.clone(),
            site: site.name.clone(),
            own: *gateways.get(at)?,
            other: *gateways.get(1 - at)?,
            endpoint: site.endpoint.clone(),
        })
    }

    /// The addresses of the pair inside its site: this gateway's, and the other one's.
    #[must_use]
    pub const fn pair(&self) -> [Ipv4Addr; 2] {
        [self.own, self.other]
    }

    /// As one argument of the program that begins on a gateway; nothing for none.
    pub(crate) fn flag(lead: Option<&Self>) -> String {
        lead.map_or_else(String::new, |lead| format!(" --shared-routes '{lead}'"))
    }
}

impl FromStr for Lead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{what}; {FORM}");
        let is_letter = |byte: u8| byte.is_ascii_graphic() && !b"'\"\\`$".contains(&byte);
        if text.len() > LEN_MAX || !text.bytes().all(is_letter) {
            return Err(wrong("these are not the words"));
        }
        let words: Vec<&str> = text.split(',').collect();
        let (first, endpoint) = match words.get(6..) {
            Some([]) => (&words[..], None),
            Some([endpoint]) if endpoint.starts_with("https://") => (&words[..6], Some(*endpoint)),
            _ => return Err(wrong("these are six words, or seven with an https:// at the end")),
        };
        let [provider, region, network, site, own, other] = first else {
            return Err(wrong("these are six words"));
        };
        let provider = [Provider::Aws, Provider::Azure].into_iter().find(|p| p.word() == *provider);
        let provider = provider.ok_or_else(|| wrong("the provider is aws or azure"))?;
        let is_word = |text: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !text.is_empty() && text.bytes().all(is_inner)
        };
        if ![*region, *network, *site].into_iter().all(is_word) {
            return Err(wrong("region, network and site are letters, digits and ._-"));
        }
        let address = |text: &&str| {
            text.parse::<Ipv4Addr>().map_err(|_| wrong(&format!("{text:?} is no IPv4 address")))
        };
        let own = address(own)?;
        let other = address(other)?;
        if own == other {
            return Err(wrong("both gateways have one address"));
        }
        Ok(Self {
            provider,
            region: (*region).to_owned(),
            network: (*network).to_owned(),
            site: (*site).to_owned(),
            own,
            other,
            endpoint: endpoint.map(str::to_owned),
        })
    }
}

impl fmt::Display for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, region, network, site, own, other, .. } = self;
        write!(f, "{},{region},{network},{site},{own},{other}", provider.word())?;
        self.endpoint.as_ref().map_or(Ok(()), |endpoint| write!(f, ",{endpoint}"))
    }
}

/// What one provider is asked and told.
pub(crate) trait Routes: Send {
    /// Routes of the pair that lead to the other gateway, by the provider's words.
    fn astray(&mut self) -> Result<Vec<String>, Failure>;

    /// Sets one of them to this gateway.
    fn set(&mut self, route: &str) -> Result<(), Failure>;
}

#[cfg(test)]
mod tests {
    use sites::Taken;

    use super::*;

    #[test]
    fn a_gateway_of_a_pair_with_a_role_knows_whose_routes_it_sets() {
        let text = "network = \"acme\"\n[[site]]\nname = \"a\"\nprovider = \"aws\"\n\
                    region = \"r-1\"\ngateways = 2\nendpoint = \"https://h:9\"\n";
        let lead = |text: &str, name: &str| {
            let file = File::read(text).unwrap();
            let numbering = Numbering::new(&file, text, &Taken::new()).unwrap();
            Lead::of(&file, &numbering, 0, name)
        };
        assert_eq!(lead(text, "acme-a-gw1"), None, "without a role it sets none");
        let text = format!("{text}role = \"gateways\"\n");
        let second = lead(&text, "acme-a-gw2").unwrap();
        assert_eq!(second.to_string(), "aws,r-1,acme,a,10.1.0.253,10.1.0.254,https://h:9");
        assert_eq!(second.to_string().parse::<Lead>(), Ok(second.clone()));
        assert_eq!(Lead::flag(Some(&second)), format!(" --shared-routes '{second}'"));
        assert_eq!(lead(&text, "acme-a-gw3"), None);
    }

    #[test]
    fn words_that_are_wrong_are_told_with_the_form() {
        let good = "azure,westeurope,acme,b,10.2.0.254,10.2.0.253";
        assert_eq!(good.parse::<Lead>().unwrap().to_string(), good);
        for bad in [
            "",
            "aws",
            "ibm,r,n,s,10.0.0.1,10.0.0.2",
            "aws,r,n,s,10.0.0.1",
            "aws,r,n,s,10.0.0.1,10.0.0.1",
            "aws,r,n,s,10.0.0.1,x",
            "aws,r,n,,10.0.0.1,10.0.0.2",
            "aws,r,n/../m,s,10.0.0.1,10.0.0.2",
            "aws,r,n,s,10.0.0.1,10.0.0.2,http://h",
            "aws,r,n,s,10.0.0.1,10.0.0.2,https://h,x",
            "aws,r,n,s,10.0.0.1,10.0.0.2,https://h'x",
        ] {
            let why = bad.parse::<Lead>().unwrap_err();
            assert!(why.contains("write PROVIDER,REGION"), "{bad}: {why}");
        }
    }
}
