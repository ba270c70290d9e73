//! One file out of those of the ranks of a job.

use serde::de::IgnoredAny;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What [`merge`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// Ranks that have written a file.
    pub files: u32,
    /// Events.
    pub events: u64,
    /// Lines that were cut, by the death of their rank or a full file system, and are left out.
    pub cut: u64,
}

/// Where a rank writes its part of a file.
pub fn part(path: &Path, rank: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{rank}"));
    name.into()
}

/// Makes one file of the parts of so many ranks, and removes these. A rank without a part has written nothing.
///
/// # Errors
/// A part cannot be read, or the file cannot be written. Parts are removed only when all is well.
pub fn merge(path: &Path, ranks: u32) -> io::Result<Merged> {
    let mut merged = Merged::default();
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(b"[")?;
    let mut line = Vec::new();
    for rank in 0..ranks {
        let mut input = match File::open(part(path, rank)) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        merged.files += 1;
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let event = line.trim_ascii_end();
            let event = event.strip_suffix(b",").unwrap_or(event);
            match event {
                b"" | b"[" | b"]" => continue,
                event if serde_json::from_slice::<IgnoredAny>(event).is_err() => merged.cut += 1,
                event => {
                    out.write_all(if merged.events == 0 { b"\n" } else { b",\n" })?;
                    out.write_all(event)?;
                    merged.events += 1;
                }
            }
        }
    }
    out.write_all(b"\n]\n")?;
    out.flush()?;
    for rank in 0..ranks {
        match std::fs::remove_file(part(path, rank)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Sink, TraceFile};
    use serde_json::Value;

    #[test]
    fn parts_become_one_array_wherever_one_of_them_was_cut() {
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

    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        assert!(merge(Path::new("/no/such/place"), 1).is_err());
    }
}
