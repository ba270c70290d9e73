//! Frames of any content that arrive at an engine. See [`tickwire_tests::headers`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tickwire_tests::headers::headers(data);
});
