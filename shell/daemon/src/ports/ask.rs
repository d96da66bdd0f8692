//! The three protocols, by libraries: PCP and NAT-PMP by `crab_nat`, UPnP-IGD by `igd-next`. What
//! they bring is [`judge`]d, and what is of no use is given back at once.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::time::Duration;

use crab_nat::natpmp;
use crab_nat::pcp::{self, BaseMapRequest};
use crab_nat::{
    GATEWAY_PORT, InternetProtocol, PortMapping, PortMappingOptions, PortMappingType, TimeoutConfig,
};
use igd_next::aio::Gateway;
use igd_next::aio::tokio::{Tokio, search_gateway};
use igd_next::{PortMappingProtocol, SearchOptions};
use node::Prefix;

use super::between::Between;
use super::judge::{LIFETIME_S, Said, judge};

/// A request by PCP or NAT-PMP is repeated after so long, then after twice that: 1.75 s in all.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const TIMES: TimeoutConfig =
    TimeoutConfig { initial_timeout: FIRST_WAIT, max_retries: 2, max_retry_timeout: None };
/// How long a gateway may take to say that it speaks UPnP: who is asked by its own address answers
/// within a second.
const SEARCH_WITHIN: Duration = Duration::from_secs(2);
/// Where questions of UPnP are heard.
const SSDP_PORT: u16 = 1900;
/// How a mapping is called in the gateway's list.
const NAME: &str = "warren";

/// A mapping.
pub(super) struct Held {
    by: By,
    external: SocketAddr,
    lifetime: Duration,
}

enum By {
    /// PCP or NAT-PMP.
    Udp(PortMapping),
    Upnp {
        gateway: Box<Gateway<Tokio>>,
        local: SocketAddr,
        port: u16,
    },
}

impl Held {
    /// Asks the gateway for a way to our `port`, in the order of the protocols' merits.
    ///
    /// # Errors
    /// For people: what each of them said.
    pub(super) fn open(
        gateway: Ipv4Addr,
        port: NonZeroU16,
        overlay: &[Prefix],
    ) -> Result<Self, String> {
        let local = source(gateway).map_err(|error| format!("no way to {gateway}: {error}"))?;
        let first = match by_udp(gateway, local, port) {
            Ok(by) => match Self::new(by, overlay) {
                Ok(held) => return Ok(held),
                Err(why) => why,
            },
            Err(why) => why,
        };
        let second = match by_upnp(gateway, SocketAddr::new(local, port.get())) {
            Ok(by) => match Self::new(by, overlay) {
                Ok(held) => return Ok(held),
                Err(why) => why,
            },
            Err(why) => why,
        };
        Err(format!("{first}; {second}"))
    }

    /// The same for longer; the port may be another one afterwards.
    ///
    /// # Errors
    /// As [`Self::open`]; nothing is held then.
    pub(super) fn renew(self, overlay: &[Prefix]) -> Result<Self, String> {
        let by = match self.by {
            By::Udp(mut mapping) => {
                waited(mapping.renew())?.map_err(named("renewal"))?;
                By::Udp(mapping)
            }
            By::Upnp { gateway, local, port } => {
                let udp = PortMappingProtocol::UDP;
                let asked = gateway.add_port(udp, port, local, LIFETIME_S, NAME);
                waited(asked)?.map_err(named("UPnP"))?;
                By::Upnp { gateway, local, port }
            }
        };
        Self::new(by, overlay)
    }

    /// Gives it back, if the gateway listens.
    pub(super) fn release(self) {
        self.by.release();
    }

    pub(super) fn protocol(&self) -> &'static str {
        match &self.by {
            By::Udp(mapping) => match mapping.mapping_type() {
                PortMappingType::Pcp { .. } => "pcp",
                PortMappingType::NatPmp => "nat-pmp",
            },
            By::Upnp { .. } => "upnp",
        }
    }

    pub(super) const fn external(&self) -> SocketAddr {
        self.external
    }

    pub(super) const fn lifetime(&self) -> Duration {
        self.lifetime
    }

    fn new(by: By, overlay: &[Prefix]) -> Result<Self, String> {
        let judged = by.said().and_then(|said| judge(said, overlay).map_err(|why| why.to_string()));
        match judged {
            Ok((external, lifetime)) => Ok(Self { by, external, lifetime }),
            Err(why) => {
                by.release();
                Err(why)
            }
        }
    }
}

impl By {
    /// What the gateway says of it.
    fn said(&self) -> Result<Said, String> {
        match self {
            Self::Udp(mapping) => {
                let external = match mapping.mapping_type() {
                    PortMappingType::Pcp { external_ip, .. } => external_ip,
                    PortMappingType::NatPmp => {
                        let asked = natpmp::external_address(mapping.gateway(), Some(TIMES));
                        IpAddr::V4(waited(asked)?.map_err(named("NAT-PMP"))?)
                    }
                };
                let port = mapping.external_port().get();
                Ok(Said { external, port, lifetime_s: mapping.lifetime() })
            }
            Self::Upnp { gateway, port, .. } => {
                let external = waited(gateway.get_external_ip())?.map_err(named("UPnP"))?;
                Ok(Said { external, port: *port, lifetime_s: LIFETIME_S })
            }
        }
    }

    fn release(self) {
        let outcome = match self {
            Self::Udp(mapping) => match waited(mapping.try_drop()) {
                Ok(Ok(())) => Ok(()),
                Ok(Err((why, _))) => Err(why.to_string()),
                Err(why) => Err(why),
            },
            Self::Upnp { gateway, port, .. } => {
                let asked = gateway.remove_port(PortMappingProtocol::UDP, port);
                waited(asked).and_then(|done| done.map_err(|why| why.to_string()))
            }
        };
        if let Err(why) = outcome {
            tracing::debug!("the gateway keeps a mapping until it ends: {why}");
        }
    }
}

/// Our address toward the gateway.
fn source(gateway: Ipv4Addr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((gateway, GATEWAY_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// PCP, and NAT-PMP where that is all there is.
fn by_udp(gateway: Ipv4Addr, local: IpAddr, port: NonZeroU16) -> Result<By, String> {
    let options = PortMappingOptions {
        external_port: Some(port),
        lifetime_seconds: Some(LIFETIME_S),
        timeout_config: Some(TIMES),
    };
    let udp = InternetProtocol::Udp;
    let base = BaseMapRequest::new(gateway.into(), local, udp, port);
    let pcp = match waited(pcp::port_mapping(base, None, None, options))? {
        Ok(mapping) => return Ok(By::Udp(mapping)),
        // Who does not answer at that port does not speak NAT-PMP either.
        Err(why @ (pcp::Failure::Timeout | pcp::Failure::Socket(_))) => {
            return Err(format!("PCP and NAT-PMP: {why}"));
        }
        Err(why) => why,
    };
    let mapped = waited(natpmp::port_mapping(gateway.into(), udp, port, options))?;
    mapped.map(By::Udp).map_err(|why| format!("PCP: {pcp}; NAT-PMP: {why}"))
}

/// UPnP-IGD. The gateway is asked by its own address, so that nobody else on the network hears of
/// it, and nobody else is heard ([`Between`]). The library follows no redirect.
fn by_upnp(gateway: Ipv4Addr, local: SocketAddr) -> Result<By, String> {
    let between = Between::start(gateway, SSDP_PORT, SEARCH_WITHIN).map_err(named("UPnP"))?;
    let mut options = SearchOptions::default();
    options.bind_addr = (Ipv4Addr::LOCALHOST, 0).into();
    options.broadcast_address = between.address();
    options.allowed_gateway_ips = vec![gateway.into()];
    options.timeout = Some(SEARCH_WITHIN);
    let found = waited(search_gateway(options))?.map_err(named("UPnP"))?;
    if found.addr.ip() != IpAddr::V4(gateway) {
        return Err(format!("UPnP: {} answered in the gateway's place", found.addr.ip()));
    }
    let udp = PortMappingProtocol::UDP;
    let port = local.port();
    let port = match waited(found.add_port(udp, port, local, LIFETIME_S, NAME))? {
        Ok(()) => port,
        Err(igd_next::AddPortError::PortInUse) => {
            let asked = found.add_any_port(udp, local, LIFETIME_S, NAME);
            waited(asked)?.map_err(named("UPnP"))?
        }
        Err(why) => return Err(named("UPnP")(why)),
    };
    Ok(By::Upnp { gateway: Box::new(found), local, port })
}

fn named<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |why| format!("{what}: {why}")
}

/// Waits for a library that awaits; there is nothing else to be done on this thread.
fn waited<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| error.to_string())?.block_on(work))
}
