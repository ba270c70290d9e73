//! Long messages straight from the memory of their sender into that of their receiver.
//!
//! Frames go through places of the port's own, so a long message in pieces is copied at both ends, beside what the provider
//! does. Memory of the application can be given to a provider only if it can be taken back when a peer is gone, which libfabric
//! has one way for: to close the endpoint. So a connection has, from its first long message on, one more endpoint on either
//! side, for this peer alone.
//!
//! The receiver numbers the messages that it asks for, and posts their pieces in this order; in this order the sender sends
//! them. (Tagged ones could go in any order, and take a tenth longer.) Each piece follows a lead, which goes into a place of
//! the endpoint's own: strangers do not know the token, and a piece that is not the one that is due ends the connection.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | the token that the receiver has given for this connection |
//! | 8–11 | number of the message, wrapping |
//! | 12–15 | number of the piece in its message |

mod moving;

use self::moving::{LAST_MIN, LEAD_BYTES, Lead, Moving, PIECE_BYTES, Piece};
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
use tickwire_components::limits::{DIRECT_MIN, MESSAGE_MAX};
use tickwire_components::{Row, Span};

/// Providers that may be given memory of the application: closing an endpoint of theirs is safe whatever is under way. That
/// of `ofi_rxm` is not when a peer is gone.
const PROVIDERS: [&str; 1] = ["net"];
/// Where `net` is told how many bytes it may keep so: 9000 without.
const KEPT_BYTES: &str = "FI_NET_STAGING_SBUF_SIZE";
/// Messages that a peer is asked for at a time.
const MESSAGES: usize = 32;
/// Pieces that are posted ahead, and that are given to the provider at a time.
const RECEIVES: usize = 32;
const SENDS: usize = 4;
/// Completions that a look reads.
const COMPLETIONS: usize = 16;

const _: () = assert!(MESSAGE_MAX.div_ceil(PIECE_BYTES as u64) < 1 << 32 && DIRECT_MIN >= LAST_MIN);

/// Tells of a piece that is done: its message's row if it was the last, its bytes, and whether it came from the peer.
pub(super) struct Done {
    pub(super) row: Option<Row>,
    pub(super) bytes: u64,
    pub(super) received: bool,
}

/// The endpoint for the long messages of one connection. Dropping it ends what is under way.
pub(super) struct Direct {
    // Closed in this order; what the provider may touch until then comes last.
    endpoint: Endpoint,
    addresses: AddressVector,
    queue: CompletionQueue,
    contexts: Contexts,
    /// Messages under way; their regions are closed behind the endpoint.
    receives: VecDeque<Moving>,
    sends: Vec<Moving>,
    known: Option<Known>,
    leads: Slab,
    /// The peer, once its address is known.
    peer: Option<sys::fi_addr_t>,
    /// What pieces from the peer show, and pieces to it.
    mine: u64,
    theirs: u64,
    /// Numbers of the next message to be asked for, and to be sent.
    next: u32,
    due: u32,
    /// What each context is for; those of receives come first.
    pieces: Vec<Option<Piece>>,
    free_receives: Vec<u32>,
    free_sends: Vec<u32>,
}

/// What an endpoint has whose domain must know local memory.
struct Known {
    leads: Local,
    key_mask: u64,
    registry: Registry,
    _regions: OfDomain,
}

/// Whether a provider may be given memory of the application.
pub(super) fn is_safe(provider: &str) -> bool {
    let kept = std::env::var(KEPT_BYTES).map_or(Some(0), |words| words.parse::<usize>().ok());
    PROVIDERS.contains(&provider) && kept.is_some_and(|bytes| bytes < LAST_MIN / 2)
}

impl Direct {
    /// Opens one beside an endpoint of a candidate, for a connection with these tokens.
    ///
    /// # Errors
    /// [`OfiError`]; also if the provider binds memory to endpoints: to close one would not take memory back then.
    pub(super) fn open(info: &Info, mine: u64, theirs: u64, registry: &Registry) -> Result<Self, OfiError> {
        let is_told = info.is_told_of_local_memory();
        let provider = info.provider().to_owned();
        let unknown = |found: &str| OfiError::Unknown { name: provider.clone(), found: found.into() };
        let hints = Hints { provider: Some(provider.clone()), ..super::message_hints() };
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
        let queue = CompletionQueue::open(&domain, 2 * (RECEIVES + SENDS), false)?;
        let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue)?;
        let leads = Slab::new(RECEIVES + SENDS, LEAD_BYTES);
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
            contexts: Contexts::new(RECEIVES + SENDS),
            receives: VecDeque::new(),
            sends: Vec::new(),
            known,
            leads,
            peer: None,
            mine,
            theirs,
            next: 0,
            due: 0,
            pieces: vec![None; RECEIVES + SENDS],
            free_receives: (0..RECEIVES as u32).collect(),
            free_sends: (RECEIVES as u32..(RECEIVES + SENDS) as u32).collect(),
        })
    }

    /// Its address, for the peer.
    pub(super) fn name(&self) -> Result<Vec<u8>, OfiError> {
        self.endpoint.name()
    }

    /// Says where the peer's is.
    pub(super) fn meet(&mut self, address: &[u8]) -> Result<(), OfiError> {
        self.peer = Some(self.addresses.insert(address)?);
        Ok(())
    }

    /// Whether the peer's is known.
    pub(super) fn has_met(&self) -> bool {
        self.peer.is_some()
    }

    /// Takes a message, if there are not too many and it is long enough, and posts what it can of it; returns its number.
    ///
    /// # Errors
    /// Why the provider fails, in words.
    pub(super) fn expect(&mut self, row: Row, into: Span) -> Result<Option<u32>, String> {
        if self.receives.len() == MESSAGES || self.peer.is_none() || into.len() < LAST_MIN {
            return Ok(None);
        }
        // Memory that cannot be registered gets its message in pieces.
        let Ok(region) = self.region(into, sys::FI_RECV) else { return Ok(None) };
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.receives.push_back(Moving::new(row, number, into, region));
        self.post_receives()?;
        Ok(Some(number))
    }

    /// Sends a message that the peer has asked for, in its turn, and once its address is known: the question may come first.
    ///
    /// # Errors
    /// Why the provider fails, in words.
    pub(super) fn send(&mut self, row: Row, number: u32, from: Span) -> Result<(), String> {
        let region = self.region(from, sys::FI_SEND)?;
        self.sends.push(Moving::new(row, number, from, region));
        self.post_sends()
    }

    /// The region of a message's place, where it needs one.
    fn region(&self, place: Span, flags: u64) -> Result<Option<Local>, String> {
        let Some(Known { key_mask, registry, .. }) = &self.known else { return Ok(None) };
        let at = Place { domain: self.endpoint.domain(), endpoint: None, key_mask: *key_mask };
        // SAFETY: the place is the transport's until its message is done, or this endpoint is closed.
        #[expect(unsafe_code, reason = "FFI")]
        let region = unsafe { registry.local(at, place, flags) };
        region.map(Some)
    }

    /// What operations on leads take.
    fn lead_descriptor(&self) -> *mut c_void {
        self.known.as_ref().map_or(null_mut(), |known| known.leads.descriptor())
    }

    /// Whether messages to the peer are under way.
    pub(super) fn is_sending(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Whether messages from the peer are.
    pub(super) fn is_receiving(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Reads completions, tells of them, and goes on. Returns how many there were.
    ///
    /// # Errors
    /// Why nothing goes any more, in words.
    pub(super) fn poll(&mut self, mut tell: impl FnMut(Done)) -> Result<usize, String> {
        let mut completions = [no_completion(); COMPLETIONS];
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
        let received = index < RECEIVES;
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

    /// Whether the provider has taken a piece; if not, it may later.
    fn is_taken(&self, call: &'static str, code: isize) -> Result<bool, String> {
        match self.endpoint.posted(call, code) {
            Ok(()) => Ok(true),
            Err(Refused::Again) => Ok(false),
            Err(Refused::Failed(error)) => Err(error.to_string()),
        }
    }

    /// Posts pieces of the messages that are awaited, in their order.
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

    /// Sends pieces of the message whose turn it is.
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
