//! Hands what libFuzzer invents to `fuzz::superpacket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::superpacket(data));
