//! The token bucket in front of a device (tc-tbf(8)).

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use super::{Error, Netlink, Result};

/// Our own discipline's handle, by which it is known again: nothing else is 5752:.
const OURS: TcHandle = TcHandle { major: 0x5752, minor: 0 };
const KIND: &str = "tbf";
/// Attributes of the token bucket (linux/pkt_sched.h).
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
/// With a link layer named, the kernel computes times itself and needs no table of them.
const LINKLAYER_ETHERNET: u8 = 1;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes that may pass at once.
    pub burst_len: u32,
    /// Bytes that may wait.
    pub queue_len: u32,
}

impl Netlink {
    /// Puts a token bucket in front of the new link with this index.
    pub fn add_token_bucket(&mut self, index: u32, bucket: TokenBucket) -> Result<()> {
        self.acknowledged(NLM_F_CREATE | NLM_F_REPLACE, message(index, bucket))
            .map_err(|e| Error::new(format!("put a token bucket on the link {index}"), e))
    }

    /// Changes the bucket that [`Netlink::add_token_bucket`] put there; what waits in it keeps
    /// waiting. ENOENT if it is no longer there.
    pub fn change_token_bucket(&mut self, index: u32, bucket: TokenBucket) -> Result<()> {
        self.acknowledged(0, message(index, bucket))
            .map_err(|e| Error::new(format!("change the token bucket of the link {index}"), e))
    }
}

fn message(index: u32, bucket: TokenBucket) -> Message {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.handle = OURS;
    message.header.parent = TcHandle::ROOT;
    message.attributes = vec![
        TcAttribute::Kind(KIND.to_owned()),
        TcAttribute::Options(vec![
            option(TCA_TBF_PARMS, parameters(bucket)),
            option(TCA_TBF_RATE64, bucket.rate.to_ne_bytes().to_vec()),
            option(TCA_TBF_BURST, bucket.burst_len.to_ne_bytes().to_vec()),
        ]),
    ];
    Message::NewQueueDiscipline(message)
}

fn option(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

/// `struct tc_tbf_qopt`: rate and peak rate as `struct tc_ratespec`, limit, buffer, MTU.
fn parameters(bucket: TokenBucket) -> Vec<u8> {
    let mut bytes = vec![0; 36];
    bytes[1] = LINKLAYER_ETHERNET;
    let rate = u32::try_from(bucket.rate).unwrap_or(u32::MAX);
    bytes[8..12].copy_from_slice(&rate.to_ne_bytes());
    bytes[24..28].copy_from_slice(&bucket.queue_len.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::netlink::tests::{in_fresh_namespace, ip};

    fn tc(words: &str) -> String {
        let output = std::process::Command::new("tc").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "tc {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_token_bucket_is_put_and_changed_and_replaces_nothing_later() {
        in_fresh_namespace(|| {
            ip("link add d0 type veth peer name d1");
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.link("d0").unwrap().unwrap().index;
            let bucket = |rate| TokenBucket { rate, burst_len: 131_072, queue_len: 1 << 20 };
            assert!(netlink.change_token_bucket(index, bucket(125_000)).is_err(), "none is there");
            netlink.add_token_bucket(index, bucket(125_000)).unwrap();
            for (rate, text) in [(125_000_000, "rate 1Gbit"), (12_500_000_000, "rate 100Gbit")] {
                netlink.change_token_bucket(index, bucket(rate)).unwrap();
                let shown = tc("qdisc show dev d0");
                assert!(shown.contains("tbf 5752: root") && shown.contains(text), "{shown}");
            }
            tc("qdisc replace dev d0 root pfifo limit 10");
            let late = netlink.change_token_bucket(index, bucket(125_000)).unwrap_err();
            assert!(late.errno().is_some(), "{late}");
            assert!(tc("qdisc show dev d0").contains("pfifo"), "what somebody chose stays");
        });
    }
}
