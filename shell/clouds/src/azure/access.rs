//! Who we are at Azure: a token of its directory, found where Azure's own tools look, in their
//! order.
//!
//! 1. The environment: `AZURE_CLIENT_ID`, `AZURE_TENANT_ID` and `AZURE_CLIENT_SECRET`, or
//!    `AZURE_FEDERATED_TOKEN_FILE` in place of the secret.
//! 2. The machine's identity, asked of its metadata service.
//! 3. A login of `az`, which that program hands over.
//!
//! The subscription is `AZURE_SUBSCRIPTION_ID`, or that of the machine or the login. Nothing is
//! kept.

use std::process::{Command, Stdio};
use std::time::Duration;

use dial::http::Connection;
use serde_json::Value;

use crate::rest::{Body, Call, Rest, escaped};
use crate::retry::{Failure, now_s};

/// A process's environment, as a value.
pub(super) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// The metadata service of machines: link-local, so it is asked without TLS.
const METADATA: &str = "http://169.254.169.254";
/// It is on the same host; where it is not, this is no machine of Azure.
const METADATA_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of one of its answers.
const BYTES_MAX: usize = 64 * 1024;
/// Who gives tokens, unless `AZURE_AUTHORITY_HOST` says otherwise.
const AUTHORITY: &str = "https://login.microsoftonline.com";
/// A token is not used so shortly before its end.
const RESERVE_S: u64 = 120;

/// A conversation with Azure.
pub(super) struct Access {
    pub(super) token: String,
    pub(super) subscription: String,
    until_s: u64,
}

/// What the directory is asked: its address, and a form; nothing if the environment says nothing.
///
/// # Errors
/// Which variables are missing.
pub(super) fn question(
    environment: Environment<'_>,
    audience: &str,
) -> Result<Option<(String, String)>, String> {
    let get = |name: &str| environment(name).filter(|text| !text.is_empty());
    let secret = get("AZURE_CLIENT_SECRET");
    let federated = get("AZURE_FEDERATED_TOKEN_FILE");
    if secret.is_none() && federated.is_none() {
        return Ok(None);
    }
    let need = |name: &str| {
        get(name).ok_or_else(|| {
            format!(
                "credentials of azure: {name} is not set; AZURE_TENANT_ID, AZURE_CLIENT_ID and \
                 AZURE_CLIENT_SECRET are set together"
            )
        })
    };
    let tenant = need("AZURE_TENANT_ID")?;
    let client = need("AZURE_CLIENT_ID")?;
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    if !is_word(&tenant) {
        return Err("credentials of azure: AZURE_TENANT_ID is no tenant".to_owned());
    }
    let authority = get("AZURE_AUTHORITY_HOST").unwrap_or_else(|| AUTHORITY.to_owned());
    let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
    let scope = escaped(&format!("{audience}/.default"));
    let client = escaped(&client);
    let mut form = format!("grant_type=client_credentials&client_id={client}&scope={scope}");
    match (secret, federated) {
        (Some(secret), _) => form += &format!("&client_secret={}", escaped(&secret)),
        (None, file) => {
            let file = file.unwrap_or_default();
            let proof = std::fs::read_to_string(&file)
                .map_err(|why| format!("credentials of azure: {file}: {why}"))?;
            form += "&client_assertion_type=\
                     urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
            form += &format!("&client_assertion={}", escaped(proof.trim()));
        }
    }
    Ok(Some((url, form)))
}

impl Access {
    /// Logs in for calls of `audience`, the API's address.
    ///
    /// # Errors
    /// Where was looked, and what is wrong there.
    pub(super) fn open(
        rest: &mut Rest,
        environment: Environment<'_>,
        audience: &str,
    ) -> Result<Self, Failure> {
        let told = |why: String| Failure::new("NoCredentials", why);
        let named = environment("AZURE_SUBSCRIPTION_ID").filter(|text| !text.is_empty());
        let mut access = match question(environment, audience).map_err(told)? {
            Some((url, form)) => {
                let body = Body::Form(&form);
                let call = Call { method: "POST", url: &url, fields: &[], body };
                let reply = rest.call(&call).map_err(wrong)?;
                Self::read(&reply.value, None)?
            }
            None => match of_machine(environment, audience) {
                Ok(access) => access,
                Err(why) => of_tool(audience).map_err(|tool| {
                    told(format!(
                        "credentials of azure: there are none: neither AZURE_CLIENT_SECRET, nor \
                         a machine's identity ({why}), nor a login of az ({tool})"
                    ))
                })?,
            },
        };
        if let Some(named) = named {
            access.subscription = named;
        }
        access.checked("AZURE_SUBSCRIPTION_ID is not set to one")
    }

    /// Logs in as this machine and as nobody else.
    ///
    /// # Errors
    /// That it has no identity, or says of no subscription that it is its own.
    pub(super) fn of_machine(audience: &str) -> Result<Self, Failure> {
        let access = of_machine(&|_| None, audience).map_err(|why| {
            let what = format!("credentials of azure: the machine has no identity: {why}");
            Failure::new("NoCredentials", what)
        });
        access?.checked("the machine does not say to which subscription it belongs")
    }

    /// The same, if its subscription is a word; else `why`.
    fn checked(self, why: &str) -> Result<Self, Failure> {
        let is_word = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if self.subscription.is_empty() || !is_word(&self.subscription) {
            return Err(Failure::new("NoCredentials", format!("credentials of azure: {why}")));
        }
        Ok(self)
    }

    /// Whether its token is good for a call.
    pub(super) fn is_good(&self) -> bool {
        now_s() < self.until_s
    }

    /// An answer with a token in it: the directory's, the metadata service's, or `az`'s.
    fn read(value: &Value, subscription: Option<&str>) -> Result<Self, Failure> {
        let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty());
        let Some(token) = text("access_token").or_else(|| text("accessToken")) else {
            return Err(Failure::new("NoCredentials", "credentials of azure: no token came"));
        };
        let left = &value["expires_in"];
        let left_s = left.as_u64().or_else(|| left.as_str()?.parse().ok()).unwrap_or(300);
        let own = text("subscription").unwrap_or_default();
        Ok(Self {
            token: token.to_owned(),
            subscription: subscription.unwrap_or(own).to_owned(),
            until_s: now_s() + left_s.saturating_sub(RESERVE_S),
        })
    }
}

fn wrong(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "400" | "401" => {
            let what = format!("{}; tenant, client or secret is wrong", failure.what);
            Failure { what, ..failure }
        }
        _ => failure,
    }
}

/// The token of this machine's own identity.
fn of_machine(environment: Environment<'_>, audience: &str) -> Result<Access, String> {
    let at = environment("AZURE_POD_IDENTITY_AUTHORITY_HOST");
    let at = at.filter(|text| !text.is_empty()).unwrap_or_else(|| METADATA.to_owned());
    let rest = at.strip_prefix("http://").ok_or_else(|| format!("{at:?} is no http://HOST"))?;
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| format!("{at:?} has no port"))?),
        None => (rest, 80),
    };
    let ask = |path: &str| -> Result<Value, String> {
        let told = |why: std::io::Error| format!("{at}: {why}");
        let mut connection = Connection::open_plain(host, port, METADATA_WITHIN).map_err(told)?;
        let fields = [("Metadata", "true")];
        let answer = connection.request(("GET", path), &fields, b"", BYTES_MAX, METADATA_WITHIN);
        let answer = answer.map_err(told)?;
        match answer.status {
            200 => Ok(serde_json::from_slice(&answer.body).unwrap_or_default()),
            status => Err(format!("{at}: it answers {status}; has the machine an identity?")),
        }
    };
    let resource = escaped(&format!("{audience}/"));
    let mut path =
        format!("/metadata/identity/oauth2/token?api-version=2018-02-01&resource={resource}");
    if let Some(client) = environment("AZURE_CLIENT_ID").filter(|text| !text.is_empty()) {
        path += &format!("&client_id={}", escaped(&client));
    }
    let token = ask(&path)?;
    let own = ask("/metadata/instance/compute?api-version=2021-02-01").unwrap_or_default();
    Access::read(&token, own["subscriptionId"].as_str()).map_err(|failure| failure.what)
}

/// The token that `az` has.
fn of_tool(audience: &str) -> Result<Access, String> {
    let mut command = Command::new("az");
    command.args(["account", "get-access-token", "--output", "json", "--resource", audience]);
    let out = command.stdin(Stdio::null()).output().map_err(|why| format!("az: {why}"))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        let first = why.lines().next().unwrap_or_default();
        let plain = first.chars().filter(|c| !c.is_control()).take(200);
        return Err(format!("az: {}", plain.collect::<String>()));
    }
    let value = serde_json::from_slice(&out.stdout).unwrap_or_default();
    Access::read(&value, None).map_err(|failure| failure.what)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tests::answering;

    const API: &str = "https://management.azure.com";

    fn asked(list: &[(&str, &str)]) -> Result<Option<(String, String)>, String> {
        let all: BTreeMap<&str, &str> = list.iter().copied().collect();
        question(&|name| all.get(name).map(|text| (*text).to_owned()), API)
    }

    #[test]
    fn the_directory_is_asked_as_azures_own_tools_do() {
        let all = [
            ("AZURE_TENANT_ID", "t-1"),
            ("AZURE_CLIENT_ID", "c 1"),
            ("AZURE_CLIENT_SECRET", "s&=é"),
        ];
        let (url, form) = asked(&all).unwrap().unwrap();
        assert_eq!(url, "https://login.microsoftonline.com/t-1/oauth2/v2.0/token");
        assert_eq!(
            form,
            "grant_type=client_credentials&client_id=c+1&scope=\
             https%3A%2F%2Fmanagement.azure.com%2F.default&client_secret=s%26%3D%C3%A9"
        );
        assert_eq!(asked(&all[..2]).unwrap(), None, "without a secret others are looked for");
        assert!(asked(&all[1..]).unwrap_err().contains("AZURE_TENANT_ID is not set"));
        let tenant = [("AZURE_TENANT_ID", "a/../b"), all[1], all[2]];
        assert!(asked(&tenant).unwrap_err().contains("is no tenant"));
        let file = std::env::temp_dir().join(format!("warren-azure-{}", std::process::id()));
        std::fs::write(&file, "proof\n").unwrap();
        let path = file.display().to_string();
        let (_, form) =
            asked(&[all[0], all[1], ("AZURE_FEDERATED_TOKEN_FILE", &path)]).unwrap().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(form.ends_with("&client_assertion=proof"), "{form}");
    }

    #[test]
    fn a_machines_identity_is_asked_of_its_metadata_service() {
        let (at, serving) = answering(&[
            "{\"access_token\": \"T\", \"expires_in\": \"3600\"}",
            "{\"subscriptionId\": \"s-1\"}",
        ]);
        let environment =
            |name: &str| (name == "AZURE_POD_IDENTITY_AUTHORITY_HOST").then(|| at.clone());
        let access = of_machine(&environment, API).unwrap();
        assert_eq!([access.token.as_str(), access.subscription.as_str()], ["T", "s-1"]);
        assert!(access.is_good());
        for head in serving.join().unwrap() {
            assert!(head.contains("Metadata: true"), "{head}");
        }
    }
}
