//! Who somebody is, as claims tell it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Provider;
use crate::roles::Role;
use crate::store::Person;

/// Groups of one person that are kept.
const GROUPS_MAX: usize = 500;
/// Characters of a group's name in a policy.
const GROUP_LEN_MAX: usize = 64;

/// Reads claims that are good.
///
/// # Errors
/// Why this person may not come in.
pub(super) fn person(provider: &Provider, claims: &Value) -> Result<Person, String> {
    let text = |name: &str| claims[name].as_str().map(str::trim).filter(|t| !t.is_empty());
    let subject = text("sub").ok_or("the provider says of nobody")?.to_owned();
    // Some providers say it as a text.
    let is_verified = claims["email_verified"] == true || claims["email_verified"] == "true";
    let email = text("email").filter(|_| is_verified).map(str::to_owned);
    let own = text(&provider.user_claim);
    let called = own.or(email.as_deref()).unwrap_or(&subject);
    let name = plain(called);
    let raw: Vec<&str> = match &claims[provider.groups_claim.as_str()] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).take(GROUPS_MAX).collect(),
        Value::String(one) => one.split_whitespace().take(GROUPS_MAX).collect(),
        _ => Vec::new(),
    };
    let is_allowed = |allowed: &String| raw.contains(&allowed.as_str());
    if !provider.allow_groups.is_empty() && !provider.allow_groups.iter().any(is_allowed) {
        return Err("your account is in none of the groups that may sign in here".to_owned());
    }
    let groups: BTreeSet<String> = raw.iter().filter_map(|group| provider.group(group)).collect();
    Ok(Person {
        subject,
        name,
        email,
        groups: groups.into_iter().collect(),
        role: provider.role(&raw),
    })
}

impl Provider {
    /// The most that one of these groups may do, if the file says what groups may.
    fn role(&self, groups: &[&str]) -> Option<Role> {
        let given = groups.iter().filter_map(|group| self.roles.get(*group));
        let most = given.max().copied().unwrap_or(Role::Member);
        (!self.roles.is_empty()).then_some(most)
    }

    /// A group as a policy names it: by the file's word for it, or without the path of Keycloak
    /// and the domain of Kanidm.
    fn group(&self, group: &str) -> Option<String> {
        let named = self.groups_names.get(group).map(String::as_str);
        let short = named.unwrap_or_else(|| {
            let short = group.trim_start_matches('/');
            short.split_once('@').map_or(short, |(name, _)| name)
        });
        let plain = |c: char| match c {
            'a'..='z' | '0'..='9' | '-' | '_' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '-',
        };
        let name: String = self.groups_prefix.chars().chain(short.chars()).map(plain).collect();
        (!short.is_empty() && name.len() <= GROUP_LEN_MAX).then_some(name)
    }
}

/// What may be a user's name.
fn plain(called: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
    let name: String =
        called.chars().map(|c| if is_plain(c) { c } else { '-' }).take(200).collect();
    name.trim_end_matches('@').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provider(more: &str) -> Provider {
        let text = format!("issuer = \"https://i\"\nclient_id = \"w\"\n{more}");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn co_08_who_somebody_is_says_the_subject_and_an_address_counts_if_it_is_verified() {
        let p = provider("");
        let known = |claims: Value| person(&p, &claims).unwrap();
        let anna = known(json!({ "sub": "1", "preferred_username": "anna", "email": "a@x" }));
        assert_eq!((anna.name.as_str(), anna.email), ("anna", None), "nobody verified it");
        let google = json!({ "sub": "2", "email": "b@x.example", "email_verified": true });
        assert_eq!(known(google).name, "b@x.example");
        let text = json!({ "sub": "3", "email": "c@x", "email_verified": "true" });
        assert_eq!(known(text).email.as_deref(), Some("c@x"));
        assert_eq!(known(json!({ "sub": "4" })).name, "4");
        let evil = json!({ "sub": "5", "preferred_username": "<b>a b</b>@@" });
        assert_eq!(known(evil).name, "-b-a-b--b-");
        assert!(person(&p, &json!({ "sub": " " })).is_err());
    }

    #[test]
    fn co_09_the_most_that_a_group_may_do_is_the_role_and_none_is_member() {
        let role = |provider: &Provider, groups: &[&str]| {
            person(provider, &json!({ "sub": "1", "groups": groups })).unwrap().role
        };
        assert_eq!(role(&provider(""), &["/net/ops"]), None, "the provider says nothing of roles");
        let p = provider("[roles]\n\"/net/ops\" = \"operator\"\nroot = \"admin\"");
        assert_eq!(role(&p, &["x", "/net/ops"]), Some(Role::Operator));
        assert_eq!(role(&p, &["/net/ops", "root"]), Some(Role::Admin));
        // The name that a policy has for a group is not the group.
        assert_eq!(role(&p, &["net-ops", "ROOT"]), Some(Role::Member));
        assert!(
            toml::from_str::<Provider>(
                "issuer = \"https://i\"\nclient_id = \"w\"\n[roles]\nx = \"root\""
            )
            .is_err()
        );
    }

    #[test]
    fn groups_of_keycloak_kanidm_and_entra_become_names_of_a_policy() {
        let p = provider(
            "groups_prefix = \"uni-\"\nallow_groups = [\"/staff/Net Ops\"]\n\
             [groups_names]\n\"7f0e\" = \"robotics\"",
        );
        let claims = json!({ "sub": "1", "groups":
            ["/staff/Net Ops", "idm_all@idm.example", "7f0e", "", "x".repeat(99), 7] });
        let found = person(&p, &claims).unwrap();
        assert_eq!(found.groups, ["uni-idm_all", "uni-robotics", "uni-staff-net-ops"]);
        let other = json!({ "sub": "1", "groups": ["/staff"] });
        assert!(person(&p, &other).unwrap_err().contains("may sign in"));
        let one = provider("");
        let person = person(&one, &json!({ "sub": "1", "groups": "a b" })).unwrap();
        assert_eq!(person.groups, ["a", "b"]);
    }
}
