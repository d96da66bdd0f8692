//! Hands what libFuzzer invents to `fuzz::translate`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::translate(data));
