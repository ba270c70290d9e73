//! Windows of each kind, for tests in threads and in processes.

use tickwire::{Comm, Engine, Rank, Window, WindowError};

/// The kinds of windows. Between processes of one host, parts of these kinds are reached: by loads and stores; by the
/// kernel; by the kernel as far as they are listed; and by the target's engine, because they are not listed.
pub const KINDS: [&str; 4] = ["allocated", "created", "attached", "unlisted"];

/// Another kind, for engines with a shared heap. Its buffer is in the heap, so loads and stores reach it.
pub const HEAP: &str = "heap";

/// A created window, for engines that keep copies of such windows in shared memory. Loads and stores reach the copies.
pub const COPIED: &str = "copied";

/// The most runs that are listed.
const LISTED: usize = 512;

/// A window, and the first element of each part.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The window.
    pub window: Window<u64>,
    first: Vec<usize>,
}

impl Parts {
    /// Makes a window of a kind, with `count` elements on each rank.
    ///
    /// # Errors
    /// The errors of the calls that make windows.
    pub fn make(engine: &mut Engine, kind: &str, count: usize, comm: Comm) -> Result<Self, WindowError> {
        let size = engine.comm_size(comm)? as usize;
        let mut first = vec![0; size];
        let window = match kind {
            "allocated" => engine.win_allocate::<u64>(count, comm)?,
            HEAP => {
                let buffer = engine.alloc_elements(count).map_err(|error| {
                    let reason = error.to_string();
                    WindowError::Memory { rank: engine.rank(), reason }
                })?;
                engine.win_create(buffer, comm)?
            }
            "created" | COPIED => {
                let is_copied = kind == COPIED && count > 0 && engine.limits().window_copy_max > 0;
                engine.win_create(vec![0u64; count], comm).map_err(|rejected| {
                    // Nobody else writes into a buffer that has a copy.
                    assert!(!is_copied || rejected.buffer.is_some(), "the buffer is lost");
                    rejected.error
                })?
            }
            _ => {
                let window = engine.win_create_dynamic(comm)?;
                for _ in 0..if kind == "unlisted" { LISTED } else { 0 } {
                    engine.win_attach(vec![0u8; 8], window)?;
                }
                let own = engine.win_attach(vec![0u64; count], window)?;
                engine.allgather(&[own / size_of::<u64>()], &mut first, comm)?;
                window.cast()
            }
        };
        Ok(Parts { window, first })
    }

    /// The displacement of an element of a rank's part.
    pub fn at(&self, rank: Rank, element: usize) -> usize {
        self.first[rank.0 as usize] + element
    }
}
