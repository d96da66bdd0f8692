//! The code that repairs: chunks in, chunks out, and nothing believed of any path.
//!
//! [`erasure`] makes repair chunks and rebuilds from them, over the field of `field` and with the
//! loop of `kernel`. [`block`] does that for chunks of different lengths, at both ends, and keeps
//! in `store` what a block may still need. [`order`] puts the pieces of a flow in their order.
//! Both are bounded by [`budget`], and find by age what has waited too long ([`aged`]).

pub mod aged;
pub mod block;
pub mod budget;
pub mod erasure;
mod field;
mod kernel;
pub mod order;
mod store;

pub use crate::bounds::{CHUNK_LEN_MAX, DATA_MAX, REPAIR_MAX};
pub use erasure::{Refused, encode, rebuild};
