//! Routes: which transport is used to reach a proc, for each class of traffic. Candidates are the endpoints that reach the proc and that
//! may be used for the class. The best candidate that has not failed is taken, unless a link is in use already.
//!
//! *Reads* cards, endpoints, the links of a VC. *Writes* nothing.
//! *Why* a route is looked up when a VC connects, or when a window or a region is made, but never for a message.

use crate::procs::cards::card_of;
use crate::procs::endpoint::Endpoint;
use crate::store::Tables;
use tickwire_components::{Row, TrafficClass, Vc, VcState};
use tickwire_transports::{AtomicWidths, OneSided, Reach};

/// A transport's answer to how it would reach a proc.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The endpoint.
    pub endpoint: u8,
    /// Its priority.
    pub priority: u8,
    /// Whether it reaches memory of the proc without the proc's engine. Set for one-sided traffic only.
    pub reaches_memory: bool,
    /// Why it cannot be used, if so.
    pub refused: Option<String>,
    /// Whether it cannot be used because it was tried and could not connect.
    pub failed: bool,
}

/// All transports' answers, in the order of their endpoints.
pub fn candidates(all: &mut Tables<'_>, proc: u32, class: TrafficClass) -> Vec<Candidate> {
    let of_updates = class == TrafficClass::Atomics;
    let follows = of_updates && !names_atomics(all.endpoints);
    // A fabric that does updates also does those of this proc's own memory, so that all are atomic to each other.
    let by_fabric = of_updates && !follows;
    let row = all.procs.known.get(proc as usize).map_or(tickwire_components::NIL, |known| known.row);
    let (card, routes, me) = (all.procs.card(proc), &all.procs.routes, all.procs.me);
    let answer = |(endpoint, of): (u8, &mut Endpoint)| {
        let is_named = of.may_carry(class);
        let allowed = is_named || follows || proc == me && !by_fabric;
        let can_update = if by_fabric && is_named { offers_updates(of).map(drop) } else { Ok(()) };
        let transport = of.transport.get();
        let reached = match by_fabric && proc == me {
            true => Ok(()),
            false => transport.reaches(proc, card_of(card, transport.name()).unwrap_or_default()),
        };
        let reached = reached.and_then(|()| can_update.map_err(|why| format!("it {why}")));
        // The peer may have called over this endpoint since it failed.
        let is_there = routes.side(row, endpoint).is_some_and(|side| side.is_open);
        let tried = routes.failed(row).iter().find(|(of, _)| *of == endpoint && !is_there);
        let failed = allowed && tried.is_some() && reached.is_ok();
        let refused = match (reached, allowed, tried) {
            (Err(reason), ..) => Some(reason),
            (Ok(()), false, _) => Some(format!("it is not to carry {}", class.name())),
            (Ok(()), true, Some((_, reason))) => Some(format!("it could not connect: {reason}")),
            (Ok(()), true, None) => None,
        };
        let priority = transport.capabilities().priority;
        let reaches_memory = match class {
            TrafficClass::OneSided => transport.shared_memory().is_some() || transport.one_sided().is_some(),
            _ => false,
        };
        Candidate { endpoint, priority, reaches_memory, refused, failed }
    };
    (0..).zip(all.endpoints.iter_mut()).map(answer).collect()
}

/// Whether the user has named a transport for updates. If so, a fabric does the updates of exposed memory.
pub fn names_atomics(endpoints: &[Endpoint]) -> bool {
    endpoints.iter().any(|endpoint| endpoint.may_carry(TrafficClass::Atomics))
}

/// The one-sided facet of an endpoint's fabric, if the fabric may do updates of exposed memory. Does not open the fabric.
///
/// # Errors
/// Why it cannot, in words that follow its name.
fn offers_updates(endpoint: &mut Endpoint) -> Result<&mut dyn OneSided, &'static str> {
    match endpoint.transport.get().one_sided() {
        None => Err("does not reach memory by itself"),
        Some(fabric) if !fabric.refuses_stale_keys() => Err("does not refuse the keys of regions that were withdrawn"),
        Some(fabric) => Ok(fabric),
    }
}

/// Checks that a fabric can do updates of exposed memory. Opens the fabric.
///
/// # Errors
/// Why it cannot, in words that follow its name.
pub fn updates(endpoint: &mut Endpoint) -> Result<(), &'static str> {
    match offers_updates(endpoint)?.atomics() {
        widths if widths == AtomicWidths::default() => Err("has no atomic operations that can be used"),
        _ => Ok(()),
    }
}

/// The best of the candidates. In this order, it prefers one that reaches memory by itself (one-sided traffic only), then `used`, then the
/// highest priority, then the lowest endpoint number.
pub fn best(candidates: &[Candidate], used: Option<u8>) -> Option<u8> {
    let mut best: Option<(&Candidate, _)> = None;
    for candidate in candidates.iter().filter(|candidate| candidate.refused.is_none()) {
        let rank = (candidate.reaches_memory, used == Some(candidate.endpoint), candidate.priority);
        if best.is_none_or(|(_, other)| rank > other) {
            best = Some((candidate, rank));
        }
    }
    best.map(|(candidate, _)| candidate.endpoint)
}

/// The endpoint that messages to a proc would use if it were connected now, and the proc's card for that endpoint.
///
/// # Errors
/// Why no transport is left, in words.
pub(crate) fn message_route(all: &mut Tables<'_>, proc: u32) -> Result<(u8, Vec<u8>), String> {
    let candidates = candidates(all, proc, TrafficClass::PointToPoint);
    match best(&candidates, None) {
        Some(endpoint) => Ok((endpoint, card_for(all, proc, endpoint))),
        None => {
            let mut name = |endpoint: u8| all.endpoints[usize::from(endpoint)].transport.get().name().to_owned();
            let words = candidates.into_iter().filter_map(|of| Some(format!("{}: {}", name(of.endpoint), of.refused?)));
            Err(words.collect::<Vec<_>>().join("; "))
        }
    }
}

/// A proc's card for an endpoint's transport.
pub(crate) fn card_for(all: &mut Tables<'_>, proc: u32, endpoint: u8) -> Vec<u8> {
    let Some(of) = all.endpoints.get_mut(usize::from(endpoint)) else { return Vec::new() };
    card_of(all.procs.card(proc), of.transport.get().name()).unwrap_or_default().to_vec()
}

/// The endpoint that messages to a proc use, or would use. `None` if no endpoint reaches it.
pub fn endpoint_of(all: &mut Tables<'_>, proc: u32) -> Option<u8> {
    let row = all.procs.known.get(proc as usize)?.row;
    match all.vcs.get(row as usize) {
        Some(vc) if matches!(vc.state, VcState::Connecting | VcState::Connected) => Some(vc.endpoint),
        _ => message_route(all, proc).ok().map(|(endpoint, _)| endpoint),
    }
}

/// The endpoint that a class of traffic with a proc uses, or would use. Updates use the fabric that the user has named for them. Without
/// one, updates must all be done in one place to be atomic: by shared memory if one-sided traffic uses that, else by the target's engine,
/// by way of messages.
pub fn endpoint_for(all: &mut Tables<'_>, proc: u32, class: TrafficClass) -> Option<u8> {
    let used = endpoint_of(all, proc);
    if class == TrafficClass::PointToPoint {
        return used;
    }
    if class == TrafficClass::Atomics && names_atomics(all.endpoints) {
        return best(&candidates(all, proc, class), None);
    }
    let candidates = candidates(all, proc, TrafficClass::OneSided);
    // A link in use stays in use, even if the peer has called over a better transport since.
    let row = all.procs.known.get(proc as usize)?.row;
    let in_use = all.procs.routes.one_sided(row).map(|(endpoint, _)| endpoint);
    let in_use = in_use.filter(|&used| candidates.iter().any(|of| of.endpoint == used && of.refused.is_none()));
    let one_sided = in_use.or_else(|| best(&candidates, used));
    let shares = |endpoint: u8| all.endpoints[usize::from(endpoint)].transport.get().shared_memory().is_some();
    if class == TrafficClass::Atomics && !one_sided.is_some_and(shares) { used } else { one_sided }
}

/// The endpoint and link of a VC for a class of traffic, if there is an open one.
pub fn link_for(all: &mut Tables<'_>, row: Row, class: TrafficClass) -> Option<(u8, u32)> {
    let &Vc { proc, endpoint, link, state, .. } = all.vcs.get(row as usize)?;
    if state != VcState::Connected {
        return None;
    }
    if class == TrafficClass::OneSided
        && let Some(known) = all.procs.routes.one_sided(row)
    {
        return Some(known);
    }
    let wanted = endpoint_for(all, proc, class)?;
    if wanted == endpoint {
        return Some((endpoint, link));
    }
    all.procs.routes.side(row, wanted).filter(|side| side.is_open).map(|side| (wanted, side.link))
}

/// Whether this proc and another one might call each other over different transports. A caller must then ask the peer whether the link is
/// used. A network transport counts even if it says that it does not reach the proc, since that proc may still reach this one.
pub(crate) fn may_cross(all: &mut Tables<'_>, proc: u32) -> bool {
    if proc == all.procs.me {
        return false;
    }
    let card = all.procs.card(proc);
    let may_carry = |of: &&mut Endpoint| of.may_carry(TrafficClass::PointToPoint);
    let may_reach = |of: &mut Endpoint| {
        let transport = of.transport.get();
        let part = card_of(card, transport.name()).unwrap_or_default();
        transport.capabilities().reach == Reach::Network || transport.reaches(proc, part).is_ok()
    };
    all.endpoints.iter_mut().filter(may_carry).filter_map(|of| may_reach(of).then_some(())).nth(1).is_some()
}
