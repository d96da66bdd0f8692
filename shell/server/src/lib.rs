//! x
pub mod keys;
pub mod store;
