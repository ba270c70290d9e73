//! Keys of exposed memory of any content. See [`tickwire_tests::keys`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tickwire_tests::keys::keys(data);
});
