//! Opening the endpoints for one-sided operations.

use super::context::{Context, Endpoints};
use super::memory_mode::{KNOWN, MemoryMode};
use super::{LENT, Rma, RmaConfig, THREADED};
use crate::ofi::choice::is_named;
use crate::ofi::registry::{Registry, new_key};
use crate::ofi::scalable::{ScalableEndpoint, context_bits};
use crate::ofi::{AddressVector, CompletionQueue, Domain, Endpoint, Fabric, Hints, Info, OfiError, one_sided_hints};
use crate::remote::AtomicWidths;
use libfabric_sys as sys;
use std::collections::VecDeque;
use tickwire_components::limits::{RMA_LONG_SLOT_BYTES, RMA_LONG_SLOTS, RMA_SLOT_BYTES, RMA_SLOTS};

/// The fetching atomic operations that are needed.
const FETCHING: [sys::fi_op; 6] =
    [sys::FI_SUM, sys::FI_BAND, sys::FI_BOR, sys::FI_BXOR, sys::FI_ATOMIC_WRITE, sys::FI_ATOMIC_READ];

/// Layers whose atomic operations are unusable (measured with libfabric 1.17): with `ofi_rxd` the target crashes after some of them.
const FLAWED_ATOMICS: [&str; 1] = ["ofi_rxd"];

impl Rma {
    /// Checks whether the provider of an endpoint for messages offers one-sided operations. Returns the candidate to open.
    ///
    /// # Errors
    /// What it lacks, in words.
    pub(in crate::ofi) fn offered(info: &Info, config: &RmaConfig) -> Result<Info, String> {
        if config.contexts == 0 {
            return Err(
                "one-sided operations are turned off: set `Choice::contexts`, or TICKWIRE_OFI_CONTEXTS, to 1 or more"
                    .into(),
            );
        }
        for atomic in [true, false] {
            let hints = Hints { automatic: has_thread(info, config), ..one_sided_hints(info.provider(), atomic) };
            #[cfg(test)]
            let hints = Hints { mr_mode: config.mr_mode.map_or(hints.mr_mode, |(offered, _)| offered), ..hints };
            let found = Info::list(info.library(), &hints).map_err(|error| error.to_string())?;
            if let Some(found) = nearest(found, info) {
                MemoryMode::of(&found).map_err(|why| format!("provider {}: {why}", info.provider()))?;
                return Ok(found);
            }
        }
        Err(format!("provider {} cannot do one-sided operations: {}", info.provider(), lacks(info)))
    }

    /// The candidate to open beside an endpoint for messages, and whether all contexts belong to one scalable endpoint.
    fn chosen(info: &Info, config: &RmaConfig) -> Result<(Info, bool), String> {
        let offered = Self::offered(info, config)?;
        let scalable = if config.contexts > 1 { scalable(&offered, config) } else { None };
        let is_scalable = scalable.is_some();
        let mut chosen = scalable.unwrap_or(offered);
        if info.is_told_of_local_memory() {
            chosen.tell_of_local_memory();
        }
        #[cfg(test)]
        let chosen = force(chosen, config);
        Ok((chosen, is_scalable))
    }

    /// Opens the endpoints for one-sided operations beside an endpoint for messages.
    ///
    /// # Errors
    /// What is missing, in words.
    pub(in crate::ofi) fn open(info: &Info, config: &RmaConfig, registry: &Registry) -> Result<Self, String> {
        let (info, is_scalable) = Self::chosen(info, config)?;
        let memory = MemoryMode::of(&info)?;
        let words = |error: OfiError| error.to_string();
        let fabric = Fabric::open(&info).map_err(words)?;
        // SAFETY: everything that is opened stays in here, which is not shared between threads.
        #[expect(unsafe_code, reason = "FFI")]
        let domain = unsafe { Domain::open(&fabric, info).map_err(words)? };
        let lends = LENT.iter().any(|name| is_named(domain.info().provider(), name));
        let context_bits = if is_scalable { context_bits(config.contexts) } else { 0 };
        let addresses = AddressVector::open_scalable(&domain, 64, context_bits).map_err(words)?;
        let size = domain.info().tx_attr().size;
        let (wanted, bytes) = if lends { (RMA_SLOTS, RMA_SLOT_BYTES) } else { (RMA_LONG_SLOTS, RMA_LONG_SLOT_BYTES) };
        let slots = if size == 0 { wanted } else { size.min(wanted) };
        let queue = |_| CompletionQueue::open(&domain, 2 * slots, false);
        let queues: Vec<_> = (0..config.contexts).map(queue).collect::<Result<_, _>>().map_err(words)?;
        let endpoints = open_endpoints(&domain, &addresses, &queues, is_scalable).map_err(words)?;
        let name = match &endpoints {
            Endpoints::Plain(endpoints) => endpoints[0].name(),
            Endpoints::Scalable(endpoint) => endpoint.name(),
        };
        let mut contexts = Vec::with_capacity(queues.len());
        for (index, queue) in queues.into_iter().enumerate() {
            let key = new_key(memory.key_mask)?;
            contexts.push(Context::new(&domain, memory, (&endpoints, index), queue, (slots, bytes), key)?);
        }
        let largest = domain.info().ep_attr().max_msg_size;
        Ok(Rma {
            exposed: Vec::new(),
            withdrawals: Vec::new(),
            withdrawals_made: 0,
            owed: Vec::new(),
            ended: 0,
            of_domain: registry.of_domain(&domain),
            registry: registry.clone(),
            atomics: atomics(domain.info().provider(), &endpoints),
            endpoints: Some(endpoints),
            addresses,
            contexts,
            memory,
            name: name.map_err(words)?,
            context_bits,
            lends,
            automatic: has_thread(domain.info(), config),
            piece_max: if !lends {
                bytes
            } else if largest == 0 {
                usize::MAX
            } else {
                largest
            },
            domain,
            known: Vec::new(),
            peers: Vec::new(),
            operations: Vec::new(),
            free_operations: Vec::new(),
            failed: VecDeque::new(),
            rings_failed: Vec::new(),
            ending: 0,
            ending_since: None,
            ending_time: config.ending_time,
            reached: false,
            vain: 0,
            tells: false,
            refused: false,
            disturbed: false,
            has_rings: false,
            broken: None,
            untold: false,
        })
    }
}

/// What a provider lacks that offers no suitable candidate.
fn lacks(info: &Info) -> String {
    let has = |hints: Hints| nearest(Info::list(info.library(), &hints).ok()?, info);
    let hints = || one_sided_hints(info.provider(), false);
    if let Some(Err(why)) = has(Hints { mr_mode: KNOWN, ..hints() }).map(|found| MemoryMode::of(&found)) {
        return why;
    }
    match has(Hints { completes: 0, ..hints() }) {
        Some(_) => "it cannot tell when the memory of a target holds what was written (FI_DELIVERY_COMPLETE)".into(),
        None => "it has no reads and writes of remote memory (FI_RMA)".into(),
    }
}

/// Whether the provider is to make progress in a thread of its own. Providers outside `THREADED` are not asked for one, so that endpoints
/// left open have no thread.
fn has_thread(info: &Info, config: &RmaConfig) -> bool {
    config.automatic && THREADED.iter().any(|name| is_named(info.provider(), name))
}

/// The candidate with the same domain and source address as `info`, or else one with the same domain.
fn nearest(mut found: Vec<Info>, info: &Info) -> Option<Info> {
    let same = |other: &Info| other.domain() == info.domain() && other.source() == info.source();
    let place = found.iter().position(same);
    let place = place.or_else(|| found.iter().position(|other| other.domain() == info.domain()));
    place.map(|place| found.swap_remove(place))
}

/// The same candidate with a scalable endpoint of `config.contexts` contexts, if the provider has that. `None` where regions are bound to
/// endpoints, since they cannot be bound to one context of a scalable endpoint.
fn scalable(info: &Info, config: &RmaConfig) -> Option<Info> {
    let attr = info.domain_attr();
    let has = attr.max_ep_tx_ctx.min(attr.max_ep_rx_ctx) >= config.contexts;
    if !has || MemoryMode::of(info).is_ok_and(|memory| memory.endpoint) {
        return None;
    }
    let atomic = info.raw().caps & sys::FI_ATOMIC != 0;
    let hints = one_sided_hints(info.provider(), atomic);
    let hints = Hints { contexts: config.contexts, automatic: has_thread(info, config), ..hints };
    nearest(Info::list(info.library(), &hints).ok()?, info)
}

#[cfg(test)]
fn force(mut info: Info, config: &RmaConfig) -> Info {
    if let Some((_, forced)) = config.mr_mode {
        info.force_mr_mode(info.domain_attr().mr_mode as u64 | forced);
    }
    info
}

fn open_endpoints(
    domain: &Domain,
    addresses: &AddressVector,
    queues: &[CompletionQueue],
    scalable: bool,
) -> Result<Endpoints, OfiError> {
    if scalable {
        return ScalableEndpoint::open(domain, domain.info(), addresses, queues).map(Endpoints::Scalable);
    }
    let open = |queue| Endpoint::open(domain, domain.info(), addresses, queue, queue);
    queues.iter().map(open).collect::<Result<_, _>>().map(Endpoints::Plain)
}

/// The atomic operations that an endpoint reports as valid. The capabilities are not enough: `net` lists atomics there and has none.
fn atomics(provider: &str, endpoints: &Endpoints) -> AtomicWidths {
    if FLAWED_ATOMICS.iter().any(|name| is_named(provider, name)) {
        return AtomicWidths::default();
    }
    let endpoint = endpoints.of(0);
    // SAFETY: an open endpoint.
    #[expect(unsafe_code, reason = "FFI")]
    let none = unsafe { (*endpoint).atomic.is_null() };
    if none {
        return AtomicWidths::default();
    }
    let has = |datatype| {
        let valid = |fetching: Option<sys::fi_op>| {
            let mut count = 0;
            // SAFETY: an open endpoint, and room for a number.
            #[expect(unsafe_code, reason = "FFI")]
            let code = unsafe {
                match fetching {
                    Some(operation) => sys::ops::fi_fetch_atomicvalid(endpoint, datatype, operation, &raw mut count),
                    None => sys::ops::fi_compare_atomicvalid(endpoint, datatype, sys::FI_CSWAP, &raw mut count),
                }
            };
            code == 0 && count > 0
        };
        FETCHING.into_iter().map(Some).chain([None]).all(valid)
    };
    AtomicWidths { four: has(sys::FI_UINT32), eight: has(sys::FI_UINT64) }
}
