//! The least rights that sites at AWS need, as a policy document of IAM.

use serde_json::{Value, json};

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

/// The policy document.
pub(crate) fn rights() -> Value {
    let statement = |name: &str, actions: &[&str]| {
        let actions: Vec<String> = actions.iter().map(|action| format!("ec2:{action}")).collect();
        json!({ "Sid": name, "Effect": "Allow", "Action": actions, "Resource": "*" })
    };
    json!({ "Version": "2012-10-17",
            "Statement": [statement("WarrenLooks", LOOKS), statement("WarrenMakes", MAKES),
                          statement("WarrenRemoves", REMOVES)] })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every call of the sources is a right that is printed, and every right is called.
    #[test]
    fn si_08_rights_are_exactly_the_calls_that_are_made() {
        let sources = [
            include_str!("mod.rs"),
            include_str!("read.rs"),
            include_str!("made.rs"),
            include_str!("remove.rs"),
            include_str!("lock.rs"),
        ];
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
        let mut called = std::collections::BTreeSet::new();
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
        let printed: std::collections::BTreeSet<String> =
            [LOOKS, MAKES, REMOVES].concat().into_iter().map(str::to_owned).collect();
        assert_eq!(called, printed);
    }
}
