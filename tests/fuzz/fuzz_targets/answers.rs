//! Arbitrary texts of launchers and of other hosts. See [`tickwire_tests::answers`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tickwire_tests::answers::answers(data);
});
