//! The memory that a member makes for its part of a window, before others know of it.

use super::offer::{Brings, Brought};
use crate::run::engine::Engine;
use tickwire_components::Span;
use tickwire_transports::Reach;
use tickwire_transports::shared::SharedRun;
use tickwire_transports::windows::{DIRECTORY_BYTES, control_bytes, control_bytes_with_mail};

/// What a run consists of.
struct Layout {
    /// Bytes of the control lines.
    control: usize,
    /// Bytes of memory behind them.
    behind: usize,
    /// Other memory, which is in reach within this process.
    beside: Span,
}

impl Engine {
    /// The run that begins with the control lines of the own part. A buffer for which it has room is to be copied there.
    pub(super) fn make_run(
        &mut self,
        brought: &mut Brought,
        key: u64,
        size: u32,
        shares: Option<u8>,
    ) -> Result<SharedRun, String> {
        let behind = Layout { control: control_bytes(size), behind: brought.bytes, beside: Span::EMPTY };
        let (span, buffer) = match std::mem::take(&mut brought.memory) {
            Brings::Buffer(span, buffer) => (span, buffer),
            allocated @ (Brings::Allocated | Brings::Copied(..)) => {
                brought.memory = allocated;
                return self.make_shared(key, shares, &behind);
            }
            Brings::Attached => return self.make_shared(key, shares, &Layout { behind: DIRECTORY_BYTES, ..behind }),
        };
        if self.is_worth_copying(span, shares)
            && let Ok(run) = self.make_shared(key, shares, &behind)
        {
            brought.memory = Brings::Copied(span, buffer);
            return Ok(run);
        }
        brought.memory = Brings::Buffer(span, buffer);
        let within_process = shares.is_some_and(|endpoint| self.is_within_process(endpoint));
        let control = if within_process { control_bytes(size) } else { control_bytes_with_mail(size) };
        self.make_shared(key, shares, &Layout { control, behind: 0, beside: span })
    }

    /// Whether other processes are to reach a copy of this memory, by loads and stores.
    fn is_worth_copying(&mut self, memory: Span, shares: Option<u8>) -> bool {
        let most = self.limits().window_copy_max;
        shares.is_some_and(|endpoint| {
            let capabilities = self.store.endpoints()[usize::from(endpoint)].transport.get().capabilities();
            // Peers map the shared heap.
            let in_reach = capabilities.reach == Reach::Process || capabilities.mapped.holds(memory);
            (1..=most).contains(&memory.len()) && !in_reach
        })
    }

    /// A run. Only this process has it if nobody shares it.
    fn make_shared(&mut self, key: u64, shares: Option<u8>, layout: &Layout) -> Result<SharedRun, String> {
        let &Layout { control, behind, beside } = layout;
        let too_long = || format!("there is no address for {behind} bytes");
        let bytes = control.checked_add(behind).ok_or_else(too_long)?;
        let shared = match shares {
            Some(endpoint) => self.store.endpoints()[usize::from(endpoint)].transport.get().shared_memory(),
            None => None,
        };
        match shared {
            Some(shared) => shared.make(key, bytes, beside),
            None => SharedRun::private(bytes).ok_or_else(|| format!("there is no memory for {bytes} bytes")),
        }
    }
}
