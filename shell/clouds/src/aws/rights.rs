//! The least rights that sites at AWS need, as a policy document of IAM: the operator's, and those
//! of the role that gateways of a pair have.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sites::{File, Provider};

use super::read::TAG_NETWORK;

/// What only looks.
const LOOKS: &[&str] = &[
    "DescribeAddresses",
    "DescribeImages",
    "DescribeInstances",
    "DescribeInternetGateways",
    "DescribeKeyPairs",
    "DescribeNetworkInterfaces",
    "DescribeRouteTables",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "DescribeVpcs",
];
/// What makes and changes.
const MAKES: &[&str] = &[
    "AllocateAddress",
    "AssociateAddress",
    "AssociateRouteTable",
    "AttachInternetGateway",
    "AuthorizeSecurityGroupIngress",
    "CreateInternetGateway",
    "CreateKeyPair",
    "CreateNetworkInterface",
    "CreateRoute",
    "CreateRouteTable",
    "CreateSecurityGroup",
    "CreateSubnet",
    "CreateTags",
    "CreateVpc",
    "ModifyNetworkInterfaceAttribute",
    "ReplaceRoute",
    "RunInstances",
    "StartInstances",
];
/// What takes away.
const REMOVES: &[&str] = &[
    "DeleteInternetGateway",
    "DeleteKeyPair",
    "DeleteNetworkInterface",
    "DeleteRoute",
    "DeleteRouteTable",
    "DeleteSecurityGroup",
    "DeleteSubnet",
    "DeleteVpc",
    "DetachInternetGateway",
    "DisassociateAddress",
    "DisassociateRouteTable",
    "ReleaseAddress",
    "RevokeSecurityGroupIngress",
    "TerminateInstances",
];

/// What a gateway of a pair looks at.
const GATEWAY_LOOKS: &[&str] = &["DescribeNetworkInterfaces", "DescribeRouteTables"];
/// What it changes, in tables of its own network.
const GATEWAY_LEADS: &[&str] = &["ReplaceRoute"];

fn statement(name: &str, actions: &[&str]) -> Value {
    let actions: Vec<String> = actions.iter().map(|action| format!("ec2:{action}")).collect();
    json!({ "Sid": name, "Effect": "Allow", "Action": actions, "Resource": "*" })
}

/// The policy document; two where gateways have a role, since an operator gives it to them.
pub(crate) fn rights(file: &File) -> Value {
    let mut all = vec![
        statement("WarrenLooks", LOOKS),
        statement("WarrenMakes", MAKES),
        statement("WarrenRemoves", REMOVES),
    ];
    let ours = file.sites.iter().filter(|site| site.provider == Provider::Aws);
    let roles: BTreeSet<String> = ours
        .filter_map(|site| {
            let part = partition(site.region.as_deref().unwrap_or_default());
            Some(format!("arn:{part}:iam::*:role/{}", site.role.as_ref()?))
        })
        .collect();
    let document = |all: Vec<Value>| json!({ "Version": "2012-10-17", "Statement": all });
    if roles.is_empty() {
        return document(all);
    }
    all.push(json!({ "Sid": "WarrenGivesRoles", "Effect": "Allow", "Action": ["iam:PassRole"],
                     "Resource": roles, "Condition": { "StringLike": {
                         "iam:PassedToService": "ec2.amazonaws.com*" } } }));
    let mut leads = statement("WarrenGatewayLeads", GATEWAY_LEADS);
    let tag = format!("aws:ResourceTag/{TAG_NETWORK}");
    leads["Condition"] = json!({ "StringEquals": { tag: file.network } });
    let gateway = document(vec![statement("WarrenGatewayLooks", GATEWAY_LOOKS), leads]);
    json!({ "operator": document(all), "gateway": gateway })
}

/// The part of AWS in which a region is, as names of resources have it.
fn partition(region: &str) -> &'static str {
    let known = [("cn-", "aws-cn"), ("us-gov-", "aws-us-gov")];
    let found = known.into_iter().find(|(begin, _)| region.starts_with(begin));
    found.map_or("aws", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls that sources make: texts that are a verb of EC2 with a noun.
    fn called(sources: &[&str]) -> BTreeSet<String> {
        let verbs = [
            "Allocate",
            "Associate",
            "Attach",
            "Authorize",
            "Create",
            "Delete",
            "Describe",
            "Detach",
            "Disassociate",
            "Modify",
            "Release",
            "Replace",
            "Revoke",
            "Run",
            "Start",
            "Stop",
            "Terminate",
        ];
        let mut called = BTreeSet::new();
        for source in sources {
            let code = source.split("#[cfg(test)]").next().unwrap_or_default();
            for word in code.split('"') {
                let is_word = word.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let rest = verbs.iter().find_map(|verb| word.strip_prefix(verb));
                let begins = rest.and_then(|rest| rest.chars().next());
                if is_word && begins.is_some_and(|letter| letter.is_ascii_uppercase()) {
                    called.insert(word.to_owned());
                }
            }
        }
        called
    }

    fn set(lists: &[&[&str]]) -> BTreeSet<String> {
        lists.concat().into_iter().map(str::to_owned).collect()
    }

    /// Every call of the sources is a right that is printed, and every right is called.
    #[test]
    fn si_08_rights_are_exactly_the_calls_that_are_made() {
        let operator = called(&[
            include_str!("mod.rs"),
            include_str!("read.rs"),
            include_str!("made.rs"),
            include_str!("remove.rs"),
            include_str!("lock.rs"),
        ]);
        assert_eq!(operator, set(&[LOOKS, MAKES, REMOVES]));
        assert_eq!(called(&[include_str!("lead.rs")]), set(&[GATEWAY_LOOKS, GATEWAY_LEADS]));
    }

    #[test]
    fn si_08_a_gateways_role_reaches_its_own_network_and_no_other() {
        let text = "network = \"acme\"\n[[site]]\nname = \"a\"\nprovider = \"aws\"\n\
                    region = \"cn-north-1\"\ngateways = 2\n";
        let plain = rights(&File::read(text).unwrap());
        assert_eq!(plain["Statement"].as_array().map(Vec::len), Some(3), "as it always was");
        let both = rights(&File::read(&format!("{text}role = \"gw\"\n")).unwrap());
        assert_eq!(both["operator"]["Statement"][3]["Resource"][0], "arn:aws-cn:iam::*:role/gw");
        let leads = &both["gateway"]["Statement"][1];
        assert_eq!(leads["Action"], json!(["ec2:ReplaceRoute"]));
        assert_eq!(leads["Condition"]["StringEquals"]["aws:ResourceTag/warren:net"], "acme");
    }
}
