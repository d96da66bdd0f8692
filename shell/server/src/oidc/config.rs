//! The file of a provider (`warren serve --oidc FILE`, TOML).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use serde::Deserialize;

use super::fetch::Endpoint;
use crate::roles::Role;

/// A provider, as an administrator describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// What people call it.
    #[serde(default = "name")]
    pub(super) name: String,
    /// Its address, word by word as it says it itself.
    pub(super) issuer: String,
    /// What it calls this server.
    pub(super) client_id: String,
    /// A file with the secret that it gave, if it gave one.
    #[serde(default)]
    client_secret_file: Option<PathBuf>,
    #[serde(skip)]
    secret: Option<Hidden>,
    /// What is asked for.
    #[serde(default = "scopes")]
    pub(super) scopes: Vec<String>,
    /// The claim that becomes a user's name.
    #[serde(default = "user_claim")]
    pub(super) user_claim: String,
    /// The claim that has groups; "" for none.
    #[serde(default = "groups_claim")]
    pub(super) groups_claim: String,
    /// What stands before a group's name in a policy, behind `group:`.
    #[serde(default)]
    pub(super) groups_prefix: String,
    /// Names for groups that have none in a policy, such as identifiers.
    #[serde(default)]
    pub(super) groups_names: BTreeMap<String, String>,
    /// What members of a group may do, by the group as the provider calls it; with any of these
    /// the provider says the role of all whom it knows.
    #[serde(default)]
    pub(super) roles: BTreeMap<String, Role>,
    /// Only who is in one of these, as the provider calls them; all if there are none.
    #[serde(default)]
    pub(super) allow_groups: Vec<String>,
    /// How often groups are asked for again.
    #[serde(default = "refresh_minutes")]
    pub(super) refresh_minutes: u64,
    /// Whom to trust beside its certificate, instead of what this machine trusts.
    #[serde(default)]
    pub(super) ca_file: Option<PathBuf>,
}

/// A secret, which is printed nowhere.
#[derive(Clone)]
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(…)")
    }
}

fn name() -> String {
    "single sign-on".to_owned()
}

fn scopes() -> Vec<String> {
    ["openid", "profile", "email", "offline_access"].map(str::to_owned).to_vec()
}

fn user_claim() -> String {
    "preferred_username".to_owned()
}

fn groups_claim() -> String {
    "groups".to_owned()
}

const fn refresh_minutes() -> u64 {
    5
}

impl Provider {
    /// Reads the file, and the secret that it names.
    ///
    /// # Errors
    /// What cannot be read, where, and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|why| format!("{shown}: {why}"))?;
        let mut provider: Self = toml::from_str(&text).map_err(|why| format!("{shown}: {why}"))?;
        Endpoint::parse(&provider.issuer).map_err(|why| format!("{shown}: issuer: {why}"))?;
        if !provider.scopes.iter().any(|scope| scope == "openid") {
            return Err(format!("{shown}: scopes: openid is missing"));
        }
        if let Some(file) = &provider.client_secret_file {
            let secret = fs::read_to_string(file)
                .map_err(|why| format!("{shown}: client_secret_file {}: {why}", file.display()))?;
            provider.secret = Some(Hidden(secret.trim().to_owned()));
        }
        Ok(provider)
    }

    pub(super) fn secret(&self) -> Option<&str> {
        self.secret.as_ref().map(|secret| secret.0.as_str())
    }
}
