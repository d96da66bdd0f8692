//! The weather that decides: what a path does to chunks, and what is spent against it.
//!
//! At the receiver [`observe`] makes a [`wire::frame::Report`], with `levels` and `recent` for what
//! holds of nine in ten and of the last seconds. At the sender [`estimate`] fits the chain of
//! [`model`] to reports, and tells an accident by their last `spells`. [`control`] decides from it,
//! within [`limits`], and fills its [`table`]; on a line that is full, by what brings most
//! (`full`). [`spread`] does what was decided: it deals chunks to blocks, and asks [`crate::code`]
//! for repair.

pub mod control;
pub mod estimate;
mod full;
mod levels;
pub mod limits;
pub mod model;
pub mod observe;
mod recent;
mod spells;
pub mod spread;
pub mod table;
#[cfg(test)]
pub(crate) mod tests;
