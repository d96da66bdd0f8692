//! What tests of this crate share, and the published vectors.

pub(crate) mod testing;
mod vectors;
