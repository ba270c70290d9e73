//! Mutations are patches of the current sources. `tests/mutations/run` checks that tests catch them, which takes long.

use std::path::Path;

/// The changes of a patch: a file, the lines that it must have, and the lines that replace them.
fn changes(patch: &str) -> Vec<(String, String, String)> {
    let mut changes = Vec::new();
    let mut file = String::new();
    for line in patch.lines() {
        if let Some(path) = line.strip_prefix("--- a/") {
            path.clone_into(&mut file);
        } else if line.starts_with("@@ ") {
            changes.push((file.clone(), String::new(), String::new()));
        } else if let Some((_, before, after)) = changes.last_mut() {
            let (mark, text) = line.split_at_checked(1).unwrap_or((" ", ""));
            if mark != "+" {
                *before += &format!("{text}\n");
            }
            if mark != "-" {
                *after += &format!("{text}\n");
            }
        }
    }
    changes
}

#[test]
fn each_changes_something_that_is_there_and_names_the_test_that_notices() {
    let patches = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutations").read_dir().unwrap();
    let patches =
        patches.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "patch"));
    let mut count = 0;
    for path in patches {
        let patch = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            patch.lines().any(|line| line.starts_with("Caught by: ") && line.contains("cargo test ")),
            "{name} names no test"
        );
        let changes = changes(&patch);
        assert!(!changes.is_empty(), "{name} changes nothing");
        for (file, before, after) in changes {
            assert_ne!(before, after, "{name} changes nothing of {file}");
            let source = std::fs::read_to_string(super::book::root().join(&file)).unwrap_or_default();
            let places = source.matches(&before).count();
            assert_eq!(places, 1, "{name}: {file} must have these lines once, from which the patch begins:\n{before}");
        }
        count += 1;
    }
    assert!(count > 60, "{count} mutations were found");
}
