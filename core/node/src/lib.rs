//! To be written.

pub mod config;
pub use config::*;
