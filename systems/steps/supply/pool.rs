//! The pool of temporaries. The last ones are reserved by need.

use tickwire_components::{Buffer, ForwardBytes, FreeList, Need, Progress, Row, Span};

/// Takes a temporary of `bytes` for a need. `None` if the remaining ones are reserved: unexpected messages leave some rows to operations
/// that pass bytes on, and both leave some to control.
pub fn take(progress: &mut Progress, buffers: &mut [Buffer], need: Need, bytes: usize) -> Option<Row> {
    let reserved = match need {
        Need::Unexpected => progress.reserved_buffers.all,
        Need::Forward => progress.reserved_buffers.control,
        Need::Control => 0,
    };
    let ForwardBytes { used, bound, .. } = progress.forward_bytes;
    if progress.free_buffer_rows <= reserved || (need == Need::Forward && used + bytes as u64 > bound) {
        return None;
    }
    let row = take_buffer(progress, buffers, bytes)?;
    if need == Need::Forward {
        let ForwardBytes { used, most, .. } = &mut progress.forward_bytes;
        *used += u64::from(buffers[row as usize].length);
        *most = (*most).max(*used);
    }
    Some(row)
}

/// Gives a temporary back that was taken for a need.
pub fn give(progress: &mut Progress, buffers: &mut [Buffer], need: Need, row: Row) {
    if need == Need::Forward {
        progress.forward_bytes.used -= u64::from(buffers[row as usize].length);
    }
    give_buffer(progress, buffers, row);
}

/// The bytes of a temporary.
#[expect(unsafe_code, reason = "the pool lends its own storage")]
pub fn span(buffer: &mut Buffer) -> Span {
    let length = buffer.length as usize;
    let bytes = &mut buffer.bytes()[..length];
    // SAFETY: the storage is on the heap and is the row's until the row is given back, which its last user does.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

/// Takes a temporary of at least `bytes`: one of the right size class, or else any free row with new storage.
pub fn take_buffer(progress: &mut Progress, buffers: &mut [Buffer], bytes: usize) -> Option<Row> {
    let class = Buffer::class_for(bytes);
    let row = match progress.free_buffers[class].pop(buffers) {
        Some(row) => {
            let buffer = &mut buffers[row as usize];
            progress.pool_bytes -= buffer.capacity() as u64;
            // Buffers of the last class have different sizes.
            if buffer.capacity() < bytes {
                buffer.store(vec![0; Buffer::storage_for(bytes)].into_boxed_slice());
            }
            row
        }
        None => {
            let row = (0..Buffer::CLASSES).find_map(|c| progress.free_buffers[c].pop(buffers))?;
            let buffer = &mut buffers[row as usize];
            progress.pool_bytes -= buffer.capacity() as u64;
            buffer.store(vec![0; Buffer::storage_for(bytes)].into_boxed_slice());
            row
        }
    };
    buffers[row as usize].length = bytes as u32;
    progress.free_buffer_rows -= 1;
    Some(row)
}

/// Gives a temporary back. Its storage is kept for reuse as long as the pool is small.
pub fn give_buffer(progress: &mut Progress, buffers: &mut [Buffer], row: Row) {
    let buffer = &mut buffers[row as usize];
    if progress.pool_bytes + buffer.capacity() as u64 > tickwire_components::limits::POOL_KEPT_BYTES as u64 {
        buffer.store(Box::default());
    }
    progress.pool_bytes += buffer.capacity() as u64;
    let list: &mut FreeList = &mut progress.free_buffers[buffer.class()];
    list.push(buffers, row);
    progress.free_buffer_rows += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestWorld;

    #[test]
    fn a_used_buffer_above_the_largest_class_is_not_given_out_for_more_bytes_than_it_has() {
        let mut world = TestWorld::new(1);
        let all = world.all();
        let (progress, buffers) = (&mut *all.progress, all.buffers);
        let kept = progress.pool_bytes;
        for bytes in [70_000, 200_000, 100, 66_000] {
            let row = take_buffer(progress, buffers, bytes).expect("a free row");
            assert_eq!(span(&mut buffers[row as usize]).len(), bytes);
            give_buffer(progress, buffers, row);
        }
        // The longest one and the short one are kept for reuse.
        assert_eq!(progress.pool_bytes - kept, 200_000 + 256);
    }
}
