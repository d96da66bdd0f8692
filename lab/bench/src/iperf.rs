//! The JSON report of iperf3, reduced to what is compared.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// One transfer, as its client's report has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transfer {
    /// Payload that arrived, by the receiver's count.
    pub(crate) received_bytes: u64,
    /// Payload that was sent.
    pub(crate) sent_bytes: u64,
    /// Of UDP, what arrived and found the buffer of the program that should read it full; no part
    /// of what was received.
    pub(crate) unread_bytes: u64,
    /// How long the receiver received.
    pub(crate) received_s: f64,
    /// Segments sent again; TCP only.
    pub(crate) retransmits: Option<u64>,
    /// Congestion control of the sender; TCP only.
    pub(crate) congestion: Option<String>,
}

impl Transfer {
    /// Reads the report of a client.
    ///
    /// # Errors
    /// Returns an error when it is no report, tells of an error, or nothing arrived.
    pub(crate) fn parse(report: &str) -> Result<Self> {
        let report: Value = serde_json::from_str(report.trim()).with_context(|| {
            let start: String = report.chars().take(200).collect();
            format!("iperf3 wrote no JSON report but {start:?}")
        })?;
        if let Some(error) = report["error"].as_str() {
            bail!("iperf3 failed: {error}");
        }
        let end = &report["end"];
        let number = |sum: &str, key: &str| {
            end[sum][key].as_f64().filter(|n| n.is_finite() && *n >= 0.0).with_context(|| {
                format!("iperf3's report has no end.{sum}.{key}: it must be 3.12 or newer")
            })
        };
        let received_bytes = number("sum_received", "bytes")? as u64;
        let received_s = number("sum_received", "seconds")?;
        ensure!(received_bytes > 0 && received_s > 0.0, "nothing arrived in iperf3's transfer");
        Ok(Self {
            received_bytes,
            sent_bytes: number("sum_sent", "bytes")? as u64,
            unread_bytes: 0,
            received_s,
            retransmits: end["sum_sent"]["retransmits"].as_u64(),
            congestion: end["sender_tcp_congestion"].as_str().map(str::to_owned),
        })
    }

    /// Payload received, Mbit/s.
    pub(crate) fn mbit_s(&self) -> f64 {
        self.received_bytes as f64 * 8.0 / self.received_s / 1e6
    }

    /// The share of what was sent that did not arrive, percent.
    pub(crate) fn lost_percent(&self) -> f64 {
        let arrived = self.received_bytes + self.unread_bytes;
        (1.0 - arrived as f64 / self.sent_bytes.max(arrived) as f64) * 100.0
    }

    /// The share that arrived and was not read, percent.
    pub(crate) fn unread_percent(&self) -> f64 {
        let arrived = self.received_bytes + self.unread_bytes;
        self.unread_bytes as f64 / self.sent_bytes.max(arrived) as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = r#"{"start": {"version": "iperf 3.12"}, "end": {
        "sum_sent": {"bytes": 1659502592, "seconds": 1.0, "retransmits": 7, "sender": true},
        "sum_received": {"bytes": 1250000000, "seconds": 2.0, "sender": true},
        "sender_tcp_congestion": "cubic", "receiver_tcp_congestion": "cubic"}}"#;
    const UDP: &str = r#"{"end": {
        "sum": {"bytes": 400, "seconds": 1.0, "lost_packets": 3, "packets": 4},
        "sum_sent": {"bytes": 400, "seconds": 1.0, "packets": 4},
        "sum_received": {"bytes": 100, "seconds": 1.0, "packets": 4}}}"#;

    #[test]
    fn a_tcp_report_is_read_by_what_the_receiver_counted() {
        let transfer = Transfer::parse(TCP).expect("a report");
        assert_eq!(transfer.mbit_s(), 5_000.0);
        assert_eq!(transfer.retransmits, Some(7));
        assert_eq!(transfer.congestion.as_deref(), Some("cubic"));
    }

    #[test]
    fn a_udp_report_tells_loss_against_what_was_sent() {
        let transfer = Transfer::parse(UDP).expect("a report");
        assert_eq!(transfer.received_bytes, 100);
        assert_eq!((transfer.lost_percent(), transfer.unread_percent()), (75.0, 0.0));
        let unread = Transfer { unread_bytes: 100, ..transfer.clone() };
        assert_eq!((unread.lost_percent(), unread.unread_percent()), (50.0, 25.0));
        assert_eq!((transfer.retransmits, transfer.congestion), (None, None));
    }

    #[test]
    fn more_received_than_sent_is_no_negative_loss() {
        let odd = UDP.replace("\"bytes\": 100", "\"bytes\": 500");
        assert_eq!(Transfer::parse(&odd).expect("a report").lost_percent(), 0.0);
    }

    #[test]
    fn an_error_in_the_report_is_the_error() {
        let said = r#"{"end": {}, "error": "unable to connect to server: Connection refused"}"#;
        let error = Transfer::parse(said).expect_err("an error").to_string();
        assert!(error.contains("Connection refused"), "{error}");
    }

    #[test]
    fn nonsense_is_refused_and_never_panics() {
        for nonsense in [
            "",
            "iperf3: command not found",
            "{",
            "[]",
            "null",
            r#"{"end": []}"#,
            r#"{"end": {"sum_received": {"bytes": "many", "seconds": 1}}}"#,
            r#"{"end": {"sum_received": {"bytes": -5, "seconds": 1}}}"#,
            &UDP.replace("\"bytes\": 100", "\"bytes\": 0"),
            &UDP.replace("\"bytes\": 100, \"seconds\": 1.0", "\"bytes\": 100, \"seconds\": 0"),
            &UDP.replace("sum_sent", "sum_lost"),
        ] {
            assert!(Transfer::parse(nonsense).is_err(), "{nonsense}");
        }
        for end in 0..TCP.len() - 1 {
            assert!(Transfer::parse(&TCP[..end]).is_err(), "cut at {end}");
        }
    }
}
