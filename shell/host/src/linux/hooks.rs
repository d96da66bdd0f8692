//! Calls by which a loop tells other threads something. Each runs on the loop's thread and must not
//! block.

use std::fmt;

type OnChange = Box<dyn FnMut() + Send>;
type OnWish = Box<dyn FnMut(u64) + Send>;

/// See the module.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Links, addresses or routes of the machine changed.
    pub(crate) on_change: Option<OnChange>,
    /// A promise of the stamps is to be kept, in seconds since 1970 (see `node::Stamps`).
    pub(crate) on_wish: Option<OnWish>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks(…)")
    }
}
