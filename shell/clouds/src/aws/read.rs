//! What AWS reports, in the plan's words.

use sites::{Kind, Properties, yes_or_no};
use xmltree::Element;

/// Whose it is: the network.
pub(crate) const TAG_NETWORK: &str = "warren:net";
/// The site.
pub(crate) const TAG_SITE: &str = "warren:site";
/// Which one of its kind, by its name in the plan.
pub(crate) const TAG_ROLE: &str = "warren:role";
/// What the machine of a gateway that runs another program was made with.
pub(crate) const TAG_MADE: &str = "warren:made";
/// The site's number in the plan.
pub(crate) const TAG_NUMBER: &str = "warren:number";

/// How a kind is asked for, and what answers call it.
pub(crate) struct Words {
    pub(crate) describe: &'static str,
    pub(crate) set: &'static str,
    pub(crate) id: &'static str,
    /// Where tags are given at creation.
    pub(crate) tagged: &'static str,
}

/// The words of a kind that is tagged; none for what is a part of another one.
pub(crate) fn words(kind: Kind) -> Option<Words> {
    let words = |describe, set, id, tagged| Words { describe, set, id, tagged };
    Some(match kind {
        Kind::Network => words("DescribeVpcs", "vpcSet", "vpcId", "vpc"),
        Kind::InternetGateway => words(
            "DescribeInternetGateways",
            "internetGatewaySet",
            "internetGatewayId",
            "internet-gateway",
        ),
        Kind::Subnet => words("DescribeSubnets", "subnetSet", "subnetId", "subnet"),
        Kind::Group => {
            words("DescribeSecurityGroups", "securityGroupInfo", "groupId", "security-group")
        }
        Kind::Table => words("DescribeRouteTables", "routeTableSet", "routeTableId", "route-table"),
        Kind::Interface => words(
            "DescribeNetworkInterfaces",
            "networkInterfaceSet",
            "networkInterfaceId",
            "network-interface",
        ),
        Kind::Address => words("DescribeAddresses", "addressesSet", "allocationId", "elastic-ip"),
        Kind::Machine => words("DescribeInstances", "reservationSet", "instanceId", "instance"),
        _ => return None,
    })
}

/// The kinds that are tagged, in the order of creation, so that what is named is known already.
pub(crate) const TAGGED: [Kind; 8] = [
    Kind::Network,
    Kind::InternetGateway,
    Kind::Subnet,
    Kind::Group,
    Kind::Interface,
    Kind::Table,
    Kind::Address,
    Kind::Machine,
];

/// The text of a child; nothing if there is none.
pub(crate) fn text(element: &Element, name: &str) -> String {
    let child = element.get_child(name).and_then(Element::get_text);
    child.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The items of a list.
pub(crate) fn items<'e>(element: &'e Element, name: &str) -> Vec<&'e Element> {
    let list = element.get_child(name).into_iter().flat_map(|list| &list.children);
    list.filter_map(|node| node.as_element()).filter(|item| item.name == "item").collect()
}

/// The value of a tag. Interfaces have theirs in another list.
pub(crate) fn tag(element: &Element, key: &str) -> Option<String> {
    let tags = items(element, "tagSet").into_iter();
    tags.filter(|item| text(item, "key") == key).map(|item| text(item, "value")).next()
}

/// The resources of an answer. Machines are in a list of lists, and those that ended are none.
pub(crate) fn resources<'e>(answer: &'e Element, words: &Words) -> Vec<&'e Element> {
    let all = items(answer, words.set);
    if words.set != "reservationSet" {
        return all;
    }
    let machines = all.into_iter().flat_map(|one| items(one, "instancesSet"));
    machines.filter(|one| !matches!(state(one).as_str(), "terminated" | "shutting-down")).collect()
}

/// A machine's state.
pub(crate) fn state(machine: &Element) -> String {
    machine.get_child("instanceState").map(|state| text(state, "name")).unwrap_or_default()
}

/// What rules let in, as the plan writes it: sorted, with commas.
pub(crate) fn ingress(group: &Element) -> String {
    let mut all = Vec::new();
    for rule in items(group, "ipPermissions") {
        let protocol = text(rule, "ipProtocol");
        let from = text(rule, "fromPort");
        let to = text(rule, "toPort");
        let what = match protocol.as_str() {
            "-1" => "all".to_owned(),
            _ if from == to => format!("{protocol} {from}"),
            _ => format!("{protocol} {from}-{to}"),
        };
        let ranges = items(rule, "ipRanges").into_iter().map(|range| text(range, "cidrIp"));
        let more = items(rule, "ipv6Ranges").into_iter().map(|range| text(range, "cidrIpv6"));
        let groups = items(rule, "groups").into_iter().map(|group| text(group, "groupId"));
        all.extend(ranges.chain(more).chain(groups).map(|from| format!("{what} {from}")));
    }
    all.sort();
    all.dedup();
    all.join(",")
}

/// How a resource is. `name_of` says what the plan calls a resource by AWS's own word for it.
pub(crate) fn properties(
    kind: Kind,
    element: &Element,
    name_of: &dyn Fn(&str) -> String,
) -> Properties {
    let mut found = Properties::new();
    let mut set = |key: &str, value: String| drop(found.insert(key.to_owned(), value));
    match kind {
        Kind::Network | Kind::Subnet => set("cidr", text(element, "cidrBlock")),
        Kind::InternetGateway => {
            let attached = items(element, "attachmentSet");
            let is_ours = attached.iter().any(|at| name_of(&text(at, "vpcId")) == "vpc");
            set("attached", yes_or_no(is_ours).to_owned());
        }
        Kind::Group => set("ingress", ingress(element)),
        Kind::Interface => {
            set("address", text(element, "privateIpAddress"));
            let groups = items(element, "groupSet").into_iter();
            let groups: Vec<String> = groups.map(|one| name_of(&text(one, "groupId"))).collect();
            set("group", groups.join(","));
            let check = text(element, "sourceDestCheck");
            set("source_check", if check == "false" { "off" } else { "on" }.to_owned());
        }
        Kind::Table => {
            let routes = items(element, "routeSet").into_iter();
            let default = routes
                .filter(|route| text(route, "destinationCidrBlock") == "0.0.0.0/0")
                .map(|route| name_of(&text(route, "gatewayId")));
            set("default", default.collect::<Vec<_>>().join(","));
            let at = items(element, "associationSet").into_iter();
            let at = at.map(|one| name_of(&text(one, "subnetId")));
            set("subnet", at.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(","));
        }
        Kind::Address => {
            set("at", name_of(&text(element, "networkInterfaceId")));
            set("public", text(element, "publicIp"));
        }
        Kind::Machine => {
            set("image", text(element, "imageId"));
            set("machine", text(element, "instanceType"));
            let profile = element.get_child("iamInstanceProfile");
            let name = profile.map(|profile| text(profile, "arn")).unwrap_or_default();
            set("role", name.rsplit('/').next().unwrap_or_default().to_owned());
            set("state", state(element));
            set("made", tag(element, TAG_MADE).unwrap_or_default());
        }
        _ => {}
    }
    found
}

/// A route of a table that leads to an interface.
pub(crate) struct Route {
    pub(crate) to: String,
    /// AWS's word for the interface.
    pub(crate) interface: String,
    /// Whether it leads nowhere any more.
    pub(crate) is_gone: bool,
}

/// All of a table but those that AWS makes itself and the way out.
pub(crate) fn routes(table: &Element) -> Vec<Route> {
    let all = items(table, "routeSet").into_iter().map(|route| Route {
        to: text(route, "destinationCidrBlock"),
        interface: text(route, "networkInterfaceId"),
        is_gone: text(route, "state") == "blackhole",
    });
    let is_meant = |route: &Route| !route.to.is_empty() && route.to != "0.0.0.0/0";
    let locals: Vec<String> = items(table, "routeSet")
        .into_iter()
        .filter(|route| text(route, "gatewayId") == "local")
        .map(|route| text(route, "destinationCidrBlock"))
        .collect();
    all.filter(is_meant).filter(|route| !locals.contains(&route.to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(text: &str) -> Element {
        Element::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn source_001_5_rules_are_read_as_the_plan_writes_them() {
        let group = element(
            "<item><ipPermissions>
             <item><ipProtocol>udp</ipProtocol><fromPort>41820</fromPort><toPort>41820</toPort>
             <ipRanges><item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges></item>
             <item><ipProtocol>-1</ipProtocol><ipRanges><item><cidrIp>10.1.0.0/24</cidrIp></item>
             </ipRanges></item></ipPermissions></item>",
        );
        assert_eq!(ingress(&group), "all 10.1.0.0/24,udp 41820 0.0.0.0/0");
        let wide = element(
            "<item><ipPermissions><item><ipProtocol>tcp</ipProtocol><fromPort>1</fromPort>
             <toPort>9</toPort><ipv6Ranges><item><cidrIpv6>::/0</cidrIpv6></item></ipv6Ranges>
             <groups><item><groupId>sg-1</groupId></item></groups></item></ipPermissions></item>",
        );
        assert_eq!(ingress(&wide), "tcp 1-9 ::/0,tcp 1-9 sg-1");
    }

    #[test]
    fn a_route_to_what_is_gone_is_none_that_the_plan_wants() {
        let table = element(
            "<item><routeSet>
             <item><destinationCidrBlock>10.1.0.0/24</destinationCidrBlock>
             <gatewayId>local</gatewayId></item>
             <item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock>
             <gatewayId>igw-1</gatewayId></item>
             <item><destinationCidrBlock>10.0.0.0/8</destinationCidrBlock>
             <networkInterfaceId>eni-1</networkInterfaceId><state>blackhole</state></item>
             </routeSet></item>",
        );
        let found = routes(&table);
        assert_eq!(found.len(), 1);
        assert!(found[0].interface == "eni-1" && found[0].is_gone);
        let table = properties(Kind::Table, &table, &str::to_owned);
        assert_eq!((table["default"].as_str(), table["subnet"].as_str()), ("igw-1", ""));
    }

    #[test]
    fn machines_that_ended_are_none() {
        let answer = element(
            "<a><reservationSet><item><instancesSet>
             <item><instanceId>i-1</instanceId><instanceState><name>terminated</name>
             </instanceState></item>
             <item><instanceId>i-2</instanceId><instanceState><name>running</name>
             </instanceState><iamInstanceProfile><arn>arn:aws:iam::1:instance-profile/x/gw</arn>
             </iamInstanceProfile></item>
             </instancesSet></item></reservationSet></a>",
        );
        let words = words(Kind::Machine).unwrap();
        let found = resources(&answer, &words);
        assert_eq!(found.len(), 1);
        assert_eq!(text(found[0], words.id), "i-2");
        let found = properties(Kind::Machine, found[0], &|_| String::new());
        assert_eq!((found["state"].as_str(), found["role"].as_str()), ("running", "gw"));
    }
}
