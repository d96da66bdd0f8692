//! repair
#![forbid(unsafe_code)]

pub mod block;
pub mod code;
pub mod control;
pub mod estimate;
mod field;
mod kernel;
pub mod model;
pub mod observe;
pub mod order;
mod recent;
pub mod report;
pub mod sparse;
mod store;
