//! Who we are at an OpenStack cloud, and where its services are: keystone's version 3.
//!
//! Credentials are those of OpenStack's own client: the variables `OS_…`, of a user with a
//! password or of an application credential. They are read when they are needed and kept nowhere.

use serde_json::{Value, json};

use crate::rest::{Body, Call, Rest};
use crate::retry::Failure;

/// A process's environment, as a value.
pub(super) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A conversation with a cloud.
pub(super) struct Access {
    pub(super) token: String,
    /// Where neutron, nova and glance are, without a slash behind.
    pub(super) network: String,
    pub(super) compute: String,
    pub(super) image: Option<String>,
}

/// What keystone is asked: its address, and the body.
///
/// # Errors
/// Which variables are missing.
pub(super) fn question(
    environment: Environment<'_>,
    endpoint: Option<&str>,
) -> Result<(String, Value), String> {
    let get = |name: &str| environment(name).filter(|text| !text.is_empty());
    let missing = |name: &str| {
        format!(
            "credentials of openstack: {name} is not set; source the cloud's openrc file, or set \
             OS_APPLICATION_CREDENTIAL_ID and OS_APPLICATION_CREDENTIAL_SECRET"
        )
    };
    let at = endpoint.map(str::to_owned).or_else(|| get("OS_AUTH_URL"));
    let at = at.ok_or_else(|| missing("OS_AUTH_URL"))?;
    let at = at.trim_end_matches('/').trim_end_matches("/v3");
    let url = format!("{at}/v3/auth/tokens");
    if let Some(id) = get("OS_APPLICATION_CREDENTIAL_ID") {
        let name = "OS_APPLICATION_CREDENTIAL_SECRET";
        let secret = get(name).ok_or_else(|| missing(name))?;
        let identity = json!({ "methods": ["application_credential"],
                               "application_credential": { "id": id, "secret": secret } });
        return Ok((url, json!({ "auth": { "identity": identity } })));
    }
    let need = |name: &str| get(name).ok_or_else(|| missing(name));
    let domain = |id: &str, name: &str| match get(id) {
        Some(id) => json!({ "id": id }),
        None => json!({ "name": get(name).unwrap_or_else(|| "Default".to_owned()) }),
    };
    let user = json!({ "name": need("OS_USERNAME")?, "password": need("OS_PASSWORD")?,
                       "domain": domain("OS_USER_DOMAIN_ID", "OS_USER_DOMAIN_NAME") });
    let project = match get("OS_PROJECT_ID") {
        Some(id) => json!({ "id": id }),
        None => json!({ "name": need("OS_PROJECT_NAME")?,
                        "domain": domain("OS_PROJECT_DOMAIN_ID", "OS_PROJECT_DOMAIN_NAME") }),
    };
    let identity = json!({ "methods": ["password"], "password": { "user": user } });
    Ok((url, json!({ "auth": { "identity": identity, "scope": { "project": project } } })))
}

impl Access {
    /// Logs in.
    ///
    /// # Errors
    /// What is missing, or what keystone said.
    pub(super) fn open(
        rest: &mut Rest,
        environment: Environment<'_>,
        endpoint: Option<&str>,
        region: Option<&str>,
    ) -> Result<Self, Failure> {
        let asked = question(environment, endpoint);
        let (url, body) = asked.map_err(|why| Failure::new("NoCredentials", why))?;
        let call = Call { method: "POST", url: &url, fields: &[], body: Body::Json(&body) };
        let reply = rest.call(&call).map_err(|failure| match failure.code.as_str() {
            "401" => Failure::new("401", format!("{}; user or password is wrong", failure.what)),
            _ => failure,
        })?;
        let token = reply.field("x-subject-token").unwrap_or_default().to_owned();
        let region = region.map(str::to_owned).or_else(|| environment("OS_REGION_NAME"));
        let inside = environment("OS_INTERFACE").unwrap_or_else(|| "public".to_owned());
        let of = |kind: &str| service(&reply.value, kind, region.as_deref(), &inside);
        let need = |kind: &str| {
            of(kind).ok_or_else(|| {
                let place = region.as_deref().unwrap_or("any region");
                let what = match &regions(&reply.value, kind)[..] {
                    [] => format!("the cloud has no {kind} service"),
                    known => {
                        let known = known.join(", ");
                        format!("the cloud has no {kind} service in {place}, only in {known}")
                    }
                };
                Failure::new("Catalog", what)
            })
        };
        let network = need("network")?;
        let network = network.trim_end_matches("/v2.0").to_owned();
        Ok(Self { token, network, compute: need("compute")?, image: of("image") })
    }
}

/// The address of a service in keystone's catalogue.
fn service(value: &Value, kind: &str, region: Option<&str>, inside: &str) -> Option<String> {
    let catalog = value["token"]["catalog"].as_array()?;
    let service = catalog.iter().find(|service| service["type"] == kind)?;
    let mut all = service["endpoints"].as_array()?.iter();
    let found = all.find(|endpoint| {
        let of_region = region.is_none_or(|region| endpoint["region"] == region);
        endpoint["interface"] == inside && of_region
    })?;
    Some(found["url"].as_str()?.trim_end_matches('/').to_owned())
}

/// Where the catalogue has a service.
fn regions(value: &Value, kind: &str) -> Vec<String> {
    let catalog = value["token"]["catalog"].as_array().into_iter().flatten();
    let services = catalog.filter(|service| service["type"] == kind);
    let endpoints = services.filter_map(|service| service["endpoints"].as_array()).flatten();
    let regions = endpoints.filter_map(|endpoint| endpoint["region"].as_str().map(str::to_owned));
    regions.collect::<std::collections::BTreeSet<String>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn asked(list: &[(&str, &str)]) -> Result<(String, Value), String> {
        let all: BTreeMap<&str, &str> = list.iter().copied().collect();
        question(&|name| all.get(name).map(|text| (*text).to_owned()), None)
    }

    #[test]
    fn keystone_is_asked_as_openstacks_own_client_does() {
        let at = ("OS_AUTH_URL", "https://cloud:5000/v3/");
        let user = [("OS_USERNAME", "u"), ("OS_PASSWORD", "p"), ("OS_PROJECT_NAME", "t")];
        let (url, body) = asked(&[&[at], &user[..]].concat()).unwrap();
        assert_eq!(url, "https://cloud:5000/v3/auth/tokens");
        assert_eq!(body["auth"]["identity"]["password"]["user"]["domain"]["name"], "Default");
        assert_eq!(body["auth"]["scope"]["project"]["name"], "t");
        let key =
            [("OS_APPLICATION_CREDENTIAL_ID", "i"), ("OS_APPLICATION_CREDENTIAL_SECRET", "s")];
        let (_, body) = asked(&[&[at], &key[..]].concat()).unwrap();
        assert_eq!(body["auth"]["identity"]["methods"][0], "application_credential");
        assert!(body["auth"]["scope"].is_null(), "it has its own project");
        for missing in ["OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"] {
            let all = [&[at], &user[..]].concat();
            let rest: Vec<_> = all.into_iter().filter(|(name, _)| *name != missing).collect();
            let why = asked(&rest).unwrap_err();
            assert!(why.contains(missing), "{why}");
        }
    }

    #[test]
    fn services_are_found_by_kind_region_and_interface() {
        let endpoint = |region: &str, interface: &str| {
            let url = format!("https://{region}.{interface}/v2.1/");
            json!({ "region": region, "interface": interface, "url": url })
        };
        let all = [endpoint("a", "internal"), endpoint("a", "public"), endpoint("b", "public")];
        let value = json!({ "token": { "catalog": [{ "type": "compute", "endpoints": all }] } });
        let found = |region| service(&value, "compute", region, "public");
        assert_eq!(found(None).unwrap(), "https://a.public/v2.1");
        assert_eq!(found(Some("b")).unwrap(), "https://b.public/v2.1");
        assert_eq!(found(Some("c")), None);
        assert_eq!(regions(&value, "compute"), ["a", "b"]);
        assert!(regions(&value, "network").is_empty());
        assert_eq!(service(&value, "network", None, "public"), None);
    }
}
