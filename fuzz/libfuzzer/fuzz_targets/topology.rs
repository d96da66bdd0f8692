//! Hands what libFuzzer invents to `fuzz::topology`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::topology(data));
