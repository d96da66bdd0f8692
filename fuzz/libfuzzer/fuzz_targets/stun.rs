//! Hands what libFuzzer invents to `fuzz::stun`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::stun(data));
