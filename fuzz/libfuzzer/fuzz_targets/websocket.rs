//! Hands what libFuzzer invents to `fuzz::websocket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::websocket(data));
