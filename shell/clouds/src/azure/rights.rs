//! The least rights that sites at Azure need, as a custom role.

use serde_json::{Value, json};

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

/// The role, as `az role definition create` takes it. Its scope is to be filled in.
pub(crate) fn rights() -> Value {
    let mut actions: Vec<String> = OTHERS.iter().map(|right| (*right).to_owned()).collect();
    for kind in KINDS {
        actions.extend(["read", "write", "delete"].map(|verb| format!("{kind}/{verb}")));
    }
    actions.sort();
    json!({ "Name": "Warren sites", "IsCustom": true,
            "Description": "What warren sites makes, changes and takes away",
            "Actions": actions, "NotActions": [],
            "AssignableScopes": ["/subscriptions/SUBSCRIPTION"] })
}
