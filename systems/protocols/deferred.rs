//! Deferred messages. Such a message matches a receive that is at a transport which matches by itself. It waits until that transport has
//! returned the receive, or has paired it with another message. Later messages of the same sender wait behind it. See
//! [`provider_matched`](crate::protocols::provider_matched).

use crate::protocols::graph::messages::{forget_abandonment, is_empty};
use crate::rows::Rows;
use crate::steps::finish::abort;
use crate::steps::posted::{key, leave_index};
use crate::steps::provider::{is_at_provider, recall};
use crate::steps::unexpected::{find_place, receive_unexpected};
use tickwire_components::index::EnvelopeKey;
use tickwire_components::{Arrival, ArrivalState, DeferredMessage, NIL, Pending, car_flags, context};

/// Defers a message that was not paired, if it must wait for a receive or behind another message. `false` if it need not wait.
#[cold]
pub(crate) fn defer(rows: &mut Rows<'_>, arrival: &mut Arrival) -> bool {
    let (header, vc) = (arrival.header, arrival.vc);
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    let behind = rows.progress.provider.defers(vc);
    let receive = if behind || !rows.progress.indexed() { None } else { rows.progress.posted.find(&message) };
    if !behind && receive.is_none() {
        return false;
    }
    let Some(entry) =
        find_place(&mut rows.progress, arrival, &header, &mut rows.vcs, (&rows.communicators, &rows.cars))
    else {
        return true;
    };
    rows.progress.unexpected.claim(entry);
    rows.progress.starved_peers += 1;
    let receive = receive.unwrap_or(NIL);
    rows.progress.provider.deferred.push(DeferredMessage { entry, vc, receive, came_back: false });
    if receive != NIL {
        recall(&mut rows.progress, &mut rows.cars, receive, 0);
    }
    true
}

/// Pairs deferred messages with their receives, as far as these are known. `true` if some messages are still deferred.
#[cold]
pub(crate) fn match_deferred(rows: &mut Rows<'_>, arrivals: &[Arrival]) -> bool {
    if rows.progress.provider.deferred.is_empty() {
        return false;
    }
    // Bytes cannot be moved out of a temporary before they have been moved into it.
    let moves = |arrival: &Arrival| matches!(arrival.state, ArrivalState::Unexpected | ArrivalState::Placed);
    if arrivals[..rows.progress.arrivals as usize].iter().any(moves) {
        rows.progress.pending |= Pending::MATCH;
        return true;
    }
    let mut place = 0;
    while let Some(&deferred) = rows.progress.provider.deferred.get(place) {
        let first = rows.progress.provider.deferred[..place].iter().all(|before| before.vc != deferred.vc);
        if !first || deferred.receive != NIL && !deferred.came_back {
            place += 1;
            continue;
        }
        let found = rows.progress.unexpected.entries[deferred.entry as usize];
        let mut receive = deferred.receive;
        let replaced = EnvelopeKey { context: context::abandoned(found.context), ..found.key() };
        if receive == NIL
            && matches!(context::plane(found.context), context::ABANDONED | context::BLOCK_ABANDONED)
            && is_empty(&found)
            && let Some(row) = rows.progress.posted.find(&replaced)
        {
            // The message that this one replaces never comes. Its receive ends.
            rows.progress.posted.remove(&key(&rows.cars[row as usize]), row);
            rows.progress.provider.deferred.remove(place);
            rows.progress.starved_peers -= 1;
            rows.progress.unexpected.release(deferred.entry);
            forget_abandonment(&mut rows.progress, &mut rows.vcs, &found);
            abort(&mut rows.progress, &mut rows.cars, row, car_flags::ABANDONED);
            continue;
        }
        if receive == NIL
            && let Some(row) = rows.progress.posted.find(&found.key())
        {
            if is_at_provider(&rows.cars[row as usize]) {
                rows.progress.provider.deferred[place].receive = row;
                recall(&mut rows.progress, &mut rows.cars, row, 0);
                place += 1;
                continue;
            }
            rows.progress.posted.remove(&key(&rows.cars[row as usize]), row);
            rows.progress.provider.queue.remove(&mut rows.cars, row);
            receive = row;
        }
        rows.progress.provider.deferred.remove(place);
        rows.progress.starved_peers -= 1;
        if receive == NIL {
            rows.progress.unexpected.restore(deferred.entry);
            rows.progress.graphs.has_unexpected = true;
        } else {
            rows.progress.unexpected.release(deferred.entry);
            receive_unexpected(rows, receive, deferred.entry, &found);
        }
    }
    if rows.progress.provider.deferred.is_empty() {
        leave_index(&mut rows.progress);
        return false;
    }
    true
}
