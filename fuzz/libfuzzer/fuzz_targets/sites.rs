//! Hands what libFuzzer invents to `fuzz::sites`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::sites(data));
