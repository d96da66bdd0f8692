//! Leftovers of a killed link. Its interface goes with it, and so do addresses and routes;
//! its rules stay, and with them what reverse-path filters were told. They carry our number as
//! their maker, so that the next start can tell them from everybody else's.

use super::error::ApplyError;
use crate::linux::netlink::{self, Family, Netlink, Rule};

/// The setting that makes reverse-path filters look at marks.
pub(super) const SRC_VALID_MARK: &str = "/proc/sys/net/ipv4/conf/all/src_valid_mark";
/// The maker (RTPROT_*) of our rules.
pub(super) const MADE_BY_LINK: u8 = 119;
/// The maker of a rule whose link also saw to it that reverse-path filters look at marks.
pub(super) const MADE_WITH_SOURCE_MARK: u8 = 120;

/// Removes the rules of links that are gone: ours, into tables that hold no route any more.
///
/// # Errors
/// What the kernel says.
pub fn clear_leftovers() -> Result<(), ApplyError> {
    let mut netlink = Netlink::open()?;
    let routes = netlink.routes()?;
    let in_use = |rule: &Rule| {
        let same = |r: &netlink::Route| Family::of(r.destination.address()) == rule.family;
        routes.iter().any(|r| r.table == rule.table && same(r))
    };
    let mut marks_left = false;
    for family in [Family::V4, Family::V6] {
        let (live, dead): (Vec<_>, Vec<_>) = ours(&mut netlink, family)
            .into_iter()
            .partition(|rule| rule.unless_mark.is_some() && in_use(rule));
        // the rule that spares local networks stands right before its link's other one
        let is_needed = |rule: &Rule| {
            let next = rule.priority.map(|p| p + 1);
            rule.unless_mark.is_none() && live.iter().any(|l| l.priority == next)
        };
        for rule in dead.iter().filter(|r| !is_needed(r)) {
            tracing::info!("removing a rule into table {} that a killed link left", rule.table);
            netlink.remove_rule(rule)?;
            marks_left |= rule.protocol == MADE_WITH_SOURCE_MARK;
        }
    }
    if marks_left && !source_mark_is_ours(&mut netlink)? {
        set_source_mark(false)?;
    }
    Ok(())
}

/// Whether a link there is saw to it that reverse-path filters look at marks.
pub(super) fn source_mark_is_ours(netlink: &mut Netlink) -> netlink::Result<bool> {
    let rules = netlink.rules(Family::V4)?;
    Ok(rules.iter().any(|r| r.protocol == MADE_WITH_SOURCE_MARK))
}

/// Our rules of `family`; none if the kernel has no such family.
fn ours(netlink: &mut Netlink, family: Family) -> Vec<Rule> {
    let makers = [MADE_BY_LINK, MADE_WITH_SOURCE_MARK];
    let rules = netlink.rules(family).unwrap_or_default();
    rules.into_iter().filter(|r| makers.contains(&r.protocol)).collect()
}

/// Whether reverse-path filters look at marks.
pub(super) fn set_source_mark(on: bool) -> Result<(), ApplyError> {
    let value = if on { "1" } else { "0" };
    // what is right already is not written: /proc/sys may be read-only
    if std::fs::read_to_string(SRC_VALID_MARK).is_ok_and(|now| now.trim() == value) {
        return Ok(());
    }
    let mend = "set net.ipv4.conf.all.src_valid_mark outside (docker run --sysctl)";
    let mend = crate::advice("run as root", mend);
    std::fs::write(SRC_VALID_MARK, value)
        .map_err(|e| ApplyError::Other(format!("cannot write {SRC_VALID_MARK}: {e}; {mend}")))
}
