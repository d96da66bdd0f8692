//! repair
#![forbid(unsafe_code)]

pub mod code;
mod field;
mod kernel;
