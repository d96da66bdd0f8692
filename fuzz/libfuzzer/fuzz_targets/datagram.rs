//! Hands what libFuzzer invents to `fuzz::datagram`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::datagram(data));
