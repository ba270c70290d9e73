//! What must not compile, and what the compiler says of it. `TRYBUILD=overwrite` writes the expected messages anew.

use std::process::Command;

/// The compiler whose messages are expected: others word them otherwise. That the most important ones are refused at all,
/// whatever the words, is in `compile_fail` examples of the documentation.
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
    trybuild::TestCases::new().compile_fail("refused/*.rs");
}
