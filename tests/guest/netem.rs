//! Netem.
