//! The least rights that sites at Azure need, as a custom role: the operator's, and that of the
//! identity which gateways of a pair have.

use serde_json::{Value, json};
use sites::{File, Provider};

/// What is read, written and removed.
const KINDS: &[&str] = &[
    "Microsoft.Compute/virtualMachines",
    "Microsoft.Network/networkInterfaces",
    "Microsoft.Network/networkSecurityGroups",
    "Microsoft.Network/networkSecurityGroups/securityRules",
    "Microsoft.Network/publicIPAddresses",
    "Microsoft.Network/routeTables",
    "Microsoft.Network/routeTables/routes",
    "Microsoft.Network/virtualNetworks",
    "Microsoft.Network/virtualNetworks/subnets",
    "Microsoft.Resources/subscriptions/resourceGroups",
];
/// What else is done: one thing joined to another, a machine started, operations asked after.
const OTHERS: &[&str] = &[
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Compute/virtualMachines/start/action",
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/routeTables/join/action",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Resources/subscriptions/operationresults/read",
    "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
];

/// What an operator does who gives machines an identity.
const GIVES: &str = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action";
/// What a gateway of a pair does: it looks at its site's table, and writes routes of it.
const GATEWAY: &[&str] = &[
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/routeTables/read",
    "Microsoft.Network/routeTables/routes/write",
];

/// The role, as `az role definition create` takes it; two where gateways have an identity. Their
/// scopes are to be filled in.
pub(crate) fn rights(file: &File) -> Value {
    let mut actions: Vec<String> = OTHERS.iter().map(|right| (*right).to_owned()).collect();
    for kind in KINDS {
        actions.extend(["read", "write", "delete"].map(|verb| format!("{kind}/{verb}")));
    }
    let is_pair = file.sites.iter().any(|s| s.provider == Provider::Azure && s.role.is_some());
    actions.extend(is_pair.then(|| GIVES.to_owned()));
    actions.sort();
    let operator = json!({ "Name": "Warren sites", "IsCustom": true,
            "Description": "What warren sites makes, changes and takes away",
            "Actions": actions, "NotActions": [],
            "AssignableScopes": ["/subscriptions/SUBSCRIPTION"] });
    if !is_pair {
        return operator;
    }
    let gateway = json!({ "Name": "Warren gateways", "IsCustom": true,
            "Description": "What a gateway of a pair changes by itself",
            "Actions": GATEWAY, "NotActions": [],
            "AssignableScopes": ["/subscriptions/SUBSCRIPTION"] });
    json!({ "operator": operator, "gateway": gateway })
}
