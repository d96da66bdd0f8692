//! Hands what libFuzzer invents to `fuzz::wireguard`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::wireguard(data));
