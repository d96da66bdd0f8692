//! What is told of a trouble with the server.

use control::client::Trouble;

/// What is told of a trouble with the server.
pub(crate) fn told(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Unreachable => "the server cannot be reached".to_owned(),
        Trouble::NotTheServer => {
            "somebody answers in the server's place who does not hold its key".to_owned()
        }
        Trouble::OtherSigner => {
            "the server signs with another key than before; is it a new one? then `warren \
             logout` and join again"
                .to_owned()
        }
        Trouble::Refused(refusal) => format!("the server cannot do it now: {}", refusal.detail),
        Trouble::Map(bad) => bad.to_string(),
    }
}
