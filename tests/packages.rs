//! The published packages, and the licences and sources of their dependencies.

use std::process::Command;

/// Licences that only require that their text is passed on.
const LICENCES: [&str; 9] =
    ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "OFL-1.1", "Ubuntu-font-1.0", "Unicode-3.0", "Zlib"];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// All packages that are built on this platform, according to cargo.
fn packages() -> Vec<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", &platform]);
    let output = metadata.current_dir(super::book::root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    all["packages"].as_array_mut().unwrap().drain(..).collect()
}

/// Whether a licence expression such as `(MIT OR Zlib) AND OFL-1.1` can be met by allowed licences.
fn is_allowed(licence: &str) -> bool {
    licence.split(" AND ").all(|part| {
        let choices = part.trim_matches(['(', ')']).replace('/', " OR ");
        choices.split(" OR ").any(|choice| LICENCES.contains(&choice))
    })
}

#[test]
fn all_dependencies_have_licences_that_may_be_combined_and_are_of_the_registry() {
    assert!(is_allowed("MIT/GPL-3.0") && is_allowed("(GPL-3.0 OR MIT) AND OFL-1.1"));
    assert!(!is_allowed("GPL-3.0") && !is_allowed("MIT AND GPL-3.0") && !is_allowed(""));
    let packages = packages();
    assert!(packages.len() > 100);
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        assert!(is_allowed(licence), "{name}: {licence}");
        let source = &package["source"];
        assert!(source.is_null() || source == REGISTRY, "{name}: {source}");
    }
}

#[test]
fn what_is_published_says_what_the_registry_asks_for() {
    let packages = packages();
    let own: Vec<_> = packages.iter().filter(|package| package["source"].is_null()).collect();
    let published: Vec<_> = own.iter().filter(|package| package["publish"].is_null()).collect();
    assert_eq!((own.len(), published.len()), (10, 8), "all but the tests");
    for package in published {
        let name = package["name"].as_str().unwrap();
        assert!(name == "tickwire" || name.starts_with("tickwire-"), "{name}: others may have this name");
        for field in ["description", "license", "repository", "rust_version"] {
            assert!(package[field].is_string(), "{name}: {field}");
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_for_tests = dependency["kind"] == "dev";
            assert!(is_for_tests || dependency["req"] != "*", "{name}: {} has no version", dependency["name"]);
        }
    }
}
