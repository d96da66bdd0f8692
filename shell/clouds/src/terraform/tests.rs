//! What is in a file of Terraform, and what is not.

use std::collections::BTreeSet;

use sites::Taken;

use super::*;

const TEXT: &str = "network = \"acme\"\n\
    [[site]]\nname = \"fra\"\nprovider = \"aws\"\nregion = \"eu-central-1\"\ngateways = 2\n\
    [[site]]\nname = \"ams\"\nprovider = \"azure\"\nregion = \"westeurope\"\n\
    [[site]]\nname = \"vie\"\nprovider = \"openstack\"\nregion = \"one\"\n\
    [[site]]\nname = \"lab\"\nprovider = \"ssh\"\nhosts = [\"root@h\"]\n";

fn whole() -> (File, Numbering, Value) {
    let file = File::read(TEXT).unwrap();
    let numbering = Numbering::new(&file, TEXT, &Taken::new()).unwrap();
    let whole = terraform(&file, &numbering, "00");
    (file, numbering, whole)
}

/// Each text in a value.
fn texts(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::String(text) => all.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|one| texts(one, all)),
        Value::Object(map) => map.values().for_each(|one| texts(one, all)),
        _ => {}
    }
}

/// What `${KIND.NAME.…}` in a text names; none for expressions.
fn named(text: &str) -> Option<(String, String)> {
    let inner = text.strip_prefix("${")?.strip_suffix('}')?;
    let inner = inner.strip_prefix("data.").unwrap_or(inner);
    let mut parts = inner.split('.');
    let kind = parts.next()?.to_owned();
    (kind != "var" && !inner.contains('(')).then_some((kind, parts.next()?.to_owned()))
}

#[test]
fn whatever_a_file_of_terraform_names_is_in_it() {
    let (_, _, whole) = whole();
    let mut known = BTreeSet::new();
    for part in ["resource", "data"] {
        for (kind, all) in whole[part].as_object().unwrap() {
            known.extend(all.as_object().unwrap().keys().map(|name| (kind.clone(), name.clone())));
        }
    }
    let mut all = Vec::new();
    texts(&whole["resource"], &mut all);
    let mut count = 0;
    for one in all.iter().filter_map(|text| named(text)) {
        assert!(known.contains(&one), "{one:?} is not in it");
        count += 1;
    }
    assert!(count > 40, "{count}");
    for text in &all {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.') {
            if let Some(name) = word.strip_prefix("var.") {
                assert!(whole["variable"][name].is_object(), "{name} is no variable");
            }
            if let Some(name) = word.strip_prefix("local.") {
                assert!(whole["locals"][name].is_string(), "{name} is no local");
            }
        }
    }
}

#[test]
fn every_resource_of_the_plan_is_in_terraforms_file_with_our_mark_and_no_key_is() {
    let (file, numbering, whole) = whole();
    let wanted = sites::desired(&file, &numbering, &Known::default());
    for one in &wanted {
        let is_cloud = file.site(&one.id.site).unwrap().provider != Provider::Ssh;
        if !is_cloud || one.id.kind == Kind::Approval {
            continue;
        }
        let name = plain(&format!("{}_{}", one.id.site, one.id.name));
        let mut kinds = whole["resource"].as_object().unwrap().values();
        // The rule of machines is one for a whole project.
        let is_there =
            kinds.any(|kind| kind[&name].is_object()) || one.id.kind == Kind::MachineRule;
        assert!(is_there, "{} is not in it", one.id);
    }
    let machine = &whole["resource"]["aws_instance"]["fra_acme_fra_gw2"];
    assert_eq!(machine["tags"]["warren:site"], "fra");
    let text = whole.to_string();
    assert!(!text.contains("warren-join-") && text.contains(KEY));
    assert_eq!(whole["variable"]["join_key_acme_fra_gw1"]["sensitive"], true);
    assert_eq!(literal("a${b}%{c}"), "a$${b}%%{c}");
    // What a shell reads in user data is no expression of Terraform.
    let mut locals = Vec::new();
    texts(&whole["locals"], &mut locals);
    assert!(locals.iter().all(|text| !text.replace("$${", "").contains("${")));
}
