//! Opening a port: the libfabric objects, the memory that is lent to them, and the tables of the port.

use super::lane::Buffer;
use super::{Descriptors, Port, RmaState};
use crate::ofi::choice::is_named;
use crate::ofi::frame::LEAD_BYTES;
use crate::ofi::matching::Matching;
use crate::ofi::mode::Tags;
use crate::ofi::multi::with_multi;
use crate::ofi::registry::Registry;
use crate::ofi::rma::RmaConfig;
use crate::ofi::slab::{Contexts, Slab};
use crate::ofi::{
    AddressVector, CompletionQueue, Domain, Endpoint, Fabric, Info, MemoryRegion, OfiConfig, OfiError, no_completion,
};
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::ptr::null_mut;
use tickwire_components::limits::{
    FABRIC_MATCHED_RECEIVES, FABRIC_MULTI_FRAMES, FABRIC_MULTI_RECEIVES, FABRIC_RECEIVES, FABRIC_RECEIVES_NEAR,
    FABRIC_RING_COPIES, FABRIC_RING_COPY_BYTES, FABRIC_SENDS,
};
use tickwire_components::{NIL, Span};

const _: () = assert!(crate::ofi::ring::FRAME_MAX <= FABRIC_RING_COPY_BYTES);

/// With this provider, the receiver reads a long message out of the sender's memory. Over a core provider without virtual addresses (`tcp`)
/// it reads from the start of the memory region, wherever in the region the message begins. So each slot gets a region of its own.
const READ_FROM_START: &str = "ofi_rxm";

/// An open endpoint, and the memory for its frames.
struct Opened {
    endpoint: Endpoint,
    addresses: AddressVector,
    queue: CompletionQueue,
    sending: Slab,
    receiving: Slab,
    /// How many send slots and receive buffers there are.
    sends: usize,
    receives: usize,
    inject_max: usize,
    multi: bool,
}

/// Opens an endpoint for frames of up to `place_bytes` bytes.
fn open(info: Info, config: &OfiConfig, matches: bool, place_bytes: usize) -> Result<Opened, OfiError> {
    let with_multi = if config.multi_receive && !matches { with_multi(&info) } else { None };
    let (mut info, multi) = with_multi.map_or((info, false), |info| (info, true));
    if config.choice.registers {
        info.tell_of_local_memory();
    }
    let (wanted, buffer_bytes) = match multi {
        true => (FABRIC_MULTI_RECEIVES, FABRIC_MULTI_FRAMES * place_bytes),
        false if is_named(info.provider(), "shm") => (FABRIC_RECEIVES_NEAR, place_bytes),
        false => (FABRIC_RECEIVES, place_bytes),
    };
    let fabric = Fabric::open(&info)?;
    let inject_max = info.tx_attr().inject_size.min(place_bytes);
    let depth = |size: usize, wanted: usize| if size == 0 { wanted } else { size.min(wanted) };
    let sends = depth(info.tx_attr().size, FABRIC_SENDS);
    let receives = depth(info.rx_attr().size, wanted);
    // SAFETY: everything that is opened stays with one port, which is not shared between threads.
    #[expect(unsafe_code, reason = "FFI")]
    let domain = unsafe { Domain::open(&fabric, info)? };
    let addresses = AddressVector::open(&domain, 64)?;
    let matched_receives = if matches { FABRIC_MATCHED_RECEIVES } else { 0 };
    let queue =
        CompletionQueue::open(&domain, 2 * (FABRIC_SENDS + FABRIC_RECEIVES) + matched_receives, !config.choice.polls)?;
    let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue)?;
    if multi {
        endpoint.set_least_room(place_bytes)?;
    }
    // The last place is no slot: frames to be injected are assembled there.
    let (sending, receiving) = (Slab::new(sends + 1, place_bytes), Slab::new(receives, buffer_bytes));
    Ok(Opened { endpoint, addresses, queue, sending, receiving, sends, receives, inject_max, multi })
}

/// Registers the slots and buffers, if the provider requires it.
fn register(opened: &Opened) -> Result<(Vec<MemoryRegion>, Descriptors), OfiError> {
    let Opened { endpoint, sending, receiving, sends, .. } = opened;
    let info = endpoint.domain().info();
    let mut descriptors = Descriptors { slots: vec![null_mut(); *sends].into(), buffers: null_mut() };
    let mut regions = Vec::new();
    if !info.is_told_of_local_memory() {
        return Ok((regions, descriptors));
    }
    let mut register = |places: Span, access| {
        let key = regions.len() as u64;
        // SAFETY: the slabs are freed after the regions are closed.
        #[expect(unsafe_code, reason = "FFI")]
        let region = unsafe { MemoryRegion::register(endpoint.domain(), places, access, key, Some(endpoint))? };
        let descriptor = region.descriptor();
        regions.push(region);
        Ok(descriptor)
    };
    descriptors.buffers = register(receiving.whole(), sys::FI_RECV)?;
    if is_named(info.provider(), READ_FROM_START) {
        for (slot, descriptor) in descriptors.slots.iter_mut().enumerate() {
            *descriptor = register(sending.place(slot), sys::FI_SEND)?;
        }
    } else {
        descriptors.slots.fill(register(sending.whole(), sys::FI_SEND)?);
    }
    Ok((regions, descriptors))
}

impl Port {
    /// Opens a candidate for frames of up to the configured length.
    ///
    /// With `tags`, opens the port in tagged mode; `tags` also gives the most bytes of a message that the provider matches.
    pub(in crate::ofi) fn open(info: Info, config: &OfiConfig, tags: Option<(Tags, usize)>) -> Result<Self, OfiError> {
        let OfiConfig { lengths, progress_event_count: events, .. } = *config;
        let directed = info.raw().caps & sys::FI_DIRECTED_RECV != 0;
        let depth = info.rx_attr().size;
        let matching = tags.map(|(tags, matched_max)| Box::new(Matching::new(tags, directed, matched_max, depth)));
        let longest = lengths.frame_max().max(tags.map_or(0, |(_, matched_max)| matched_max));
        let place_bytes = (LEAD_BYTES + longest).next_multiple_of(64);
        let opened = open(info, config, matching.is_some(), place_bytes)?;
        let (regions, descriptors) = register(&opened)?;
        let Opened { endpoint, addresses, queue, sending, receiving, sends, receives, inject_max, multi } = opened;
        let copies = if config.choice.rings > 0 { FABRIC_RING_COPIES } else { 0 };
        let mut port = Port {
            endpoint,
            addresses,
            queue,
            regions,
            desk: sending.place(sends),
            sending,
            receiving,
            contexts: Contexts::new(sends + receives),
            matching,
            rma: None,
            copies: Slab::new(copies, FABRIC_RING_COPY_BYTES),
            posted: receives,
            free_copies: (0..copies as u32).collect(),
            ringing: Vec::new(),
            unrung: Vec::new(),
            rings_max: config.choice.rings,
            rma_state: RmaState::new(RmaConfig::new(config)),
            registry: Registry::default(),
            peers: Vec::new(),
            vcs: Vec::new(),
            sources: vec![sys::FI_ADDR_NOTAVAIL; events.max(1)].into(),
            descriptors,
            free: (0..sends as u32).rev().collect(),
            links: vec![NIL; sends],
            buffers: vec![Buffer::default(); receives + copies],
            idle: (0..receives as u32).collect(),
            lent: Vec::with_capacity(receives),
            frames: VecDeque::with_capacity(receives),
            early: Vec::new(),
            lanes: Vec::new(),
            completions: vec![no_completion(); events.max(1)].into(),
            unread: 0..0,
            inject_max,
            pack_bytes: (LEAD_BYTES + lengths.part_bytes).min(place_bytes),
            packs: Vec::new(),
            beginning: Vec::new(),
            look: 0,
            last_found: 0,
            moving: Vec::new(),
            done: Vec::new(),
            receive_flags: if multi { sys::FI_MULTI_RECV } else { 0 },
            blocked: false,
            sends_ended: 0,
            is_broken_told: false,
            old_rings: Vec::new(),
            faults: Vec::new(),
            broken: None,
            failures: 0,
            disturbed: false,
            strays: 0,
            moved: (0, 0),
        };
        port.post();
        match port.broken.take() {
            Some(words) => Err(OfiError::Unknown { name: port.provider().into(), found: words }),
            None => Ok(port),
        }
    }
}
