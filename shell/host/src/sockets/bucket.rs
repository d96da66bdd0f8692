//! The token bucket in front of a TUN device, by which a sending socket waits.
//!
//! [`pace::Pressure`] decides its rate. A discipline that somebody chose is never replaced.

use pace::{Allowance, FREE};

use crate::linux::netlink::{Netlink, TokenBucket};

/// Bytes that may wait in the bucket, at least; more where they are less than 20 ms of the rate.
const QUEUE_LEN_MIN: u64 = 1 << 20;

/// The token bucket in front of one device.
#[derive(Debug)]
pub struct Bucket {
    /// `None` if the kernel lacks it, somebody chose another discipline, or the device went to
    /// another namespace.
    way: Option<(Netlink, u32)>,
}

impl Bucket {
    /// Puts a bucket that holds nobody back in front of the new device `name`. Later would be too
    /// late: what is on its way while a discipline is exchanged is lost.
    #[must_use]
    pub fn install(name: &str) -> Self {
        let prepared = || {
            let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
            let link = netlink.link(name).map_err(|error| error.to_string())?;
            let index = link.ok_or("the interface is in another namespace")?.index;
            let free = bucket(FREE);
            netlink.add_token_bucket(index, free).map_err(|error| error.to_string())?;
            Ok::<_, String>((netlink, index))
        };
        let way = prepared()
            .inspect_err(|why| tracing::debug!("no back-pressure into sockets: {why}"))
            .ok();
        Self { way }
    }

    /// Sets it. If somebody has put another discipline in our place, that one stays.
    pub fn set(&mut self, allowance: Allowance) {
        let Some((netlink, index)) = &mut self.way else { return };
        tracing::trace!(?allowance, "held back");
        if let Err(error) = netlink.change_token_bucket(*index, bucket(allowance)) {
            tracing::debug!(%error, "no back-pressure into sockets from now on");
            self.way = None;
        }
    }
}

fn bucket(Allowance { rate, burst_len, .. }: Allowance) -> TokenBucket {
    let queue_len = (rate / 50).max(QUEUE_LEN_MIN);
    TokenBucket {
        rate,
        burst_len: burst_len.try_into().unwrap_or(u32::MAX),
        queue_len: queue_len.try_into().unwrap_or(u32::MAX),
    }
}
