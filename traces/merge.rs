//! Merges the trace files of the ranks of a job to one file, which Perfetto opens.

use crate::json::Array;
use crate::read::{ReadError, event_of, has_records, lines_of_records, read_line};
use crate::records::PAGE_BYTES;
use crate::records::reader::{at_one_moment, is_left_part};
use serde::de::IgnoredAny;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Counts of what [`merge`] has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// Ranks that have written a file.
    pub files: u32,
    /// Events.
    pub events: u64,
    /// Incomplete events, which were cut by the death of their rank or a full file system. They are left out.
    pub cut: u64,
}

/// The path of a rank's part of a file.
pub fn part(path: &Path, rank: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{rank}"));
    name.into()
}

/// The path of a file while it is being merged. It does not begin with the file's name: a draft that a killed process has left would match
/// `FILE.*`, as the parts do, and would then be read while it is written.
fn draft(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".unfinished");
    path.with_file_name(name)
}

/// Ranks of a job at most, as far as their parts are looked for.
const RANKS_MAX: u32 = 4096;

/// Removes the parts of a file that an earlier job has left, of any number of ranks, and a draft. What cannot be removed stays, and so do
/// files that only have the name of a part, such as those that rotated logs have.
pub fn remove_parts(path: &Path) {
    let _ = std::fs::remove_file(draft(path));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Some(name), Ok(entries)) = (path.file_name(), std::fs::read_dir(folder)) else { return };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(b".")).unwrap_or_default();
        let number: Option<u32> = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        let is_name = number.is_some_and(|rank| rank < RANKS_MAX && found == part(Path::new(name), rank).as_os_str());
        if is_name && is_part(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The first file that has the name of a part of `ranks` ranks and is none. A rank would replace it.
pub fn taken_part(path: &Path, ranks: u32) -> Option<PathBuf> {
    let mut parts = (0..ranks).map(|rank| part(path, rank));
    parts.find(|part| part.symlink_metadata().is_ok() && !is_part(part))
}

/// Whether a process has written this file as its part, or was killed while it created the file.
fn is_part(path: &Path) -> bool {
    // Ranks make regular files only. Opening another kind may have effects, or wait.
    let Ok(known) = path.symlink_metadata() else { return false };
    let mut begin = Vec::new();
    let read = |file: File| file.take(PAGE_BYTES as u64).read_to_end(&mut begin);
    known.is_file() && File::open(path).and_then(read).is_ok() && is_left_part(&begin, known.len())
}

/// Merges the parts of `ranks` ranks to one file, and removes the parts. A rank without a part has written nothing.
///
/// # Errors
/// If a part cannot be read, or the file cannot be written. The error names the file. Parts are removed only after success.
pub fn merge(path: &Path, ranks: u32) -> io::Result<Merged> {
    let parts: Vec<PathBuf> =
        (0..ranks).map(|rank| part(path, rank)).filter(|part| part.try_exists().unwrap_or(true)).collect();
    let merged = join(path, &parts)?;
    parts.iter().try_for_each(std::fs::remove_file)?;
    Ok(merged)
}

/// Merges several files to one, which Perfetto opens. The files may be those of ranks that run or were killed, or made by this
/// function. The result replaces an existing file of its name only when it is complete, so it may replace one of the input files.
///
/// # Errors
/// If a file cannot be read or is no trace, or the result cannot be written. The error names the file.
pub fn join(path: &Path, files: &[PathBuf]) -> io::Result<Merged> {
    if path.metadata().is_ok_and(|known| !known.is_file()) {
        let out = File::options().write(true).open(path).map_err(|error| named(path, error.into()))?;
        return gather(out, path, files);
    }
    // If the path is a symbolic link, the file that it names is replaced, not the link.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let unfinished = draft(&real);
    let out = File::create(&unfinished).map_err(|error| named(path, error.into()))?;
    let merged = gather(out, path, files).and_then(|merged| {
        std::fs::rename(&unfinished, &real).map_err(|error| named(path, error.into()))?;
        Ok(merged)
    });
    if merged.is_err() {
        // The first error is returned, so this one is ignored.
        let _ = std::fs::remove_file(&unfinished);
    }
    merged
}

/// Writes the events of all files to `out`, whose path is `path`.
fn gather(out: File, path: &Path, files: &[PathBuf]) -> io::Result<Merged> {
    let (mut merged, mut out) = (Merged::default(), Array::new(out));
    for file in files {
        let input = File::open(file).and_then(at_one_moment).map_err(ReadError::from);
        let cut = input.and_then(|file| add(BufReader::new(file), &mut out));
        merged.cut += cut.map_err(|error| named(if out.failed { path } else { file }, error))?;
        merged.files += 1;
    }
    merged.events = out.lines;
    out.end().map_err(|error| named(path, error.into()))?;
    Ok(merged)
}

/// An error with the file that it is about.
fn named(path: &Path, error: ReadError) -> io::Error {
    let kind = match &error {
        ReadError::Io(error) => error.kind(),
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, format!("{}: {error}", path.display()))
}

/// Adds the events of a file. Returns how many events were cut.
fn add(mut input: impl BufRead, out: &mut Array) -> Result<u64, ReadError> {
    if has_records(&mut input)? {
        return Ok(lines_of_records(input, &mut |line| out.put(line))?.into());
    }
    let (mut text, mut number, mut cut) = (Vec::new(), 0, 0);
    while read_line(&mut input, &mut text)? > 0 {
        number += 1;
        if number == 1 && text.trim_ascii() != b"[" {
            return Err(ReadError::Line { line: 1, reason: "no array begins".to_owned() });
        }
        match event_of(&text) {
            Some(event) if serde_json::from_slice::<IgnoredAny>(event).is_err() => cut += 1,
            Some(event) => out.put(event)?,
            None => {}
        }
    }
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::MAGIC;
    use crate::{Event, Sink, TraceFile};
    use serde_json::Value;

    #[test]
    fn parts_that_are_arrays_become_one_array_wherever_one_of_them_was_cut() {
        let path = std::env::temp_dir().join(format!("tickwire-merge-{}", std::process::id()));
        let write = |rank| {
            let mut trace = TraceFile::create(part(&path, rank)).unwrap();
            trace.record(&Event::Engine { rank, size: 3 });
            drop(trace);
            std::fs::read(part(&path, rank)).unwrap()
        };
        let whole = write(0);
        let lines = whole.iter().filter(|&&byte| byte == b'\n').count() as u64 - 2;
        for end in 0..=whole.len() {
            write(0);
            std::fs::write(part(&path, 2), &whole[..end]).unwrap();
            let merged = merge(&path, 3).unwrap();
            let events: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!((merged.files, events.len() as u64), (2, merged.events));
            assert!(merged.cut <= 1 && (lines..=2 * lines).contains(&merged.events), "{end}: {merged:?}");
            assert!(!part(&path, 0).exists() && !part(&path, 2).exists());
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// The events of a file.
    fn read(path: &Path) -> Vec<Value> {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tickwire-merge-{name}-{}", std::process::id()))
    }

    /// Writes a part with `events` events, each of which becomes a line of its own.
    fn write_part(path: &Path, events: u64) {
        let mut trace = TraceFile::create_part(path).unwrap();
        (0..events).for_each(|at_ns| trace.record(&Event::Error { words: "no".into(), at_ns }));
    }

    #[test]
    fn parts_of_ranks_that_were_killed_become_one_array() {
        let path = scratch("killed");
        for (events, end) in [(10, 0), (10, 100), (10, 271), (10, 272), (9000, 100_000)] {
            for rank in [0, 2] {
                write_part(&part(&path, rank), events);
            }
            File::options().write(true).open(part(&path, 2)).unwrap().set_len(end).unwrap();
            let merged = merge(&path, 4).unwrap();
            assert_eq!((merged.files, merged.events), (2, read(&path).len() as u64));
            assert!((events..=2 * events).contains(&merged.events), "{merged:?}");
            assert_eq!(merged.cut, u64::from(end > 0 && end != 272), "{events} {end}");
            assert!(!part(&path, 0).exists() && !part(&path, 2).exists());
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn files_of_both_kinds_are_joined_even_into_one_of_them() {
        let (array, records) = (scratch("array"), scratch("records"));
        write_part(&records, 3);
        assert_eq!(join(&array, std::slice::from_ref(&records)).unwrap(), Merged { files: 1, events: 3, cut: 0 });
        let both = [array.clone(), records.clone()];
        assert_eq!(join(&records, &both).unwrap(), Merged { files: 2, events: 6, cut: 0 });
        assert_eq!((read(&array).len(), read(&records).len()), (3, 6));
        std::fs::remove_file(array).unwrap();
        std::fs::remove_file(records).unwrap();
    }

    #[test]
    fn a_draft_that_was_left_is_no_input_and_parts_of_an_earlier_job_are_removed() {
        let folder = scratch("left");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("trace.json");
        write_part(&part(&path, 0), 2);
        std::fs::write(draft(&path), "[\n").unwrap();
        std::fs::write(folder.join("trace.json.txt"), "mine").unwrap();
        let names = || {
            let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        // As a shell expands `trace.json.*`.
        let matching = names().into_iter().filter(|name| name.starts_with("trace.json."));
        assert_eq!(matching.collect::<Vec<_>>(), ["trace.json.0", "trace.json.txt"]);
        assert_eq!(join(&path, &[part(&path, 0)]).unwrap().events, 2);
        assert_eq!(names(), ["trace.json", "trace.json.0", "trace.json.txt"]);
        for rank in [7, 12] {
            write_part(&part(&path, rank), 1);
        }
        std::fs::write(draft(&path), "[\n").unwrap();
        for of_another in ["trace.json.20261128", "trace.json.007"] {
            std::fs::write(folder.join(of_another), "mine").unwrap();
        }
        remove_parts(&path);
        assert_eq!(names(), ["trace.json", "trace.json.007", "trace.json.20261128", "trace.json.txt"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_that_only_have_the_name_of_a_part_are_kept_and_named() {
        let folder = scratch("taken");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("app.log");
        let page = vec![0; PAGE_BYTES];
        let begun = [&MAGIC.to_ne_bytes()[..], &page[8..]].concat();
        let other_order = MAGIC.swap_bytes().to_ne_bytes();
        // An empty file and zeros are what a process leaves that is killed while it creates its part.
        for (rank, content) in [&page[..], &[], &begun, &begun[..40], &other_order].iter().enumerate() {
            std::fs::write(part(&path, rank as u32), content).unwrap();
        }
        // Zeros with something behind them, and zeros of another length, are an image of a disk.
        let image = [&page[..], b"mine"].concat();
        let mine: [&[u8]; 6] =
            [b"mine", &MAGIC.to_ne_bytes()[..7], &[0; 9], &image, b"[\n", &[&page[1..], b"1"].concat()];
        for (rank, content) in (5..).zip(mine) {
            std::fs::write(part(&path, rank), content).unwrap();
        }
        std::fs::create_dir(part(&path, 11)).unwrap();
        std::os::unix::fs::symlink(part(&path, 0), part(&path, 12)).unwrap();
        assert_eq!((taken_part(&path, 5), taken_part(&path, 6)), (None, Some(part(&path, 5))));
        remove_parts(&path);
        let is_there = |rank| part(&path, rank).symlink_metadata().is_ok();
        assert!((0..13).all(|rank| is_there(rank) == (rank > 4)));
        for (rank, content) in (5..).zip(mine) {
            assert_eq!(std::fs::read(part(&path, rank)).unwrap(), content);
        }
        for rank in 5..13 {
            assert_eq!(taken_part(&path, 13), Some(part(&path, rank)));
            std::fs::rename(part(&path, rank), folder.join(format!("moved-{rank}"))).unwrap();
        }
        assert_eq!(taken_part(&path, 13), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_trace_is_named_and_nothing_is_lost() {
        let (path, other) = (scratch("out"), scratch("other"));
        std::fs::write(&path, "mine").unwrap();
        let endless = vec![b'['; 2 << 20];
        let versioned = [*b"tickwtrc", 9u64.to_ne_bytes()].concat();
        for (content, words) in [
            (&b"no trace"[..], "line 1 is no event"),
            (b"{\"traceEvents\": [\n", "line 1 is no event"),
            (&endless, "a line of more than 1048576 bytes"),
            (&versioned, "byte 8: the trace has version 9 of its form"),
        ] {
            std::fs::write(&other, content).unwrap();
            let error = join(&path, std::slice::from_ref(&other)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}: {words}", other.display())) && !error.contains('\n'), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        }
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(other).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        for path in ["/no/such/place", "/dev/full"] {
            let error = merge(Path::new(path), 1).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}: No s")), "{error}");
        }
    }
}
