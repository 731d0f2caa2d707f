#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mopqdb_tests::hostile::words(bytes));
