//! Programs that must not compile, and the compiler's messages about them. `TRYBUILD=overwrite` writes the expected
//! messages anew.

use std::process::Command;

/// The compiler version of the expected messages. Other versions use other words. The `compile_fail` examples of the
/// documentation test, with any version, that the most important programs are refused at all.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn what_must_not_compile_says_why() {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output().expect("a compiler has built this test");
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.starts_with(COMPILER) {
        println!("skipped: the messages are those of {COMPILER}x, this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("programs/*.rs");
}
