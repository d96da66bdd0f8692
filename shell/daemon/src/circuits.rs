//! Circuits, as the rest of the daemon knows them: the words in which they are asked for, and the
//! routes by which a node says what it is to them. What a member does with both is its own
//! (`member::circuits`).

mod asked;
mod offered;

pub(crate) use asked::check_place;
pub use asked::{CircuitAsk, DirectoryAt, Wanted};
pub(crate) use offered::{EXIT, HOP, has, is_exit, is_offer, name_server};
