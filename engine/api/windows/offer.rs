//! What a member of a window has for its part, and what it tells the others of it.

use std::any::Any;
use tickwire_components::{Span, bytemuck};
use tickwire_systems::procs::windows::OwnMemory;
use tickwire_transports::rings::fences::one_sided;

/// The endpoint and the link over which a member's memory is reached; `None` of the own one, and of one that has failed.
pub(crate) type Link = Option<(u8, u32)>;

/// What a member has for its part, as it tells the others.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Offer {
    /// Bytes of its memory.
    pub(super) bytes: u64,
    /// Where it is, of a buffer.
    pub(super) address: u64,
    /// See the constants.
    pub(super) has: u64,
    /// What a fabric calls it: key and base.
    pub(super) fabric: [u64; 2],
    /// The numbers of the transports that share its run and know its memory, where they do.
    pub(super) over: [u32; 2],
}

// SAFETY: whole words.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Zeroable for Offer {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Pod for Offer {}

/// It has memory for its part.
pub(super) const MEMORY: u64 = 1;
/// It has a run that it can share.
pub(super) const RUN: u64 = 2;
/// It has one-sided fences.
pub(super) const FENCES: u64 = 4;
/// Its memory is a buffer, in reach of the kernel.
pub(super) const KERNEL: u64 = 8;
/// Its memory is attached later.
pub(super) const ATTACHED: u64 = 16;
/// A fabric reaches its memory.
pub(super) const FABRIC: u64 = 32;

impl Offer {
    /// Of a member that may have memory, and a run that it can share.
    pub(super) fn of(brought: &Brought, has_memory: bool, shares: bool) -> Self {
        let (address, kind) = match &brought.memory {
            Brings::Allocated | Brings::Copied(..) => (0, 0),
            Brings::Buffer(span, _) => (span.start().expose_provenance() as u64, KERNEL),
            Brings::Attached => (0, ATTACHED),
        };
        let flag = |has, flag| if has { flag } else { 0 };
        let has = kind | flag(has_memory, MEMORY) | flag(shares, RUN) | flag(one_sided(), FENCES);
        Offer { bytes: brought.bytes as u64, address, has, fabric: [0; 2], over: [0; 2] }
    }
}

/// What a member brings.
pub(super) struct Brought {
    pub(super) memory: Brings,
    /// Bytes of it.
    pub(super) bytes: usize,
}

/// Where the memory comes from.
#[derive(Default)]
pub(super) enum Brings {
    /// Memory that is to be allocated.
    Allocated,
    /// A buffer, and where it is.
    Buffer(Span, Box<dyn Any + Send + Sync>),
    /// The same, of which there is a copy in allocated memory while the window lives.
    Copied(Span, Box<dyn Any + Send + Sync>),
    /// What is attached later. Also what stands here while a buffer is looked at.
    #[default]
    Attached,
}

impl Brings {
    /// The call that makes a window of it; `shared` if all members must share the memory.
    pub(super) fn call(&self, shared: bool) -> &'static str {
        match self {
            Brings::Allocated if shared => "win_allocate_shared",
            Brings::Allocated => "win_allocate",
            Brings::Buffer(..) | Brings::Copied(..) => "win_create",
            Brings::Attached => "win_create_dynamic",
        }
    }

    /// As the memory of the own part.
    pub(super) fn into_own(self) -> OwnMemory {
        match self {
            Brings::Allocated => OwnMemory::Allocated,
            Brings::Buffer(_, buffer) => OwnMemory::Buffer(buffer),
            Brings::Copied(span, buffer) => OwnMemory::Copied(span, buffer),
            Brings::Attached => OwnMemory::Attached(Vec::new()),
        }
    }

    /// What was brought for a window that could not be made.
    pub(super) fn back(own: OwnMemory) -> Self {
        match own {
            OwnMemory::Buffer(buffer) | OwnMemory::Copied(_, buffer) => Brings::Buffer(Span::EMPTY, buffer),
            OwnMemory::Allocated => Brings::Allocated,
            OwnMemory::Attached(_) | OwnMemory::Exposed(_) => Brings::Attached,
        }
    }

    /// The buffer that was brought, if it is a `B`.
    pub(super) fn into_buffer<B: 'static>(self) -> Option<B> {
        match self {
            Brings::Buffer(_, buffer) | Brings::Copied(_, buffer) => buffer.downcast::<B>().ok().map(|buffer| *buffer),
            Brings::Allocated | Brings::Attached => None,
        }
    }
}
