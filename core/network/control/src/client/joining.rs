//! What a client starts from whose machine has yet to join.

use noise::{PrivateKey, PublicKey};

use super::Settings;
use crate::{HostInfo, Token};

impl Token {
    /// What the client of a machine starts from that has yet to join with this token.
    #[must_use]
    pub fn joining(&self, machine: PrivateKey, node_key: PublicKey, host: HostInfo) -> Settings {
        Settings {
            urls: self.urls.clone(),
            server: self.server,
            machine,
            node_key,
            next_key: None,
            join: Some((self.id, self.secret.clone())),
            signs_in: false,
            verifying: None,
            host,
        }
    }
}
