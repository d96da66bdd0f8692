//! What `warren set --mdns` says: a link, and the services of it that the network is told of.

use std::fmt;
use std::str::FromStr;

use dns::mdns::Service;

/// A link, and the services that are told on between it and the network, as in
/// `eth0:_ipp._tcp,_ssh._tcp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mdns {
    pub(crate) link: String,
    pub(crate) services: Vec<Service>,
}

/// Services of one link, at most.
const SERVICES_MAX: usize = 16;
/// Bytes of a link's name, at most.
const LINK_LEN_MAX: usize = 15;

impl FromStr for Mdns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let form = "write a link and services, as in eth0:_ipp._tcp,_ssh._tcp";
        let (link, list) = text.split_once(':').ok_or(form)?;
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        if link.is_empty() || link.len() > LINK_LEN_MAX || !link.bytes().all(is_name) {
            return Err(format!("{link:?} is no link; {form}"));
        }
        let read = |word: &str| {
            let service = word.trim().parse();
            service.map_err(|_| format!("{word:?} is no service; {form}"))
        };
        let services: Vec<Service> = list.split(',').map(read).collect::<Result<_, _>>()?;
        if services.len() > SERVICES_MAX {
            return Err(format!("{} services, at most {SERVICES_MAX}", services.len()));
        }
        Ok(Self { link: link.to_owned(), services })
    }
}

impl fmt::Display for Mdns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        let services: Vec<String> = self.services.iter().map(Service::to_string).collect();
        write!(f, "{}:{}", self.link, services.join(","))
    }
}

impl Mdns {
    /// Whether nothing is told on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_and_its_services_are_read_and_written_as_they_are_said() {
        let text = "eth0:_ipp._tcp,_ros-master._tcp";
        assert_eq!(text.parse::<Mdns>().unwrap().to_string(), text);
        assert!("".parse::<Mdns>().unwrap().is_empty());
        assert_eq!(Mdns::default().to_string(), "", "as the socket carries it");
        for (text, why) in [
            ("eth0", "write a link"),
            (":_ipp._tcp", "no link"),
            ("a/b:_ipp._tcp", "no link"),
            ("eth0:ipp", "\"ipp\" is no service"),
            ("eth0:", "\"\" is no service"),
        ] {
            let told = text.parse::<Mdns>().unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
