//! Long messages sent directly from the memory of their sender into that of their receiver.
//!
//! Frames are copied into and out of memory of the port. So a long message sent in pieces is copied at both ends, in addition to the
//! provider's own copies. Memory of the application may be lent to a provider only if it can be taken back when a peer has gone. In
//! libfabric, the only way to take it back is to close the endpoint. So, from its first long message on, a connection has one more endpoint
//! on either side, for this peer alone.
//!
//! The receiver numbers the messages that it asks for, and posts receives for their pieces in this order. The sender sends the pieces in
//! the same order. (Tagged messages could go in any order, but take a tenth longer.) Each piece follows a *lead*, which is received into
//! memory of the endpoint. Strangers do not know the token in it. A piece other than the expected one ends the connection.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | the token that the receiver has given for this connection |
//! | 8–11 | number of the message, wrapping |
//! | 12–15 | number of the piece in its message |

mod moving;

use self::moving::{LAST_MIN, LEAD_BYTES, Lead, Moving, PIECE_BYTES, Piece};
use super::hints::message_hints;
use super::registry::{Local, OfDomain, Place, Registry};
use super::rma::MemoryMode;
use super::slab::{Contexts, Slab};
use super::{
    AddressVector, Completion, CompletionQueue, Domain, Endpoint, Fabric, Hints, Info, OfiError, ReadError, Refused,
    no_completion,
};
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;
use tickwire_components::limits::{
    DIRECT_COMPLETIONS, DIRECT_MESSAGES, DIRECT_MIN, DIRECT_RECEIVES, DIRECT_SENDS, MESSAGE_MAX,
};
use tickwire_components::{Row, Span};

/// Providers that may be lent memory of the application: closing their endpoints is safe whatever is in flight. With `ofi_rxm` it is not
/// when a peer has gone.
const PROVIDERS: [&str; 1] = ["net"];
/// The variable that tells `net` how many bytes it may keep in its staging buffers; 9000 if unset.
const KEPT_BYTES: &str = "FI_NET_STAGING_SBUF_SIZE";

const _: () = assert!(MESSAGE_MAX.div_ceil(PIECE_BYTES as u64) < 1 << 32 && DIRECT_MIN >= LAST_MIN);

/// A completed piece: its message's row if this was the last piece, its bytes, and whether it was received.
pub(super) struct Done {
    pub(super) row: Option<Row>,
    pub(super) bytes: u64,
    pub(super) received: bool,
}

/// The endpoint for the long messages of one connection. Dropping it ends the messages in flight.
pub(super) struct Direct {
    // Closed in this order: the memory that the provider may touch until then comes last.
    endpoint: Endpoint,
    addresses: AddressVector,
    queue: CompletionQueue,
    contexts: Contexts,
    /// Messages in flight. Their regions are closed after the endpoint.
    receives: VecDeque<Moving>,
    sends: Vec<Moving>,
    known: Option<Known>,
    leads: Slab,
    /// The peer, once its address is known.
    peer: Option<sys::fi_addr_t>,
    /// The tokens of pieces from the peer, and of pieces to the peer.
    mine: u64,
    theirs: u64,
    /// Numbers of the next message to ask for, and of the next message to send.
    next: u32,
    due: u32,
    /// The piece that each context belongs to. Contexts of receives come first.
    pieces: Vec<Option<Piece>>,
    free_receives: Vec<u32>,
    free_sends: Vec<u32>,
}

/// The registrations of an endpoint whose domain requires local memory to be registered.
struct Known {
    leads: Local,
    key_mask: u64,
    registry: Registry,
    _regions: OfDomain,
}

/// Whether a provider may be lent memory of the application.
pub(super) fn is_safe(provider: &str) -> bool {
    let kept = std::env::var(KEPT_BYTES).map_or(Some(0), |words| words.parse::<usize>().ok());
    PROVIDERS.contains(&provider) && kept.is_some_and(|bytes| bytes < LAST_MIN / 2)
}

impl Direct {
    /// Opens such an endpoint beside the port's endpoint, for a connection with these tokens.
    ///
    /// # Errors
    /// [`OfiError`]; also if the provider binds memory regions to endpoints, since closing an endpoint would not take memory back then.
    pub(super) fn open(info: &Info, mine: u64, theirs: u64, registry: &Registry) -> Result<Self, OfiError> {
        let is_told = info.is_told_of_local_memory();
        let provider = info.provider().to_owned();
        let unknown = |found: &str| OfiError::Unknown { name: provider.clone(), found: found.into() };
        let hints = Hints { provider: Some(provider.clone()), ..message_hints() };
        let same = |other: &Info| other.domain() == info.domain() && other.source() == info.source();
        let found = Info::list(info.library(), &hints)?.into_iter().find(same);
        let mut info = found.ok_or_else(|| unknown("it is gone"))?.copy()?;
        if is_told {
            info.tell_of_local_memory();
        }
        let memory = MemoryMode::of(&info).map_err(|why| unknown(&why))?;
        if memory.local && memory.endpoint {
            return Err(unknown("its memory must be bound to endpoints"));
        }
        let fabric = Fabric::open(&info)?;
        // SAFETY: everything that is opened stays in here, which is not shared between threads.
        #[expect(unsafe_code, reason = "FFI")]
        let domain = unsafe { Domain::open(&fabric, info)? };
        let addresses = AddressVector::open(&domain, 1)?;
        let queue = CompletionQueue::open(&domain, 2 * (DIRECT_RECEIVES + DIRECT_SENDS), false)?;
        let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue)?;
        let leads = Slab::new(DIRECT_RECEIVES + DIRECT_SENDS, LEAD_BYTES);
        let known = if memory.local {
            let place = Place { domain: &domain, endpoint: None, key_mask: memory.key_mask };
            // SAFETY: the slab is freed after the region is closed.
            #[expect(unsafe_code, reason = "FFI")]
            let local = unsafe { registry.local(place, leads.whole(), sys::FI_SEND | sys::FI_RECV) };
            let (registry, _regions) = (registry.clone(), registry.of_domain(&domain));
            let leads = local.map_err(|why| unknown(&why))?;
            Some(Known { leads, key_mask: memory.key_mask, registry, _regions })
        } else {
            None
        };
        Ok(Direct {
            endpoint,
            addresses,
            queue,
            contexts: Contexts::new(DIRECT_RECEIVES + DIRECT_SENDS),
            receives: VecDeque::new(),
            sends: Vec::new(),
            known,
            leads,
            peer: None,
            mine,
            theirs,
            next: 0,
            due: 0,
            pieces: vec![None; DIRECT_RECEIVES + DIRECT_SENDS],
            free_receives: (0..DIRECT_RECEIVES as u32).collect(),
            free_sends: (DIRECT_RECEIVES as u32..(DIRECT_RECEIVES + DIRECT_SENDS) as u32).collect(),
        })
    }

    /// The address of this endpoint, for the peer.
    pub(super) fn name(&self) -> Result<Vec<u8>, OfiError> {
        self.endpoint.name()
    }

    /// Enters the address of the peer's endpoint.
    pub(super) fn meet(&mut self, address: &[u8]) -> Result<(), OfiError> {
        self.peer = Some(self.addresses.insert(address)?);
        Ok(())
    }

    /// Whether the peer's address is known.
    pub(super) fn has_met(&self) -> bool {
        self.peer.is_some()
    }

    /// Accepts a receive, unless there are too many or it is too short, and posts as many of its pieces as possible. Returns the message's
    /// number.
    ///
    /// # Errors
    /// Why the provider fails, in words.
    pub(super) fn expect(&mut self, row: Row, into: Span) -> Result<Option<u32>, String> {
        if self.receives.len() == DIRECT_MESSAGES || self.peer.is_none() || into.len() < LAST_MIN {
            return Ok(None);
        }
        // If the memory cannot be registered, the message goes in pieces as frames.
        let Ok(region) = self.region(into, sys::FI_RECV) else { return Ok(None) };
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.receives.push_back(Moving::new(row, number, into, region));
        self.post_receives()?;
        Ok(Some(number))
    }

    /// Sends a message that the peer has asked for. It is sent in the order of the numbers, and only once the peer's address is known: the
    /// request may arrive before the address.
    ///
    /// # Errors
    /// Why the provider fails, in words.
    pub(super) fn send(&mut self, row: Row, number: u32, from: Span) -> Result<(), String> {
        let region = self.region(from, sys::FI_SEND)?;
        self.sends.push(Moving::new(row, number, from, region));
        self.post_sends()
    }

    /// The memory region of a message's buffer, if one is needed.
    fn region(&self, place: Span, flags: u64) -> Result<Option<Local>, String> {
        let Some(Known { key_mask, registry, .. }) = &self.known else { return Ok(None) };
        let at = Place { domain: self.endpoint.domain(), endpoint: None, key_mask: *key_mask };
        // SAFETY: the place is the transport's until its message is done, or this endpoint is closed.
        #[expect(unsafe_code, reason = "FFI")]
        let region = unsafe { registry.local(at, place, flags) };
        region.map(Some)
    }

    /// The descriptor of the memory of leads.
    fn lead_descriptor(&self) -> *mut c_void {
        self.known.as_ref().map_or(null_mut(), |known| known.leads.descriptor())
    }

    /// Whether messages to the peer are in flight.
    pub(super) fn is_sending(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Whether messages from the peer are in flight.
    pub(super) fn is_receiving(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Reads completions, reports them to `tell`, and posts further pieces. Returns how many completions there were.
    ///
    /// # Errors
    /// Why the endpoint is unusable, in words.
    pub(super) fn poll(&mut self, mut tell: impl FnMut(Done)) -> Result<usize, String> {
        let mut completions = [no_completion(); DIRECT_COMPLETIONS];
        let count = match self.queue.read(&mut completions) {
            Ok(count) => count,
            Err(ReadError::Failed(failure)) => return Err(failure.words),
            Err(ReadError::Broken(error)) => return Err(error.to_string()),
        };
        for completion in &completions[..count] {
            tell(self.completed(completion)?);
        }
        self.post_receives()?;
        self.post_sends()?;
        Ok(count)
    }

    fn completed(&mut self, completion: &Completion) -> Result<Done, String> {
        let index = self.contexts.index(completion.op_context);
        let found = index.and_then(|index| Some((index, self.pieces[index].take()?)));
        let Some((index, Piece { row, bytes, lead })) = found else { return Err("a completion of nothing".into()) };
        let received = index < DIRECT_RECEIVES;
        let at = if received {
            self.free_receives.push(index as u32);
            let came = Lead::read(self.leads.place(index));
            if completion.len != LEAD_BYTES + bytes || came != lead {
                return Err(format!("{} bytes that are not the piece that was due", completion.len));
            }
            self.receives.iter_mut().position(|moving| moving.row == row)
        } else {
            self.free_sends.push(index as u32);
            self.sends.iter_mut().position(|moving| moving.row == row)
        };
        let Some(at) = at else { return Err("a completion of no message".into()) };
        let moving = if received { &mut self.receives[at] } else { &mut self.sends[at] };
        moving.done += bytes;
        let over = moving.done == moving.place.len();
        match received {
            true if over => drop(self.receives.remove(at)),
            false if over => drop(self.sends.swap_remove(at)),
            _ => {}
        }
        Ok(Done { row: over.then_some(row), bytes: bytes as u64, received })
    }

    /// Whether the provider has accepted a piece. If not, it may accept it later.
    fn is_taken(&self, call: &'static str, code: isize) -> Result<bool, String> {
        match self.endpoint.posted(call, code) {
            Ok(()) => Ok(true),
            Err(Refused::Again) => Ok(false),
            Err(Refused::Failed(error)) => Err(error.to_string()),
        }
    }

    /// Posts receives for the pieces of expected messages, in their order.
    fn post_receives(&mut self) -> Result<(), String> {
        let Some(mut at) = self.receives.iter().position(|moving| !moving.is_given()) else { return Ok(()) };
        while let Some(moving) = self.receives.get(at)
            && let Some(&index) = self.free_receives.last()
        {
            let (place, piece) = moving.next(self.mine);
            let runs = [self.leads.place(index as usize), place].map(run);
            let mut described = moving.descriptors(self.lead_descriptor());
            let (endpoint, from) = (self.endpoint.as_ptr(), sys::FI_ADDR_UNSPEC);
            let context = self.contexts.of(index as usize);
            // SAFETY: the place is the transport's until its message is done or this endpoint is closed; lead and context
            // belong to the piece. The list of runs is copied by the call.
            #[expect(unsafe_code, reason = "FFI")]
            let code = unsafe {
                sys::ops::fi_recvv(endpoint, runs.as_ptr(), described.as_mut_ptr(), runs.len(), from, context)
            };
            if !self.is_taken("fi_recvv", code)? {
                break;
            }
            self.free_receives.pop();
            self.pieces[index as usize] = Some(piece);
            self.receives[at].give(&piece);
            at += usize::from(self.receives[at].is_given());
        }
        Ok(())
    }

    /// Sends pieces of the next message, in the order of the numbers.
    fn post_sends(&mut self) -> Result<(), String> {
        let Some(to) = self.peer else { return Ok(()) };
        while let Some(&index) = self.free_sends.last()
            && let Some(at) = self.sends.iter().position(|moving| moving.number == self.due && !moving.is_given())
        {
            let (place, piece) = self.sends[at].next(self.theirs);
            let lead = self.leads.place(index as usize);
            piece.lead.write(lead);
            let (runs, endpoint) = ([lead, place].map(run), self.endpoint.as_ptr());
            let mut described = self.sends[at].descriptors(self.lead_descriptor());
            let context = self.contexts.of(index as usize);
            // SAFETY: as for receives.
            #[expect(unsafe_code, reason = "FFI")]
            let code =
                unsafe { sys::ops::fi_sendv(endpoint, runs.as_ptr(), described.as_mut_ptr(), runs.len(), to, context) };
            if !self.is_taken("fi_sendv", code)? {
                break;
            }
            self.free_sends.pop();
            self.pieces[index as usize] = Some(piece);
            self.sends[at].give(&piece);
            self.due = self.due.wrapping_add(u32::from(self.sends[at].is_given()));
        }
        Ok(())
    }
}

fn run(span: Span) -> libc::iovec {
    libc::iovec { iov_base: span.start().cast(), iov_len: span.len() }
}
