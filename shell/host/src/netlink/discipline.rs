//! Queueing disciplines: which one a device has, and the token bucket (tc-tbf(8)).

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
    /// The discipline that somebody chose for the link with this index; `None` if it has the
    /// kernel's default, or ours.
    pub fn chosen_discipline(&mut self, index: u32) -> Result<Option<String>> {
        let ask = Message::GetQueueDiscipline(message(index));
        let answers = self.query("list the queueing disciplines", true, ask)?;
        let root = answers.into_iter().find_map(|answer| match answer {
            Message::NewQueueDiscipline(m)
                if m.header.index == index.cast_signed() && m.header.parent == TcHandle::ROOT =>
            {
                Some(m)
            }
            _ => None,
        });
        // Defaults have no handle.
        let chosen = root.filter(|m| m.header.handle.major != 0 && m.header.handle != OURS);
        Ok(chosen.map(|m| {
            let kind = m.attributes.into_iter().find_map(|attribute| match attribute {
                TcAttribute::Kind(kind) => Some(kind),
                _ => None,
            });
            kind.unwrap_or_default()
        }))
    }

    /// Puts a token bucket in front of the link with this index, or changes the one that
    /// an earlier call put there; what waits in it keeps waiting.
    pub fn set_token_bucket(&mut self, index: u32, bucket: TokenBucket) -> Result<()> {
        let mut message = message(index);
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
        let ask = Message::NewQueueDiscipline(message);
        self.acknowledged(NLM_F_CREATE | NLM_F_REPLACE, ask)
            .map_err(|e| Error::new(format!("set a token bucket on the link {index}"), e))
    }
}

fn message(index: u32) -> TcMessage {
    TcMessage::with_index(index.cast_signed())
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
    use crate::netlink::tests::{in_fresh_namespace, ip};

    #[test]
    fn a_token_bucket_is_set_changed_and_known_as_ours() {
        in_fresh_namespace(|| {
            ip("link add d0 type veth peer name d1");
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.link("d0").unwrap().unwrap().index;
            assert_eq!(netlink.chosen_discipline(index).unwrap(), None);
            for rate in [125_000, 125_000_000, 100_000_000_000] {
                let bucket = TokenBucket { rate, burst_len: 131_072, queue_len: 1 << 20 };
                netlink.set_token_bucket(index, bucket).unwrap();
                assert_eq!(netlink.chosen_discipline(index).unwrap(), None, "it is ours");
            }
            let shown = std::process::Command::new("tc")
                .args(["qdisc", "show", "dev", "d0"])
                .output()
                .unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            assert!(shown.contains("tbf 5752: root") && shown.contains("rate 800Gbit"), "{shown}");
        });
    }

    #[test]
    fn what_somebody_chose_is_told() {
        in_fresh_namespace(|| {
            ip("link add d0 type veth peer name d1");
            let added = std::process::Command::new("tc")
                .args("qdisc add dev d0 root pfifo limit 10".split(' '))
                .status()
                .unwrap();
            assert!(added.success());
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.link("d0").unwrap().unwrap().index;
            assert_eq!(netlink.chosen_discipline(index).unwrap().as_deref(), Some("pfifo"));
        });
    }
}
