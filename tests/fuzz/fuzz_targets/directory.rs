//! Interprets bytes as the files of a log.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| norn_tests::fuzz::directory(bytes));
