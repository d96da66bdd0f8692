//! What is missing at AWS is made, what is different is changed, and both are read back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sites::{Id, Kind, Step};

use super::query::Parameters;
use super::read::{self, TAG_MADE, TAG_NETWORK, TAG_NUMBER, TAG_ROLE, TAG_SITE};
use super::{Region, filter, pair};
use crate::make::{Maker, Meaning};
use crate::place::Boot;
use crate::retry::Failure;

/// Who publishes Debian's images (wiki.debian.org/Cloud/AmazonEC2Image).
const DEBIAN: &str = "136693071363";

/// By which a rule in a group of others is known as ours.
pub(super) fn rule_word(network: &str) -> String {
    format!("warren {network}")
}

impl Maker for Region {
    fn look_again(&mut self, id: &Id) -> Result<(), Failure> {
        match id.kind {
            Kind::Route => self.look(Kind::Table, Some(&id.site)),
            Kind::MachineRule => self.look_at_rules(Some(&id.site)),
            kind => self.look(kind, Some(&id.site)),
        }
    }

    fn is_part(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Route | Kind::MachineRule)
    }

    fn set(&mut self, step: &Step) -> Result<(), Failure> {
        match step.id.kind {
            Kind::Route => self.route(step),
            _ => self.rule(step),
        }
    }

    fn create(
        &mut self,
        step: &Step,
        number: Option<u32>,
        boot: Option<&Boot>,
    ) -> Result<String, Failure> {
        let Id { kind, site, name } = &step.id;
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        let network = || self.need(Kind::Network, site, "vpc");
        let (action, mut parameters) = match kind {
            Kind::Network => ("CreateVpc", vec![pair("CidrBlock", get("cidr"))]),
            Kind::InternetGateway => ("CreateInternetGateway", vec![]),
            Kind::Subnet => {
                ("CreateSubnet", vec![pair("VpcId", network()?), pair("CidrBlock", get("cidr"))])
            }
            Kind::Group => (
                "CreateSecurityGroup",
                vec![
                    pair("GroupName", format!("{}-{site}-{name}", self.network)),
                    pair("GroupDescription", "what reaches the gateways of a site"),
                    pair("VpcId", network()?),
                ],
            ),
            Kind::Interface => (
                "CreateNetworkInterface",
                vec![
                    pair("SubnetId", self.need(Kind::Subnet, site, "subnet")?),
                    pair("PrivateIpAddress", get("address")),
                    pair("SecurityGroupId.1", self.need(Kind::Group, site, "gateway")?),
                    pair("Description", format!("gateway {name}")),
                ],
            ),
            Kind::Table => ("CreateRouteTable", vec![pair("VpcId", network()?)]),
            Kind::Address => ("AllocateAddress", vec![pair("Domain", "vpc")]),
            _ => ("RunInstances", self.instance(step, boot)?),
        };
        let Some(words) = read::words(*kind) else { return Err(missing(*kind)) };
        parameters.extend(self.tags(step, number, words.tagged));
        let answer = self.client.call(action, &parameters)?;
        let made = answer.children.iter().filter_map(|node| node.as_element());
        let mut ids = made.map(|one| read::text(one, words.id));
        let nested = ids.find(|id| !id.is_empty());
        let machines = read::items(&answer, "instancesSet").into_iter();
        let machine = machines.map(|one| read::text(one, words.id)).next();
        let aws = nested.or(machine).unwrap_or_else(|| read::text(&answer, words.id));
        self.names.insert(aws.clone(), step.id.clone());
        Ok(aws)
    }

    fn ensure(&mut self, step: &Step, aws: &str) -> Result<(), Failure> {
        let Id { kind, site, name } = &step.id;
        let is = |region: &Self, key: &str| {
            let thing = region.things.get(&step.id);
            thing.and_then(|thing| thing.properties.get(key).cloned()).unwrap_or_default()
        };
        match kind {
            Kind::InternetGateway if is(self, "attached") != "yes" => {
                let network = self.need(Kind::Network, site, "vpc")?;
                let parameters = [pair("InternetGatewayId", aws), pair("VpcId", network)];
                self.done("AttachInternetGateway", &parameters)
            }
            Kind::Group => {
                let before = is(self, "ingress");
                let after = step.properties.get("ingress").cloned().unwrap_or_default();
                self.set_rules(aws, &before, &after)
            }
            Kind::Interface => {
                let at = pair("NetworkInterfaceId", aws);
                if is(self, "source_check") != "off" {
                    let parameters = [at.clone(), pair("SourceDestCheck.Value", "false")];
                    self.done("ModifyNetworkInterfaceAttribute", &parameters)?;
                }
                if is(self, "group") != "gateway" {
                    let group = self.need(Kind::Group, site, "gateway")?;
                    let parameters = [at, pair("SecurityGroupId.1", group)];
                    self.done("ModifyNetworkInterfaceAttribute", &parameters)?;
                }
                Ok(())
            }
            Kind::Table => {
                if is(self, "subnet") != "subnet" {
                    let subnet = self.need(Kind::Subnet, site, "subnet")?;
                    let parameters = [pair("RouteTableId", aws), pair("SubnetId", subnet)];
                    self.done("AssociateRouteTable", &parameters)?;
                }
                if is(self, "default") != "internet" {
                    let internet = self.need(Kind::InternetGateway, site, "internet")?;
                    self.set_route(aws, "0.0.0.0/0", pair("GatewayId", internet))?;
                }
                Ok(())
            }
            Kind::Address if is(self, "at") != *name => {
                let interface = self.need(Kind::Interface, site, name)?;
                let parameters = [
                    pair("AllocationId", aws),
                    pair("NetworkInterfaceId", interface),
                    pair("AllowReassociation", "true"),
                ];
                self.done("AssociateAddress", &parameters)
            }
            Kind::Machine if is(self, "state") == "stopped" => {
                self.done("StartInstances", &[pair("InstanceId.1", aws)])
            }
            _ => Ok(()),
        }
    }

    fn try_remove(&mut self, id: &Id) -> Result<(), Failure> {
        self.remove_once(id)
    }

    fn forget(&mut self, id: &Id) {
        self.things.remove(id);
    }

    fn meaning(&self, failure: &Failure) -> Meaning {
        match failure {
            _ if failure.is_absence() => Meaning::Absent,
            _ if failure.is_in_use() => Meaning::InUse,
            _ if failure.code.ends_with(".Duplicate") => Meaning::There,
            _ => Meaning::Other,
        }
    }
}

impl Region {
    /// AWS's word for a resource that is needed first.
    fn need(&self, kind: Kind, site: &str, name: &str) -> Result<String, Failure> {
        self.aws_of(kind, site, name).ok_or_else(|| Failure {
            code: "Missing".to_owned(),
            what: format!("{} {name} is not there; apply again", kind.word()),
            is_lost: false,
        })
    }

    fn tags(&self, step: &Step, number: Option<u32>, resource: &str) -> Parameters {
        let id = &step.id;
        let name = format!("{} {} {}", self.network, id.site, id.name);
        let mut tags = vec![
            (TAG_NETWORK, self.network.clone()),
            (TAG_SITE, id.site.clone()),
            (TAG_ROLE, id.name.clone()),
            ("Name", name),
        ];
        if let Some(number) = number.filter(|_| id.kind == Kind::Network) {
            tags.push((TAG_NUMBER, number.to_string()));
        }
        tags.extend(step.properties.get("made").map(|word| (TAG_MADE, word.clone())));
        let mut parameters = vec![pair("TagSpecification.1.ResourceType", resource)];
        for (at, (key, value)) in tags.into_iter().enumerate() {
            let stem = format!("TagSpecification.1.Tag.{}", at + 1);
            parameters.push((format!("{stem}.Key"), key.to_owned()));
            parameters.push((format!("{stem}.Value"), value));
        }
        parameters
    }

    fn instance(&mut self, step: &Step, boot: Option<&Boot>) -> Result<Parameters, Failure> {
        let Some(boot) = boot else { return Err(missing(step.id.kind)) };
        let interface = self.need(Kind::Interface, &step.id.site, &step.id.name)?;
        let image = match step.properties.get("image") {
            Some(image) => image.clone(),
            None => self.newest_debian()?,
        };
        let machine = step.properties.get("machine").cloned().unwrap_or_default();
        let mut parameters = vec![
            pair("ImageId", image),
            pair("InstanceType", machine),
            pair("MinCount", "1"),
            pair("MaxCount", "1"),
            pair("ClientToken", boot.token.clone()),
            pair("UserData", STANDARD.encode(&boot.user_data)),
            pair("NetworkInterface.1.DeviceIndex", "0"),
            pair("NetworkInterface.1.NetworkInterfaceId", interface),
            // User data has a key in it: no program that is talked into a request gets it.
            pair("MetadataOptions.HttpTokens", "required"),
            pair("MetadataOptions.HttpPutResponseHopLimit", "1"),
        ];
        let role = step.properties.get("role");
        parameters.extend(role.map(|role| pair("IamInstanceProfile.Name", role)));
        Ok(parameters)
    }

    fn newest_debian(&mut self) -> Result<String, Failure> {
        let mut parameters = vec![pair("Owner.1", DEBIAN)];
        parameters.extend(filter(1, "name", "debian-12-amd64-*"));
        parameters.extend(filter(2, "state", "available"));
        let answer = self.client.call("DescribeImages", &parameters)?;
        let images = read::items(&answer, "imagesSet").into_iter();
        let dated = images.map(|one| (read::text(one, "creationDate"), read::text(one, "imageId")));
        let newest = dated.max().map(|(_, image)| image);
        newest.ok_or_else(|| Failure {
            code: "Missing".to_owned(),
            what: "Debian publishes no image in this region; write image = \"ami-…\"".to_owned(),
            is_lost: false,
        })
    }

    /// A call after which something is so, whoever did it.
    pub(super) fn done(
        &mut self,
        action: &str,
        parameters: &[(String, String)],
    ) -> Result<(), Failure> {
        match self.client.call(action, parameters) {
            Err(failure) if !failure.is_done_already() => Err(failure),
            _ => Ok(()),
        }
    }

    fn set_rules(&mut self, group: &str, before: &str, after: &str) -> Result<(), Failure> {
        let list = |text: &str| -> Vec<String> {
            text.split(',').filter(|rule| !rule.is_empty()).map(str::to_owned).collect()
        };
        let before = list(before);
        let after = list(after);
        for (action, these, those) in [
            ("AuthorizeSecurityGroupIngress", &after, &before),
            ("RevokeSecurityGroupIngress", &before, &after),
        ] {
            for rule in these.iter().filter(|rule| !those.contains(rule)) {
                let mut parameters = vec![pair("GroupId", group)];
                parameters.extend(permission(rule, None));
                self.done(action, &parameters)?;
            }
        }
        Ok(())
    }

    fn set_route(&mut self, table: &str, to: &str, via: (String, String)) -> Result<(), Failure> {
        let parameters = [pair("RouteTableId", table), pair("DestinationCidrBlock", to), via];
        let replaced = self.client.call("ReplaceRoute", &parameters);
        match replaced {
            // There is none yet.
            Err(failure) if failure.is_absence() || failure.code == "InvalidParameterValue" => {
                self.done("CreateRoute", &parameters)
            }
            other => other.map(drop),
        }
    }

    fn route(&mut self, step: &Step) -> Result<(), Failure> {
        let site = &step.id.site;
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        let table = self.need(Kind::Table, site, "routes")?;
        let interface = self.need(Kind::Interface, site, &get("via"))?;
        let via = pair("NetworkInterfaceId", interface);
        match self.things.contains_key(&step.id) {
            true => self.set_route(&table, &get("to"), via),
            false => {
                let to = pair("DestinationCidrBlock", get("to"));
                self.done("CreateRoute", &[pair("RouteTableId", table), to, via])
            }
        }
    }

    /// What lets other sites into the default group of a network of ours.
    fn rule(&mut self, step: &Step) -> Result<(), Failure> {
        self.look_at_rules(Some(&step.id.site))?;
        let known = self.things.get(&step.id).map(|thing| thing.properties.clone());
        let group = self.names.iter().find(|(_, id)| **id == step.id).map(|(aws, _)| aws.clone());
        let Some(group) = group else { return Err(missing(step.id.kind)) };
        let word = rule_word(&self.network);
        let wanted = step.properties.get("from").cloned().unwrap_or_default();
        let before = known.and_then(|known| known.get("from").cloned()).unwrap_or_default();
        let list = |text: &str| -> Vec<String> {
            text.split(',').filter(|from| !from.is_empty()).map(str::to_owned).collect()
        };
        let before = list(&before);
        let wanted = list(&wanted);
        for (action, these, those) in [
            ("RevokeSecurityGroupIngress", &before, &wanted),
            ("AuthorizeSecurityGroupIngress", &wanted, &before),
        ] {
            for from in these.iter().filter(|from| !those.contains(from)) {
                let mut parameters = vec![pair("GroupId", group.clone())];
                parameters.extend(permission(&format!("all {from}"), Some(&word)));
                self.done(action, &parameters)?;
            }
        }
        Ok(())
    }
}

fn missing(kind: Kind) -> Failure {
    let what = format!("{} is not there; apply again", kind.word());
    Failure { code: "Missing".to_owned(), what, is_lost: false }
}

/// A rule as the plan writes it (`udp 41820 0.0.0.0/0`), as a request has it.
pub(super) fn permission(rule: &str, word: Option<&str>) -> Parameters {
    let words: Vec<&str> = rule.split(' ').collect();
    let (protocol, ports, from) = match words[..] {
        [protocol, ports, from] => (protocol, Some(ports), from),
        [_, from] => ("-1", None, from),
        _ => ("-1", None, ""),
    };
    let mut parameters = vec![pair("IpPermissions.1.IpProtocol", protocol)];
    if let Some(ports) = ports {
        let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
        parameters.push(pair("IpPermissions.1.FromPort", low));
        parameters.push(pair("IpPermissions.1.ToPort", high));
    }
    let stem = match from {
        _ if from.starts_with("sg-") => "IpPermissions.1.Groups.1.GroupId",
        _ if from.contains(':') => "IpPermissions.1.Ipv6Ranges.1.CidrIpv6",
        _ => "IpPermissions.1.IpRanges.1.CidrIp",
    };
    parameters.push(pair(stem, from));
    if let Some(word) = word {
        parameters.push(pair("IpPermissions.1.IpRanges.1.Description", word));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_requests_have_them() {
        let told = |rule: &str| -> Vec<String> {
            permission(rule, None)
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect()
        };
        assert_eq!(
            told("udp 41820 0.0.0.0/0"),
            [
                "IpPermissions.1.IpProtocol=udp",
                "IpPermissions.1.FromPort=41820",
                "IpPermissions.1.ToPort=41820",
                "IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0"
            ]
        );
        assert_eq!(
            told("all 10.1.0.0/24"),
            ["IpPermissions.1.IpProtocol=-1", "IpPermissions.1.IpRanges.1.CidrIp=10.1.0.0/24"]
        );
        assert!(told("tcp 1-9 ::/0").contains(&"IpPermissions.1.ToPort=9".to_owned()));
        assert!(told("all sg-1")[1].starts_with("IpPermissions.1.Groups.1.GroupId"));
    }
}
