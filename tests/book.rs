//! README.md and the book under `docs/`: their size, links, chapters and examples.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Largest size of README.md, bytes.
const README_MAX: usize = 8192;
/// The start of links to files outside the book.
const FILES: &str = "https://github.com/tickwire/tickwire/blob/main/";

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The names of the book's files, except its table of contents.
fn chapters() -> Vec<String> {
    let names = root().join("docs").read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect()
}

/// The lines of a page outside of code blocks.
fn prose(page: &Path) -> Vec<String> {
    let (text, mut code) = (read_to_string(page).unwrap(), false);
    let is_prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    };
    text.lines().filter(is_prose).map(str::to_owned).collect()
}

/// The anchors of a page's headings.
fn anchors(page: &Path) -> Vec<String> {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    let anchor =
        |heading: &str| heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
    let lines = prose(page);
    lines.iter().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// The file of a link in a page, and its anchor. `None` if the link leads to no file of the repository.
fn target<'a>(page: &Path, link: &'a str) -> Option<(PathBuf, Option<&'a str>)> {
    let (place, anchor) = link.split_once('#').map_or((link, None), |(place, anchor)| (place, Some(anchor)));
    let path = match place.strip_prefix(FILES) {
        Some(path) => root().join(path),
        None if place.contains("://") => return None,
        None if place.is_empty() => page.to_owned(),
        None => page.parent().unwrap().join(place),
    };
    Some((path, anchor))
}

#[test]
fn the_readme_is_short() {
    let bytes = read_to_string(root().join("README.md")).unwrap().len();
    assert!(bytes <= README_MAX, "README.md has {bytes} bytes: {README_MAX} at most, the rest belongs into a chapter");
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading() {
    let pages = chapters().into_iter().chain(["SUMMARY.md".to_owned()]).map(|name| root().join("docs").join(name));
    let mut checked = 0;
    for page in pages.chain([root().join("README.md")]) {
        let text = prose(&page).join("\n");
        let links = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        for (link, (path, anchor)) in links.filter_map(|link| Some((link, target(&page, link)?))) {
            assert!(path.exists(), "{}: {link} leads nowhere", page.display());
            let known = anchor.is_none_or(|anchor| anchors(&path).iter().any(|known| known == anchor));
            assert!(known, "{}: no heading for {link}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} links were found");
}

#[test]
fn every_chapter_is_in_the_contents_and_its_examples_are_tests() {
    let contents = read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let library = read_to_string(root().join("engine/lib.rs")).unwrap();
    let chapters = chapters();
    assert!(!chapters.is_empty());
    for name in chapters {
        assert!(contents.contains(&format!("]({name})")), "docs/{name} is not in SUMMARY.md");
        let included = library.contains(&format!("include_str!(\"../docs/{name}\")"));
        assert!(included, "engine/lib.rs does not run the examples of docs/{name}");
    }
}
