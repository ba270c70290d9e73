//! DrainCq: reads what the transports have into arrival rows.
//!
//! *Reads* endpoints. *Writes* arrival rows from `Progress::arrivals` on (header, payload, vc, state), pending.
//! *Bound* the free arrival rows, the free buffer rows (so that whatever is unexpected has a place), and the tick's budget.
//! *Why* one place copies a header, once; nothing after it looks at memory that a peer may still write.

use crate::tables::DrainTables;
use tickwire_components::{NIL, Pending};

/// The system.
#[inline]
pub fn drain_cq(tables: DrainTables) {
    let DrainTables { progress, endpoints, arrivals } = tables;
    let first = progress.arrivals as usize;
    let buffers = progress.free_buffer_rows() as usize;
    if buffers < arrivals.len() {
        progress.pending |= Pending::WORLD;
    }
    let limit = arrivals.len().min(first + buffers).min(first + progress.budget as usize);
    let mut count = first;
    for (index, endpoint) in endpoints.iter_mut().enumerate() {
        let (only, link) = progress.only;
        if only != NIL && only != index as u32 {
            continue;
        }
        let free = &mut arrivals[count..limit];
        if free.is_empty() {
            break;
        }
        let transport = endpoint.transport.get();
        count += match link {
            NIL => transport.drain(progress.now_ns, free),
            link => transport.drain_link(link, progress.now_ns, free),
        };
    }
    let read = (count - first) as u32;
    progress.arrivals = count as u32;
    progress.work.received += read;
    progress.budget -= read;
    if read > 0 {
        progress.pending |= Pending::MATCH;
        if count == limit && progress.budget > 0 {
            progress.pending |= Pending::DRAIN;
        }
    }
}
