//! What a client is started with, what it asks, and what it tells.

use core::time::Duration;

use noise::{PrivateKey, PublicKey};

use super::Changed;
use crate::{
    BadMap, Enrolled, HostInfo, Refusal, Secret, SecretId, ServerUrl, SignInLink, VerifyingKey,
};

/// What a client starts from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the server is, the preferred first; at least one.
    pub urls: Vec<ServerUrl>,
    /// The server's public key, from the token.
    pub server: PublicKey,
    /// This machine's key, which the channel proves.
    pub machine: PrivateKey,
    /// The WireGuard public key that peers are told.
    pub node_key: PublicKey,
    /// The one that is to follow it, if a rotation had begun before: the server may know it
    /// already.
    pub next_key: Option<PublicKey>,
    /// The join key, if the node has yet to join.
    pub join: Option<(SecretId, Secret)>,
    /// The node has yet to join, by somebody who signs in in a browser.
    pub signs_in: bool,
    /// What maps are signed with, if a channel was open before.
    pub verifying: Option<VerifyingKey>,
    /// What the node says of itself.
    pub host: HostInfo,
}

/// Names one ask until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AskId(pub(super) u64);

/// Asks on different lanes run at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Waits for news, most of the time.
    Poll,
    /// Everything else.
    Command,
}

/// A POST to make: `body` to `path` at `url`, with an answer `within` this time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Its name.
    pub id: AskId,
    /// Its lane.
    pub lane: Lane,
    /// Where.
    pub url: ServerUrl,
    /// Where there.
    pub path: &'static str,
    /// What.
    pub body: Vec<u8>,
    /// When to give up.
    pub within: Duration,
}

/// What became of an ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Status 200 with this body. It may come from anybody; the channel tells.
    Answered(Vec<u8>),
    /// Status 410: whoever answered knows no such channel, or has seen the number.
    NoChannel,
    /// Status 400: a server of ours, perhaps, but not the one that the message was made for.
    NotUnderstood,
    /// Any other status, or no answer.
    Failed,
}

/// What its owner should know or do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The server holds the key that the token pins, and its clock says this.
    Opened {
        /// Unix seconds.
        now_unix_s: u64,
    },
    /// The server answers what it is asked, as it did not before or since the latest trouble.
    InTouch,
    /// The node is in the books. From now on it needs no join key.
    Enrolled(Enrolled),
    /// Somebody has to sign in there before the node is in.
    SignIn(SignInLink),
    /// The map changed; [`cached`](super::Client::cached) should be stored.
    Changed(Changed),
    /// The WireGuard key is the new one now.
    Rotated(PublicKey),
    /// Something failed and will be tried again.
    Trouble(Trouble),
    /// The server refused for good, and nothing is asked any more.
    Ended(Refusal),
    /// The node has left, as it was told to.
    LoggedOut,
    /// The server knows that the node ends; it may have left by that.
    Stopped {
        /// It is in the books no more.
        has_left: bool,
    },
}

/// What failed and will be tried again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// No answer, or one of somebody in between.
    Unreachable,
    /// Somebody answered who does not hold the server's key.
    NotTheServer,
    /// The server holds the key but signs with another than before.
    OtherSigner,
    /// The server cannot do it now.
    Refused(Refusal),
    /// The map cannot be used.
    Map(BadMap),
}

/// Why a client wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The pause after a failure is over.
    Retry,
    /// Two polls are far enough apart.
    Poll,
    /// There is something to ask already.
    Pending,
}
