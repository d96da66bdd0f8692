//! repair
#![forbid(unsafe_code)]

pub mod code;
mod field;
mod kernel;
pub mod model;
pub mod observe;
mod recent;
pub mod report;
