//! What launchers and other hosts may say. See [`tickwire_tests::answers`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tickwire_tests::answers::answers(data);
});
