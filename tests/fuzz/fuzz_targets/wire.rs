//! Interprets bytes as data from a connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| norn_tests::fuzz::wire(bytes));
