//! Hands what libFuzzer invents to `fuzz::mdns`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::mdns(data));
