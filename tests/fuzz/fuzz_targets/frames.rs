//! Interprets bytes as the frames of a segment.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| norn_tests::fuzz::frames(bytes));
