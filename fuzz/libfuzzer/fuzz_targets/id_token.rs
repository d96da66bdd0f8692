//! Hands what libFuzzer invents to `fuzz::id_token`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::id_token(data));
