//! A month of the paths between gateways, an hour a row.

use super::row::values;
use super::{Store, Stored};
use crate::paths::{DAYS, Hour};

impl Store {
    /// Keeps hours that have ended, and forgets what is older than a month.
    ///
    /// # Errors
    /// If the books cannot be written.
    pub(crate) fn keep_hours(&mut self, hours: &[Hour], now: u64) -> Stored<()> {
        self.write(|tx| {
            let sql = "INSERT INTO path_hours
                         (node, peer, at, rtt_us_min, rtt_us_max, loss_ppm_max, low_bps, high_bps)
                       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                       ON CONFLICT (at, node, peer) DO UPDATE SET
                         rtt_us_min = excluded.rtt_us_min, rtt_us_max = excluded.rtt_us_max,
                         loss_ppm_max = excluded.loss_ppm_max, low_bps = excluded.low_bps,
                         high_bps = excluded.high_bps";
            for hour in hours {
                let Hour { node, peer, at, rtt_us_min, rtt_us_max, loss_ppm_max, .. } = *hour;
                let values = values![
                    node,
                    peer,
                    at,
                    rtt_us_min,
                    rtt_us_max,
                    loss_ppm_max,
                    hour.low_bps,
                    hour.high_bps
                ];
                tx.execute(sql, values)?;
            }
            let from = now.saturating_sub(DAYS * 86_400);
            tx.execute("DELETE FROM path_hours WHERE at < $1", values![from])?;
            Ok(())
        })
    }

    /// Forgets all hours: nobody is to know any more.
    ///
    /// # Errors
    /// If the books cannot be written.
    pub(crate) fn forget_hours(&mut self) -> Stored<()> {
        self.write(|tx| tx.execute("DELETE FROM path_hours", &[]).map(drop))
    }

    /// Hours from `from` on, the newest first, at most `limit`.
    ///
    /// # Errors
    /// If the books cannot be read.
    pub(crate) fn hours(&self, from: u64, limit: u32) -> Stored<Vec<Hour>> {
        let sql = "SELECT node, peer, at, rtt_us_min, rtt_us_max, loss_ppm_max, low_bps, high_bps
                   FROM path_hours WHERE at >= $1 ORDER BY at DESC, node, peer LIMIT $2";
        let rows = self.db.rows(sql, values![from, limit])?;
        rows.iter()
            .map(|row| {
                Ok(Hour {
                    node: row.read(0)?,
                    peer: row.read(1)?,
                    at: row.read(2)?,
                    rtt_us_min: row.read(3)?,
                    rtt_us_max: row.read(4)?,
                    loss_ppm_max: row.read(5)?,
                    low_bps: row.read(6)?,
                    high_bps: row.read(7)?,
                })
            })
            .collect()
    }
}
