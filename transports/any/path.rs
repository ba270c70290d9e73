//! Calls of any transport on the message path. Code for rings exists once, and not once for each transport that consists of rings.

use super::outside::Outside;
use super::variants::{AnyTransport, each};
use crate::frames::{Frame, Sent};
use crate::take::Take;
use crate::transport::Transport;
use std::any::Any;
use tickwire_components::limits::BOXED_RUNS_MAX;
use tickwire_components::wire::Header;
use tickwire_components::{Access, Arrival, Pieces, Span, Spans, Stretch};

impl AnyTransport {
    /// See [`Transport::send`]. `state` is the row state. Only [`AnyTransport::Outside`] uses it.
    #[inline(always)]
    pub fn send<P: Pieces + ?Sized>(
        &mut self,
        link: u32,
        header: &Header,
        pieces: &P,
        state: Option<&mut dyn Any>,
    ) -> Sent {
        match self.links() {
            Some(links) => links.send(link, header, pieces),
            None => self.send_otherwise(link, header, pieces, state),
        }
    }

    /// [`AnyTransport::send`] of a message without a row, for the one place that sends most.
    #[inline(always)]
    pub fn send_inline<P: Pieces + ?Sized>(&mut self, link: u32, header: Header, pieces: &P) -> Sent {
        match self.links() {
            Some(links) => links.send_inline(link, &header, pieces),
            None => {
                // What is lent to a call has to be in memory, also where the call is not made: it gets its own.
                let lent = header;
                self.send_otherwise(link, &lent, pieces, None)
            }
        }
    }

    /// As [`AnyTransport::send_inline`], for a transport that is prompt.
    #[inline(always)]
    pub fn send_promptly<P: Pieces + ?Sized>(&mut self, link: u32, header: Header, pieces: &P) -> Sent {
        match self {
            AnyTransport::Ofi(t) => t.send(link, &header, pieces, &mut ()),
            _ => self.send_inline(link, header, pieces),
        }
    }

    /// Whether everything sent over a connection of the proc to itself has been read. `false` for transports that do not know.
    #[inline(always)]
    pub fn is_drained(&mut self, link: u32) -> bool {
        match self {
            AnyTransport::Loopback(t) => t.links_mut().is_drained(link),
            _ => false,
        }
    }

    /// As [`AnyTransport::send`], of a transport that is not made of rings.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline(never)]
    fn send_otherwise<P: Pieces + ?Sized>(
        &mut self,
        link: u32,
        header: &Header,
        pieces: &P,
        state: Option<&mut dyn Any>,
    ) -> Sent {
        match self {
            AnyTransport::Loopback(t) => t.send(link, header, pieces, &mut ()),
            AnyTransport::Shm(t) => t.send(link, header, pieces, &mut ()),
            AnyTransport::Ofi(t) => t.send(link, header, pieces, &mut ()),
            AnyTransport::Outside(t) => match pieces.layout() {
                None => {
                    let runs: Spans = (0..pieces.pieces()).map(|i| pieces.piece(i)).collect();
                    // SAFETY: the runs of a buffer that is borrowed.
                    unsafe { t.send(link, header, &runs, state) }
                }
                // SAFETY: the layout of a buffer that is borrowed.
                Some(layout) if header.payload() > 0 => unsafe { send_layout(&mut **t, link, header, &layout, state) },
                // SAFETY: there are none.
                Some(_) => unsafe { t.send(link, header, &[], state) },
            },
        }
    }

    /// See [`Transport::send_batch`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: Option<&mut dyn Any>) -> (usize, Sent) {
        // SAFETY: by the same contract.
        unsafe {
            match self {
                AnyTransport::Loopback(t) => t.send_batch(link, frames, &mut ()),
                AnyTransport::Shm(t) => t.send_batch(link, frames, &mut ()),
                AnyTransport::Ofi(t) => t.send_batch(link, frames, &mut ()),
                AnyTransport::Outside(t) => t.send_batch(link, frames, state),
            }
        }
    }

    /// See [`Transport::flush`].
    #[inline(always)]
    pub fn flush(&mut self) {
        match self {
            AnyTransport::Ofi(t) => t.flush(),
            _ => self.flush_otherwise(),
        }
    }

    #[inline(never)]
    fn flush_otherwise(&mut self) {
        each!(self, t => t.flush());
    }

    /// See [`Transport::ready`].
    #[inline(always)]
    pub fn ready(&self) -> bool {
        self.rings_ready() || (!self.has_rings() && self.is_otherwise_ready())
    }

    /// [`AnyTransport::ready`] for a transport that consists of rings; `false` for all others. Makes no call.
    #[inline(always)]
    pub fn rings_ready(&self) -> bool {
        match self {
            AnyTransport::Loopback(t) => t.ready(),
            AnyTransport::Shm(t) => t.ready(),
            _ => false,
        }
    }

    /// As [`AnyTransport::ready`], of a transport that is not made of rings.
    #[inline(never)]
    fn is_otherwise_ready(&self) -> bool {
        each!(self, t => t.ready())
    }

    /// See [`Transport::deliver`].
    #[inline(always)]
    pub fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        match self.links() {
            Some(links) => links.deliver(most, take),
            None => self.deliver_otherwise(most, take),
        }
    }

    /// As [`AnyTransport::deliver`], of a transport that is not made of rings.
    #[inline(never)]
    fn deliver_otherwise(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        match self {
            AnyTransport::Ofi(t) => t.deliver(most, take),
            AnyTransport::Outside(t) => t.deliver(most, take),
            _ => (0, self.ready()),
        }
    }

    /// Whether [`AnyTransport::look_and_deliver`] does more than [`AnyTransport::ready`].
    pub fn is_prompt(&self) -> bool {
        matches!(self, AnyTransport::Ofi(_))
    }

    /// [`AnyTransport::ready`], and if it is, [`AnyTransport::deliver`] in one. A `patient` look is of somebody who has
    /// nothing else to do.
    #[inline(never)]
    pub fn look_and_deliver(&mut self, most: u32, patient: bool, take: &mut impl Take) -> (u32, bool) {
        match self {
            AnyTransport::Ofi(t) => t.look_and_deliver(most, patient, take),
            _ if self.ready() => self.deliver(most, take),
            _ => (0, false),
        }
    }

    /// See [`Transport::drain`].
    #[inline]
    pub fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        each!(self, t => t.drain(now_ns, arrivals))
    }

    /// See [`Transport::drain_link`].
    pub fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        each!(self, t => t.drain_link(link, now_ns, arrivals))
    }

    /// See [`Transport::release`].
    #[inline]
    pub fn release(&mut self) {
        each!(self, t => t.release());
    }
}

/// Sends bytes that a datatype scatters: run by run if there are few runs, otherwise packed.
///
/// # Safety
/// The layout's buffer is valid for reads.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[cold]
unsafe fn send_layout(
    transport: &mut dyn Outside,
    link: u32,
    header: &Header,
    layout: &Stretch,
    state: Option<&mut dyn Any>,
) -> Sent {
    // SAFETY: by this function's contract.
    let runs: Spans = unsafe { layout.runs() }.take(BOXED_RUNS_MAX + 1).collect();
    // Known memory is what it is packed into, for as long as the frame takes.
    let register = layout.len() > transport.capabilities().inject_max && transport.registering().is_some();
    if runs.len() <= BOXED_RUNS_MAX && !register {
        // SAFETY: by this function's contract.
        return unsafe { transport.send(link, header, &runs, state) };
    }
    let mut packed = vec![0; layout.len()];
    // SAFETY: the new bytes, which live until the call returns.
    let run = unsafe { Span::new(packed.as_mut_ptr(), packed.len()) };
    // SAFETY: as above, and by this function's contract.
    unsafe { layout.pack(run) };
    let registration = match transport.registering().filter(|_| register).map(|known| known.register(run, Access::SEND))
    {
        Some(Ok(registration)) => Some(registration),
        Some(Err(_)) => return Sent::Blocked,
        None => None,
    };
    // SAFETY: as above.
    let sent = unsafe { transport.send(link, header, &[run], state) };
    if let (Some(registration), Some(known)) = (registration, transport.registering()) {
        known.deregister(registration);
    }
    sent
}
