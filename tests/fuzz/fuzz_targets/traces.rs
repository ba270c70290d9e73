//! Trace files of any content, in either form.

#![no_main]

use tickwire::internals::traces::read::Reading;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = Reading::of(data);
});
