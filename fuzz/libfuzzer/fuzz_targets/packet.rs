//! Hands what libFuzzer invents to `fuzz::packet`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::packet(data));
