//! The numbers of links.

use super::medium::Medium;
use super::table::{Peer, Stage};

/// Reserves a link number for a connection to a proc.
///
/// # Errors
/// Why there is none.
pub(super) fn number<M: Medium>(medium: &mut M, proc: u32) -> Result<u32, String> {
    let connections = medium.connections_mut();
    let is_new = connections.free.is_empty() && connections.table.len() < M::LINKS_MAX;
    let link = if is_new {
        connections.table.push(Peer { proc, stage: Stage::Free });
        connections.table.len() as u32 - 1
    } else {
        if connections.free.is_empty() {
            // The engine may have left failed links unclosed: free their numbers.
            for link in connections.links() {
                free_number(medium, link);
            }
        }
        let connections = medium.connections_mut();
        let link = connections.free.pop();
        let link = link.ok_or_else(|| format!("there are {} connections: close some", M::LINKS_MAX))?;
        connections.table[link as usize] = Peer { proc, stage: Stage::Free };
        link
    };
    if let Err(reason) = medium.reserve(link, is_new) {
        medium.connections_mut().free.push(link);
        return Err(reason);
    }
    Ok(link)
}

/// Frees the number of a link that is gone.
pub(super) fn free_number<M: Medium>(medium: &mut M, link: u32) {
    if medium.reuses_links()
        && let connections = medium.connections_mut()
        && let Some(stage @ Stage::Gone) = connections.stage(link)
    {
        *stage = Stage::Free;
        connections.free.push(link);
    }
}
