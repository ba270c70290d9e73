//! Helpers: procs that are connected, and operations between them.

use crate::ofi::OfiConfig;
use crate::ofi::tests::kit::{World, config, endpoint_of, span};
use crate::ofi::wrapper_tests::library;
use crate::{
    AtomicOperation, AtomicWord, Channel, Issued, LinkEvent, OneSided, RemoteAccess, RemoteKey, RemoteRun, Transport,
};
use tickwire_components::Span;

/// Providers that a machine without a special network has.
pub(in crate::ofi::tests) const PROVIDERS: [&str; 5] = ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"];

/// A world of two for each provider that is there, with the link of each; no world without libfabric.
pub(in crate::ofi::tests) fn worlds(
    providers: &[&'static str],
) -> impl Iterator<Item = (&'static str, World, [u32; 2])> {
    let found = library().map(|_| providers.to_vec()).unwrap_or_default();
    found.into_iter().filter_map(|provider| {
        let mut world = World::pair(provider)?;
        let links = world.connect();
        Some((provider, world, links))
    })
}

/// Endpoints of so many procs with changes to their configuration; `None` where the provider is missing.
pub(in crate::ofi::tests) fn configured(provider: &str, procs: u32, change: impl Fn(&mut OfiConfig)) -> Option<World> {
    let open = |me| {
        let mut config = config(me, provider);
        change(&mut config);
        endpoint_of(&config)
    };
    (0..procs).map(open).collect::<Option<_>>().map(World::new)
}

/// Context 0 to the peer of a link.
pub(in crate::ofi::tests) fn channel(link: u32) -> Channel {
    Channel { link, context: 0 }
}

/// Where an operation begins.
pub(in crate::ofi::tests) fn at(key: RemoteKey, offset: usize) -> RemoteRun {
    RemoteRun { key, offset: offset as u64 }
}

/// Bytes that are nowhere the same.
pub(in crate::ofi::tests) fn bytes_of(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

/// Memory that peers use, in words so that it is aligned for atomic operations.
pub(in crate::ofi::tests) struct Memory(Vec<u64>);

impl Drop for Memory {
    /// A test that fails drops its memory before its endpoints, which may still be writing it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(std::mem::take(&mut self.0));
        }
    }
}

impl Memory {
    pub(in crate::ofi::tests) fn new(bytes: usize) -> Self {
        Memory(vec![0; bytes.div_ceil(8)])
    }

    #[expect(unsafe_code, reason = "bytes of words")]
    pub(in crate::ofi::tests) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: words are bytes, and borrowed as a whole.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 8) }
    }

    pub(in crate::ofi::tests) fn word(&self, index: usize) -> u64 {
        self.0[index]
    }
}

impl World {
    pub(in crate::ofi::tests) fn side(&mut self, at: usize) -> &mut dyn OneSided {
        self.all[at].one_sided().expect("the provider has one-sided operations")
    }

    #[expect(unsafe_code, reason = "a run that peers use")]
    pub(in crate::ofi::tests) fn expose(&mut self, at: usize, memory: &mut [u8], access: RemoteAccess) -> RemoteKey {
        // SAFETY: tests keep the memory until the world is gone, or withdraw it.
        unsafe { self.side(at).register_exposed(span(memory), access) }.expect("memory to be exposed")
    }

    /// Starts an operation, however long that takes; its number in its channel.
    #[track_caller]
    pub(in crate::ofi::tests) fn start(&mut self, mut issue: impl FnMut(&mut World) -> Result<Issued, String>) -> u64 {
        let mut taken = 0;
        self.until("an operation", |world| match issue(world).expect("an operation that can be") {
            Issued::Taken(number) => {
                taken = number;
                true
            }
            Issued::Full => false,
        });
        taken
    }

    /// Offers a write to the provider of proc 0, once; whether it was taken.
    #[track_caller]
    #[expect(unsafe_code, reason = "runs that tests keep")]
    pub(in crate::ofi::tests) fn puts(&mut self, channel: Channel, to: RemoteRun, bytes: &mut [u8]) -> bool {
        // SAFETY: tests keep the bytes until the operation is complete.
        match unsafe { self.side(0).put(channel, to, span(bytes), 0) } {
            Ok(Issued::Taken(_)) => true,
            Ok(Issued::Full) => false,
            Err(words) => panic!("{words}"),
        }
    }

    /// All hear what they are told over control connections, and look at nothing else.
    pub(in crate::ofi::tests) fn hear(&mut self) {
        let now_ns = self.now_ns();
        self.all.iter_mut().for_each(|ofi| ofi.control(now_ns, &mut Vec::new()));
    }

    #[track_caller]
    #[expect(unsafe_code, reason = "runs that tests keep")]
    pub(in crate::ofi::tests) fn put(&mut self, from: usize, channel: Channel, to: RemoteRun, bytes: &mut [u8]) -> u64 {
        let run = span(bytes);
        // SAFETY: tests keep the bytes until the operation is complete.
        self.start(|world| unsafe { world.side(from).put(channel, to, run, 0) })
    }

    #[track_caller]
    #[expect(unsafe_code, reason = "runs that tests keep")]
    pub(in crate::ofi::tests) fn get(&mut self, to: usize, channel: Channel, from: RemoteRun, bytes: &mut [u8]) -> u64 {
        let run = span(bytes);
        // SAFETY: tests keep the bytes until the operation is complete.
        self.start(|world| unsafe { world.side(to).get(channel, from, run, 0) })
    }

    /// An atomic operation; gives what was there before.
    #[track_caller]
    pub(in crate::ofi::tests) fn fetch(
        &mut self,
        by: usize,
        channel: Channel,
        target: RemoteRun,
        operation: AtomicOperation,
        operand: AtomicWord,
    ) -> u64 {
        self.change(by, channel, operand.width(), |side, into| {
            // SAFETY: the result stays until the operation is complete.
            #[expect(unsafe_code, reason = "a run of the caller's")]
            unsafe {
                side.fetch_atomic(channel, target, operation, operand, into, 0)
            }
        })
    }

    /// The same with a comparison.
    #[track_caller]
    pub(in crate::ofi::tests) fn swap(
        &mut self,
        by: usize,
        channel: Channel,
        target: RemoteRun,
        [expected, swap]: [AtomicWord; 2],
    ) -> u64 {
        self.change(by, channel, swap.width(), |side, into| {
            // SAFETY: the result stays until the operation is complete.
            #[expect(unsafe_code, reason = "a run of the caller's")]
            unsafe {
                side.compare_swap(channel, target, expected, swap, into, 0)
            }
        })
    }

    #[track_caller]
    fn change(
        &mut self,
        by: usize,
        channel: Channel,
        width: usize,
        mut issue: impl FnMut(&mut dyn OneSided, Span) -> Result<Issued, String>,
    ) -> u64 {
        let mut result = [0; 8];
        let into = span(&mut result[..width]);
        self.start(|world| issue(world.side(by), into));
        self.flush(by, channel);
        u64::from_le_bytes(result)
    }

    /// Waits until all that a channel has taken so far is complete, without a failure.
    #[track_caller]
    pub(in crate::ofi::tests) fn flush(&mut self, at: usize, channel: Channel) {
        let issued = self.side(at).issued(channel);
        self.until("a flush", |world| world.side(at).completed(channel) >= issued);
        assert_eq!(self.side(at).failed_operation(), None);
    }

    /// Connects two of several procs; the link of each.
    #[track_caller]
    pub(in crate::ofi::tests) fn join(&mut self, from: usize, to: usize) -> [u32; 2] {
        let (card, now_ns) = (self.all[to].card(), self.now_ns());
        let link = self.all[from].connect(to as u32, &card, now_ns).expect("a call");
        let mut theirs = None;
        self.until("a connection", |world| {
            theirs = world.events[to].iter().find_map(|event| match event {
                LinkEvent::Accepted { link, proc } if *proc == from as u32 => Some(*link),
                _ => None,
            });
            world.events[from].contains(&LinkEvent::Connected { link }) && theirs.is_some()
        });
        [link, theirs.expect("it has been accepted")]
    }
}
