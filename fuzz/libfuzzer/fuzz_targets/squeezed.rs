//! Hands what libFuzzer invents to `fuzz::squeezed`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::squeezed(data));
