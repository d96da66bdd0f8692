//! Rules: which table the kernel looks in for a packet, of the kinds a default route needs.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use node::Prefix;

use super::{Family, MAIN_TABLE, Netlink, Result};

/// A rule that looks in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// For which family.
    pub family: Family,
    /// Only for packets that do *not* carry this firewall mark.
    pub unless_mark: Option<u32>,
    /// Only for packets to this network.
    pub to: Option<Prefix>,
    /// Take nothing from the table whose prefix is this short or shorter.
    pub suppress_prefix_bits: Option<u32>,
    /// Which table.
    pub table: u32,
    /// Smaller is asked earlier. `None` when adding: before all others but the kernel's first.
    pub priority: Option<u32>,
    /// Who made it, by the numbers of RTPROT_*; 0 is nobody in particular.
    pub protocol: u8,
}

impl Rule {
    /// Everything without `mark` looks in `table`.
    pub fn unless_marked(family: Family, mark: u32, table: u32) -> Self {
        Self { unless_mark: Some(mark), ..Self::plain(family, table) }
    }

    /// Everything looks in `table`, but its default route does not count.
    pub fn but_default(family: Family, table: u32) -> Self {
        Self { suppress_prefix_bits: Some(0), ..Self::plain(family, table) }
    }

    fn plain(family: Family, table: u32) -> Self {
        let unless_mark = None;
        let to = None;
        let suppress_prefix_bits = None;
        let priority = None;
        Self { family, unless_mark, to, suppress_prefix_bits, table, priority, protocol: 0 }
    }
}

impl Netlink {
    /// The rules of `family` that look in a table and match on nothing but an inverted mark and a
    /// destination, in the order in which they are asked.
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>> {
        let mut message = RuleMessage::default();
        message.header.family = family.into();
        let answers = self.query("list the routing rules", true, Message::GetRule(message))?;
        Ok(answers.into_iter().filter_map(|m| read(family, m)).collect())
    }

    /// The smallest priority of any rule of `family` but the kernel's first, whatever it matches
    /// on.
    pub fn first_priority(&mut self, family: Family) -> Result<Option<u32>> {
        let mut message = RuleMessage::default();
        message.header.family = family.into();
        let answers = self.query("list the routing rules", true, Message::GetRule(message))?;
        let priority = |message| {
            let Message::NewRule(message) = message else { return None };
            message.attributes.into_iter().find_map(|a| match a {
                RuleAttribute::Priority(value) => Some(value),
                _ => None,
            })
        };
        Ok(answers.into_iter().filter_map(priority).filter(|p| *p > 0).min())
    }

    /// Adds `rule`.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<()> {
        self.create(|| format!("add the rule `{}`", shown(rule)), Message::NewRule(written(rule)))
    }

    /// Removes the first rule that says the same; of any priority if `rule` names none.
    pub fn remove_rule(&mut self, rule: &Rule) -> Result<()> {
        let what = || format!("remove the rule `{}`", shown(rule));
        self.change(what, Message::DelRule(written(rule)))
    }
}

fn shown(rule: &Rule) -> String {
    let mut text = format!("{} ", rule.family);
    if let Some(mark) = rule.unless_mark {
        text += &format!("not fwmark {mark} ");
    }
    if let Some(to) = rule.to {
        text += &format!("to {to} ");
    }
    text += &match rule.table {
        MAIN_TABLE => "lookup main".to_owned(),
        table => format!("lookup {table}"),
    };
    if let Some(bits) = rule.suppress_prefix_bits {
        text += &format!(" suppress_prefixlength {bits}");
    }
    text
}

fn written(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = rule.family.into();
    message.header.action = RuleAction::ToTable;
    message.header.table = u8::try_from(rule.table).unwrap_or(0);
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Table(rule.table));
    if let Some(mark) = rule.unless_mark {
        message.header.flags = RuleFlags::Invert;
        attributes.push(RuleAttribute::FwMark(mark));
    }
    if let Some(to) = rule.to {
        message.header.dst_len = to.bits();
        attributes.push(RuleAttribute::Destination(to.address()));
    }
    if let Some(bits) = rule.suppress_prefix_bits {
        attributes.push(RuleAttribute::SuppressPrefixLen(bits));
    }
    if let Some(priority) = rule.priority {
        attributes.push(RuleAttribute::Priority(priority));
    }
    if rule.protocol != 0 {
        attributes.push(RuleAttribute::Protocol(rule.protocol.into()));
    }
    message
}

fn read(family: Family, message: Message) -> Option<Rule> {
    let Message::NewRule(message) = message else { return None };
    let header = &message.header;
    if header.action != RuleAction::ToTable || header.src_len != 0 {
        return None;
    }
    let inverted = header.flags.contains(RuleFlags::Invert);
    let mut table = u32::from(header.table);
    let dst_len = header.dst_len;
    let mut to: Option<IpAddr> = None;
    let mut mark = None;
    let mut suppress_prefix_bits = None;
    let mut priority = None;
    let mut protocol = 0;
    for attribute in message.attributes {
        match attribute {
            RuleAttribute::Table(id) => table = id,
            RuleAttribute::FwMark(value) => mark = Some(value),
            RuleAttribute::FwMask(u32::MAX) => {}
            RuleAttribute::Destination(address) => to = Some(address),
            RuleAttribute::Protocol(value) => protocol = value.into(),
            RuleAttribute::SuppressPrefixLen(u32::MAX) => {}
            RuleAttribute::SuppressPrefixLen(bits) => suppress_prefix_bits = Some(bits),
            RuleAttribute::Priority(value) => priority = Some(value),
            _ => return None,
        }
    }
    if mark.is_some() != inverted || to.is_some() != (dst_len != 0) {
        return None;
    }
    let to = match to {
        Some(address) => Some(Prefix::new(address, dst_len)?),
        None => None,
    };
    // the kernel leaves the priority out when it is 0
    let priority = Some(priority.unwrap_or(0));
    Some(Rule { family, unless_mark: mark, to, suppress_prefix_bits, table, priority, protocol })
}
