//! The table of routes against the document.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

#[test]
fn co_09_the_document_and_the_table_of_routes_agree() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut said = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let scope = operation["x-scope"].as_str().unwrap().to_owned();
            let is_public = operation["security"].as_array().unwrap().is_empty();
            assert_eq!(is_public, scope == PUBLIC || scope == SELF, "{method} {path}");
            let own = operation["x-own"].as_bool().unwrap_or(false);
            let route = ROUTES.iter().find(|r| r.path == path && r.method == method.to_uppercase());
            assert_eq!(route.map(|route| route.own), Some(own), "{method} {path}");
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
            said.insert((method.to_uppercase(), path.clone(), scope));
        }
    }
    let done: BTreeSet<_> = ROUTES
        .iter()
        .map(|route| (route.method.to_owned(), route.path.to_owned(), route.scope.to_owned()))
        .collect();
    assert_eq!(said, done);
    assert_eq!(done.len(), ROUTES.len(), "no route twice");
    for (_, _, scope) in &done {
        assert!(scope == PUBLIC || scope == SELF || SCOPES.contains(&scope.as_str()), "{scope}");
    }
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(to) = fields.get("$ref").and_then(Value::as_str) {
                    assert!(document.pointer(&to[1..]).is_some(), "{to}");
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}

#[test]
fn paths_fit_exactly() {
    for (method, path, status) in [
        ("GET", "/api/v1/nodes", Ok(0)),
        ("GET", "/api/v1/nodes/7", Ok(7)),
        ("POST", "/api/v1/nodes/18446744073709551615/rename", Ok(u64::MAX)),
        ("GET", "/api/v1/nodes/18446744073709551616", Err(404)),
        ("GET", "/api/v1/nodes/+7", Err(404)),
        ("GET", "/api/v1/nodes/", Err(404)),
        ("GET", "/api/v1/nodes/7/", Err(404)),
        ("GET", "/api/v1/nodes/7/8", Err(404)),
        ("GET", "/api/v1/../v1/nodes", Err(404)),
        ("GET", "/", Err(404)),
        ("PATCH", "/api/v1/nodes/7", Err(405)),
        ("get", "/api/v1/nodes", Err(405)),
    ] {
        let found = find(method, path).map(|(_, id)| id).map_err(|problem| problem.status);
        assert_eq!(found, status, "{method} {path}");
    }
}
