//! The test of QUIC, over the peer's own addresses and over IPv6.

use anyhow::{Result, bail};

use super::{BACK, FORTH, Scene, inside6};
use crate::ring::quic::{self, Done, Flow, Job, Way};

impl Scene<'_> {
    pub(super) fn quic(&mut self) -> Result<()> {
        let to = self.vpn.address(self.turn.to).to_owned();
        let before = self.before()?;
        let sent = before.sent;
        let done = self.eight(&to, Way::Forth)?;
        let mut failed = done.handshakes_failed;
        let mut handshakes = done.handshakes_ms.clone();
        let forth = flow(done)?;
        self.after(before, forth.received_bytes)?;
        if let Some((old, new)) = sent.zip(self.ground.sent_bytes(self.turn.from)) {
            self.put("wire_bytes_per_byte", (new - old) as f64 / forth.received_bytes);
        }
        self.put_eight(FORTH, forth);
        let done = self.eight(&to, Way::Back)?;
        failed += done.handshakes_failed;
        handshakes.extend(&done.handshakes_ms);
        self.put_eight(BACK, flow(done)?);
        self.put("handshakes_failed", f64::from(failed));
        self.put("handshake_ms", handshakes.iter().sum::<f64>() / handshakes.len() as f64);
        self.outcome.series.insert("handshakes_ms".to_owned(), handshakes);
        self.quic_over_ipv6()
    }

    /// Forth alone. A path that lets no handshake pass has no figure, and its failures are counted;
    /// a peer that carries no IPv6 here has neither.
    fn quic_over_ipv6(&mut self) -> Result<()> {
        let Some(addresses) = inside6::give(self.ground, &self.vpn)? else { return Ok(()) };
        let done = self.eight(&addresses[self.turn.to], Way::Forth)?;
        self.put("ipv6_handshakes_failed", f64::from(done.handshakes_failed));
        if let Some(flow) = done.flow {
            self.put("ipv6_mbit_s", flow.mbit_s());
        }
        Ok(())
    }

    fn eight(&self, address: &str, way: Way) -> Result<Done> {
        let from = self.host(self.turn.from);
        let to = self.host(self.turn.to);
        quic::run(Job { from, to, address, way, seconds: self.seconds })
    }

    fn put_eight(&mut self, way: &str, flow: Flow) {
        self.put(&format!("{way}_mbit_s"), flow.mbit_s());
        self.outcome.series.insert(format!("{way}_seconds_mbit_s"), flow.seconds_mbit_s);
    }
}

/// The flow of all eight connections; of fewer none is told.
fn flow(done: Done) -> Result<Flow> {
    let made = done.handshakes_ms.len();
    let Some(flow) = done.flow else {
        bail!(
            "{made} of {} connections were made, and {} handshakes failed, the last since {}",
            quic::CONNECTIONS,
            done.handshakes_failed,
            done.why
        )
    };
    Ok(flow)
}
