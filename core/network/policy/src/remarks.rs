//! What a policy that is right may still surprise with: names that mean nobody here, and words that
//! mean less here than in Tailscale.

use crate::compile::{Compiled, is_user};
use crate::document::{Grant, Section};
use crate::place::{Finding, quoted};
use crate::ranges::Ranges;
use crate::selector::Selector;

/// Remarks that are made, at most.
const REMARKS_MAX: usize = 20;

impl Compiled {
    /// What to tell whoever sets this policy, each at the line of the first rule that it is of.
    #[must_use]
    pub fn remarks(&self) -> Vec<Finding> {
        if self.policy.is_open {
            return Vec::new();
        }
        let mut remarks: Vec<Finding> = self.nobody();
        remarks.extend(self.star_and_internet());
        remarks.extend(self.star_and_networks());
        remarks.sort_by_key(|finding| finding.place);
        remarks.truncate(REMARKS_MAX);
        remarks
    }

    /// The rules that a file has, without what `circuits` makes of it.
    fn written(&self) -> impl Iterator<Item = &Grant> {
        self.policy.grants.iter().filter(|grant| grant.section != Section::Circuits)
    }

    /// Roles and groups of rules that mean no user. Where no user is known that is no news.
    fn nobody(&self) -> Vec<Finding> {
        let mut told: Vec<&Selector> = Vec::new();
        let mut remarks = Vec::new();
        if self.directory.users.is_empty() {
            return remarks;
        }
        for grant in self.written() {
            let targets = grant.targets.iter().flat_map(|target| &target.selectors);
            for selector in grant.sources.iter().chain(targets) {
                let (name, mend) = match selector {
                    Selector::Role(role) => {
                        let mend = format!("give a role: warren user role NAME {role}");
                        (format!("autogroup:{role}"), mend)
                    }
                    Selector::Group(name) => (name.clone(), format!("add users to {name}")),
                    _ => continue,
                };
                let mut users = self.directory.users.iter();
                if told.contains(&selector)
                    || users.any(|user| is_user(&self.policy, selector, user))
                {
                    continue;
                }
                told.push(selector);
                let what = format!("{} means nobody now, for no user is of it", quoted(&name));
                remarks.push(Finding::new(grant.place, what, mend));
            }
        }
        remarks
    }

    /// `*` in `dst` is no way out here, and is one in Tailscale.
    fn star_and_internet(&self) -> Option<Finding> {
        let internet = Ranges::internet();
        let leads_out = |selector: &Selector| match selector {
            Selector::Internet => true,
            Selector::Prefix(prefix) => internet.intersects(&Ranges::of_prefixes([*prefix])),
            Selector::Set(ranges) => internet.intersects(ranges),
            _ => false,
        };
        let destinations =
            || self.written().flat_map(|grant| grant.targets.iter().map(move |it| (grant, it)));
        if destinations().any(|(_, target)| target.selectors.iter().any(leads_out)) {
            return None;
        }
        let (grant, _) = destinations().find(|(_, it)| it.selectors.contains(&Selector::Any))?;
        let what = "* in dst means nodes and the networks behind them, not the Internet";
        let mend = "for exits add autogroup:internet to dst (in acls autogroup:internet:*)";
        Some(Finding::new(grant.place, what, mend))
    }

    /// `*` in `src` means no networks behind nodes here, and does in Tailscale.
    fn star_and_networks(&self) -> Option<Finding> {
        let routes = self.directory.nodes.iter().flat_map(|node| &node.routes);
        let announced = routes.chain(self.policy.routes.iter().map(|(prefix, _)| prefix));
        let behind = Ranges::of_prefixes(announced.copied().filter(|route| !route.is_default()));
        let names_them = |selector: &Selector| match selector {
            Selector::DangerAll => true,
            Selector::Prefix(prefix) => behind.intersects(&Ranges::of_prefixes([*prefix])),
            Selector::Set(ranges) => behind.intersects(ranges),
            _ => false,
        };
        if behind.is_empty() || self.written().any(|grant| grant.sources.iter().any(names_them)) {
            return None;
        }
        let grant = self.written().find(|grant| grant.sources.contains(&Selector::Any))?;
        let what = "* in src means nodes, not the networks behind them";
        let mend = "where they are to begin connections add their prefix to src";
        Some(Finding::new(grant.place, what, mend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::tests::{directory, policy};
    use crate::{Directory, User};

    fn remarks(text: &str, directory: &Directory) -> Vec<String> {
        let compiled = Compiled::new(&policy(text), directory).unwrap();
        compiled.remarks().iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_role_and_a_group_that_mean_nobody_are_told_once_where_users_are_known() {
        let text = "{\"groups\": {\"group:x\": [\"nobody@\"],\
            \"group:a\": [\"ann@\"]}, \"grants\": [\n\
            {\"src\": [\"autogroup:auditor\", \"group:a\"],\
             \"dst\": [\"group:x\"], \"ip\": [\"*\"]},\n\
            {\"src\": [\"autogroup:auditor\"], \"dst\": [\"ann@\"], \"ip\": [\"*\"]}]}";
        let told = remarks(text, &directory());
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(told[0].starts_with("2:1: \"autogroup:auditor\" means nobody"), "{told:#?}");
        assert!(told[0].contains("warren user role NAME auditor"), "{told:#?}");
        assert!(told[1].contains("\"group:x\" means nobody"), "{told:#?}");
        assert_eq!(remarks(text, &Directory::default()), [""; 0]);
        let mut with = directory();
        let auditor = User { name: "eve".into(), roles: vec!["auditor".into()], ..User::default() };
        with.users.push(auditor);
        assert_eq!(remarks(text, &with).len(), 1);
    }

    #[test]
    fn a_star_that_means_less_here_is_told_at_its_line_unless_the_file_says_more() {
        let all = |more: &str| {
            format!(
                "{{\"acls\": [\n{{\"action\": \"accept\", \"src\": [\"*\"], \
                 \"dst\": [\"*:*\"]}}{more}]}}"
            )
        };
        let mut routed = directory();
        routed.nodes[0].routes = vec!["10.1.0.0/16".parse().unwrap()];
        let told = remarks(&all(""), &routed);
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(told.iter().all(|told| told.starts_with("2:1: * in ")), "{told:#?}");
        let out = ",{\"action\": \"accept\", \"src\": [\"*\"], \
                   \"dst\": [\"autogroup:internet:*\"]}";
        let told = remarks(&all(out), &routed);
        assert!(told.len() == 1 && told[0].contains("* in src"), "{told:#?}");
        let site = ",{\"action\": \"accept\", \"src\": [\"10.0.0.0/8\"], \
                    \"dst\": [\"*:*\", \"8.8.8.8:53\"]}";
        assert_eq!(remarks(&all(site), &routed), [""; 0]);
        let mut plain = directory();
        plain.nodes.iter_mut().for_each(|node| node.routes.clear());
        let told = remarks(&all(""), &plain);
        assert!(told.len() == 1 && told[0].contains("autogroup:internet"), "{told:#?}");
        assert_eq!(remarks("{}", &routed), [""; 0], "what is open is told as that");
    }
}
