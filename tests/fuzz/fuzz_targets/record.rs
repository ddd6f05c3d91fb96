//! Interprets bytes as the body of a record.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| norn_tests::fuzz::record(bytes));
