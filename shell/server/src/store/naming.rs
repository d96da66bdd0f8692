//! What nodes may be called.

use control::limits::LABEL_LEN_MAX;
use control::name;

use super::{StoreError, Stored};

/// Whether somebody may call a node so.
pub(super) fn check_name(name: &str) -> Stored<()> {
    if name::is_number(name) {
        return Err(StoreError::Invalid(format!(
            "{name:?} is a number, which nodes have too; a name has a letter in it"
        )));
    }
    if !name::is_label(name) {
        return Err(StoreError::Invalid(format!(
            "{name:?} is no name for a node; one is 1 to {LABEL_LEN_MAX} lower-case letters, \
             digits and hyphens"
        )));
    }
    Ok(())
}
