//! A scenario: a load, and the ground it runs on.

use serde::Serialize;

/// What joins the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Underlay {
    /// A veth as the kernel makes it, on which superpackets of 64 KiB travel whole.
    Veth,
    /// A veth with all offloads off at both ends: no packet above 1500 bytes.
    VethNoOffloads,
    /// The lab's impaired wire without impairment: 1 Gbit/s, a queue of 1000 packets.
    Line,
}

/// What is done on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// This many TCP streams at once.
    Tcp(u32),
    /// UDP datagrams of 1200 bytes, as many as the sender manages.
    Udp,
    /// Pings on an idle link.
    Ping,
}

/// One of the things measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// One TCP stream on veth.
    Tcp1,
    /// Four TCP streams on veth.
    Tcp4,
    /// UDP offered without limit on veth.
    Udp,
    /// Round trips on an idle veth.
    Ping,
    /// One TCP stream with all outer offloads off.
    NoOffloads,
    /// One TCP stream on a line of 1 Gbit/s.
    Line,
}

impl Scenario {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 6] =
        [Self::Tcp1, Self::Tcp4, Self::Udp, Self::Ping, Self::NoOffloads, Self::Line];

    /// The word for it on the command line and in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp1 => "tcp1",
            Self::Tcp4 => "tcp4",
            Self::Udp => "udp",
            Self::Ping => "ping",
            Self::NoOffloads => "no-offloads",
            Self::Line => "line",
        }
    }

    /// What it is, for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Tcp1 => "one TCP stream",
            Self::Tcp4 => "four TCP streams",
            Self::Udp => "UDP at 1200 bytes offered without limit",
            Self::Ping => "ping on an idle link",
            Self::NoOffloads => "one TCP stream with outer offloads off",
            Self::Line => "one TCP stream on a line of 1 Gbit/s",
        }
    }

    /// The one called so.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// What joins the hosts.
    #[must_use]
    pub fn underlay(self) -> Underlay {
        match self {
            Self::NoOffloads => Underlay::VethNoOffloads,
            Self::Line => Underlay::Line,
            Self::Tcp1 | Self::Tcp4 | Self::Udp | Self::Ping => Underlay::Veth,
        }
    }

    /// What is done.
    #[must_use]
    pub fn load(self) -> Load {
        match self {
            Self::Tcp1 | Self::NoOffloads | Self::Line => Load::Tcp(1),
            Self::Tcp4 => Load::Tcp(4),
            Self::Udp => Load::Udp,
            Self::Ping => Load::Ping,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_found_by_the_name_it_has_in_the_json() {
        for scenario in Scenario::ALL {
            assert_eq!(Scenario::named(scenario.name()), Some(scenario));
            let json = serde_json::to_string(&scenario).expect("JSON");
            assert_eq!(json, format!("{:?}", scenario.name()));
        }
        assert_eq!(Scenario::named("tcp"), None);
        assert_eq!(Scenario::named(""), None);
    }
}
