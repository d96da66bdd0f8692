//! Whose requests they are: found where AWS's own tools look, in their order. Nothing is kept.
//!
//! 1. The environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`.
//! 2. The profile `AWS_PROFILE`, or `default`, of `~/.aws/credentials` and `~/.aws/config`, or of
//!    the files that `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name.
//! 3. The instance's role, asked of its metadata service (IMDSv2).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use dial::http::Connection;
use serde_json::Value;

/// What errors call the place.
const PLACE: &str = "credentials of aws";
/// The metadata service of instances: link-local, so it is asked without TLS.
pub(crate) const METADATA: &str = "http://169.254.169.254";
/// It is on the same host; where it is not, there is no instance.
const WITHIN: Duration = Duration::from_secs(2);
/// Bytes of one of its answers, and of a file.
const BYTES_MAX: usize = 64 * 1024;
/// Seconds for which its word for a conversation is good.
const SESSION_S: &str = "300";

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    /// Of keys that end by themselves.
    pub(crate) session: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.id)
    }
}

/// A process's environment, as a value.
pub(crate) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// The keys to sign with.
///
/// # Errors
/// Where was looked, and what is wrong there.
pub(crate) fn find(environment: Environment<'_>) -> Result<Keys, String> {
    if let Some(keys) = of_environment(environment)? {
        return Ok(keys);
    }
    if let Some(keys) = of_files(environment)? {
        return Ok(keys);
    }
    if environment("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text == "true") {
        return Err(none("the metadata service is switched off"));
    }
    let at = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    of_instance(at.as_deref().unwrap_or(METADATA)).map_err(|why| none(&why))
}

fn none(why: &str) -> String {
    format!(
        "{PLACE}: there are none: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor a \
         profile in ~/.aws, nor an instance role ({why}); log in as for AWS's own tools"
    )
}

fn of_environment(environment: Environment<'_>) -> Result<Option<Keys>, String> {
    let get = |name| environment(name).filter(|text| !text.is_empty());
    match (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => {
            Ok(Some(Keys { id, secret, session: get("AWS_SESSION_TOKEN") }))
        }
        (None, None) => Ok(None),
        _ => Err(format!("{PLACE}: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set together")),
    }
}

fn of_files(environment: Environment<'_>) -> Result<Option<Keys>, String> {
    let home = environment("HOME").map(PathBuf::from).unwrap_or_default();
    let named = environment("AWS_PROFILE").filter(|text| !text.is_empty());
    let profile = named.clone().unwrap_or_else(|| "default".to_owned());
    let in_config = match profile.as_str() {
        "default" => profile.clone(),
        other => format!("profile {other}"),
    };
    let mut found = BTreeMap::new();
    for (name, usual, section) in [
        ("AWS_CONFIG_FILE", ".aws/config", &in_config),
        ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &profile),
    ] {
        let path = environment(name).map_or_else(|| home.join(usual), PathBuf::from);
        let is_small = std::fs::metadata(&path).is_ok_and(|file| file.len() <= BYTES_MAX as u64);
        if is_small && let Ok(text) = std::fs::read_to_string(&path) {
            found.extend(section_of(&text, section));
        }
    }
    let get = |key: &str| found.get(key).cloned();
    match (get("aws_access_key_id"), get("aws_secret_access_key")) {
        (Some(id), Some(secret)) => {
            Ok(Some(Keys { id, secret, session: get("aws_session_token") }))
        }
        _ if found.keys().any(|key| key.starts_with("sso_") || key == "credential_process") => {
            Err(format!(
                "{PLACE}: the profile {profile} logs in by a program; run `aws configure \
                 export-credentials --format env` and set what it prints"
            ))
        }
        _ if named.is_some() => Err(format!("{PLACE}: the profile {profile} has no access key")),
        _ => Ok(None),
    }
}

/// The keys and values of one section of an INI file.
fn section_of(text: &str, section: &str) -> BTreeMap<String, String> {
    let mut is_in = false;
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_in = name.trim() == section;
        } else if is_in && let Some((key, value)) = line.split_once('=') {
            found.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

/// The keys of an instance's role, asked as IMDSv2 wants it: a word for the conversation first.
pub(crate) fn of_instance(endpoint: &str) -> Result<Keys, String> {
    let (host, port) = place(endpoint).ok_or_else(|| format!("{endpoint:?} is no http://HOST"))?;
    let told = |why: std::io::Error| format!("{endpoint}: {why}");
    let mut connection = Connection::open_plain(&host, port, WITHIN).map_err(told)?;
    let mut ask = |method: &str, path: &str, field: (&str, &str)| -> Result<String, String> {
        if !connection.is_usable() {
            connection = Connection::open_plain(&host, port, WITHIN).map_err(told)?;
        }
        let answer = connection.request((method, path), &[field], b"", BYTES_MAX, WITHIN);
        let answer = answer.map_err(told)?;
        match answer.status {
            200 => Ok(String::from_utf8_lossy(&answer.body).trim().to_owned()),
            404 => Err("the instance has no role".to_owned()),
            status => Err(format!("{endpoint}: it answers {status}")),
        }
    };
    let word = ("X-aws-ec2-metadata-token-ttl-seconds", SESSION_S);
    let session = ask("PUT", "/latest/api/token", word)?;
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    if !is_plain(&session) {
        return Err(format!("{endpoint}: its word for a conversation is none"));
    }
    let session = ("X-aws-ec2-metadata-token", session.as_str());
    let base = "/latest/meta-data/iam/security-credentials/";
    let roles = ask("GET", base, session)?;
    let role = roles.lines().next().filter(|role| is_plain(role));
    let role = role.ok_or_else(|| "the instance has no role".to_owned())?;
    let answer = ask("GET", &format!("{base}{role}"), session)?;
    let value: Value = serde_json::from_str(&answer).unwrap_or_default();
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    match (text("AccessKeyId"), text("SecretAccessKey")) {
        (Some(id), Some(secret)) => Ok(Keys { id, secret, session: text("Token") }),
        _ => Err(format!("{endpoint}: the role {role} has no keys")),
    }
}

/// Host and port of `http://HOST[:PORT]`.
fn place(endpoint: &str) -> Option<(String, u16)> {
    let rest = endpoint.strip_prefix("http://")?.trim_end_matches('/');
    match rest.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => Some((host.to_owned(), port.parse().ok()?)),
        _ => Some((rest.to_owned(), 80)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::answering;

    fn found(list: &[(&str, &str)]) -> Result<Keys, String> {
        let all: BTreeMap<&str, &str> = list.iter().copied().collect();
        find(&|name| all.get(name).map(|text| (*text).to_owned()))
    }

    const OFF: (&str, &str) = ("AWS_EC2_METADATA_DISABLED", "true");

    #[test]
    fn credentials_are_looked_for_where_the_providers_tools_look() {
        let folder = std::env::temp_dir().join(format!("warren-aws-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(".aws")).unwrap();
        std::fs::write(
            folder.join(".aws/credentials"),
            "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=S\n\
             [other]\naws_access_key_id = B\naws_secret_access_key = T\naws_session_token = U\n",
        )
        .unwrap();
        std::fs::write(
            folder.join(".aws/config"),
            "[profile desk]\nsso_session = x\n[profile bare]\nregion = r\n",
        )
        .unwrap();
        let home = folder.display().to_string();
        let home = ("HOME", home.as_str());
        let env = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "F")];
        assert_eq!(found(&[home, env[0], env[1]]).unwrap().id, "E", "the environment is first");
        assert!(found(&[home, env[0]]).unwrap_err().contains("set together"));
        assert_eq!(found(&[home]).unwrap().secret, "S");
        let other = found(&[home, ("AWS_PROFILE", "other")]).unwrap();
        assert_eq!((other.id.as_str(), other.session.as_deref()), ("B", Some("U")));
        let desk = found(&[home, ("AWS_PROFILE", "desk")]).unwrap_err();
        assert!(desk.contains("export-credentials"), "{desk}");
        let bare = found(&[home, ("AWS_PROFILE", "bare"), OFF]).unwrap_err();
        assert!(bare.contains("bare has no access key"), "{bare}");
        let nowhere = found(&[("HOME", "/nowhere"), OFF]).unwrap_err();
        assert!(nowhere.contains("there are none"), "{nowhere}");
        // A secret never gets into a log.
        assert!(!format!("{other:?}").contains('T'));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_instance_is_asked_by_a_conversation_of_its_own() {
        let (at, serving) = answering(&[
            "word",
            "gateways",
            "{\"AccessKeyId\": \"I\", \"SecretAccessKey\": \"S\", \"Token\": \"T\"}",
        ]);
        let keys = of_instance(&at).unwrap();
        assert_eq!((keys.id.as_str(), keys.session.as_deref()), ("I", Some("T")));
        let asked = serving.join().unwrap();
        assert!(asked[0].starts_with("PUT /latest/api/token"), "{asked:?}");
        assert!(asked[1].contains("X-aws-ec2-metadata-token: word"), "{asked:?}");
        assert!(asked[2].starts_with("GET /latest/meta-data/iam/security-credentials/gateways"));
    }
}
