//! Wrappers of transports hand on every call that is not their own business: all methods of the trait, by its source, are
//! called through each of them.
//!
//! Longer than other files: the recorder has every method, and beside it stands the list of all of them.

#![expect(unsafe_code, reason = "calls that are given addresses; these are given no bytes")]

mod calls;

use crate::heap::PeerHeap;
use crate::shared::SharedRun;
use crate::sim::{Provider, ProviderConfig, Sim, SimConfig, SimNet};
use crate::take::Nobody;
use crate::{
    AnyTransport, AtomicOperation, AtomicWidths, AtomicWord, Capabilities, Channel, CreditWindows, Direct,
    FailedOperation, Frame, Issued, Lending, LinkEvent, Matching, Memory, MemoryRead, OneSided, Peeked, Reach,
    ReceiveEnvelope, Registering, RemoteAccess, RemoteKey, RemoteRun, Sent, Settled, SharedMemory, Take, Traffic,
    Transport, Watcher, WatcherDoor, Watchers,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tickwire_components::credit::Credit;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Access, Arrival, NoBytes, Pieces, Registration, Row, Span, Spans};

/// Names of methods that were called.
type Called = Arc<Mutex<BTreeSet<&'static str>>>;

const KEY: RemoteKey = RemoteKey { key: 1, base: 2, length: 3, access: RemoteAccess::READ };
const CHANNEL: Channel = Channel { link: 0, context: 2 };

/// A transport that notes its calls, and whose answers are no default.
struct Recorder {
    called: Called,
    capabilities: Capabilities,
    descriptor: OwnedFd,
}

impl Recorder {
    fn new() -> (Self, Called) {
        let called = Called::default();
        let capabilities = Capabilities { whole_frames: true, ..Capabilities::least(Reach::Process, 77, 100) };
        let (descriptor, _) = rustix::pipe::pipe().expect("a descriptor");
        (Recorder { called: called.clone(), capabilities, descriptor }, called)
    }

    fn note(&self, name: &'static str) {
        self.called.lock().expect("not poisoned").insert(name);
    }
}

// SAFETY: it gives nothing out.
#[deny(clippy::missing_trait_methods)]
unsafe impl Transport for Recorder {
    type RowState = u32;

    fn name(&self) -> &str {
        self.note("name");
        "recorder"
    }
    fn capabilities(&self) -> &Capabilities {
        self.note("capabilities");
        &self.capabilities
    }
    fn card(&self) -> Vec<u8> {
        self.note("card");
        vec![1, 2]
    }
    fn reaches(&self, _: u32, _: &[u8]) -> Result<(), String> {
        self.note("reaches");
        Err("reaches".into())
    }
    fn moved(&self) -> (u64, u64) {
        self.note("moved");
        (3, 4)
    }
    fn fits(&mut self, _: u32, _: u64) -> u64 {
        self.note("fits");
        12
    }
    fn shared_bytes(&self) -> u64 {
        self.note("shared_bytes");
        13
    }
    fn traffic(&self, _: u32) -> Option<Traffic> {
        self.note("traffic");
        Some(Traffic { sent: 5, ..Traffic::default() })
    }
    fn memory(&mut self) -> Option<&mut dyn Memory> {
        self.note("memory");
        Some(self)
    }
    fn direct(&mut self) -> Option<&mut dyn Direct> {
        self.note("direct");
        Some(self)
    }
    fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        self.note("one_sided");
        Some(self)
    }
    fn matching(&mut self) -> Option<&mut dyn Matching> {
        self.note("matching");
        Some(self)
    }
    fn lending(&mut self) -> Option<&mut dyn Lending> {
        self.note("lending");
        Some(self)
    }
    fn registering(&mut self) -> Option<&mut dyn Registering> {
        self.note("registering");
        Some(self)
    }
    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        self.note("credit_windows");
        Some(self)
    }
    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        self.note("shared_memory");
        Some(self)
    }
    fn watchers(&mut self) -> Option<&mut dyn Watchers> {
        self.note("watchers");
        Some(self)
    }
    fn connect(&mut self, _: u32, _: &[u8], _: u64) -> Result<u32, String> {
        self.note("connect");
        Ok(0)
    }
    fn attach(&mut self, _: u32, _: Row) {
        self.note("attach");
    }
    fn send<P: Pieces + ?Sized>(&mut self, _: u32, _: &Header, _: &P, _: &mut u32) -> Sent {
        self.note("send");
        Sent::Blocked
    }
    unsafe fn send_batch(&mut self, _: u32, _: &[Frame], _: &mut u32) -> (usize, Sent) {
        self.note("send_batch");
        (0, Sent::Failed)
    }
    fn flush(&mut self) {
        self.note("flush");
    }
    fn ready(&self) -> bool {
        self.note("ready");
        // Until its payloads have been used: it may sleep then.
        !self.called.lock().expect("not poisoned").contains("release")
    }
    fn drain(&mut self, _: u64, _: &mut [Arrival]) -> usize {
        self.note("drain");
        1
    }
    fn deliver(&mut self, _: u32, _: &mut impl Take) -> (u32, bool) {
        self.note("deliver");
        (12, false)
    }
    fn drain_link(&mut self, _: u32, _: u64, _: &mut [Arrival]) -> usize {
        self.note("drain_link");
        2
    }
    fn release(&mut self) {
        self.note("release");
    }
    fn wants_control(&self) -> bool {
        self.note("wants_control");
        true
    }
    fn control(&mut self, _: u64, events: &mut Vec<LinkEvent>) {
        self.note("control");
        events.push(LinkEvent::Connected { link: 0 });
    }
    fn close_link(&mut self, _: u32) {
        self.note("close_link");
    }
    fn give_up(&mut self, _: u32, _: &str) {
        self.note("give_up");
    }
    fn has_ended(&self, _: u32, _: &[u8]) -> Option<String> {
        self.note("has_ended");
        Some("has_ended".into())
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.note("wait_fd");
        Some(self.descriptor.as_fd())
    }
    fn arm(&mut self) -> bool {
        self.note("arm");
        true
    }
    fn must_poll(&self) -> bool {
        self.note("must_poll");
        true
    }
    fn disarm(&mut self) {
        self.note("disarm");
    }
    fn close(&mut self) {
        self.note("close");
    }
}

// SAFETY: it gives nothing out.
unsafe impl Memory for Recorder {
    fn reads(&self, _: u32, _: u64, _: u64) -> bool {
        self.note("reads");
        true
    }
    unsafe fn read(&mut self, _: u32, _: &[MemoryRead]) -> Result<(), String> {
        self.note("read");
        Ok(())
    }
    unsafe fn read_at_once(&mut self, _: u32, _: u64, _: Span, _: bool) -> bool {
        self.note("read_at_once");
        true
    }
    unsafe fn expose(&mut self, _: u32, _: Span) {
        self.note("expose");
    }
    fn withdraw(&mut self, _: u32, _: Span) {
        self.note("withdraw");
    }
    fn withdraw_all(&mut self) {
        self.note("withdraw_all");
    }
}

// SAFETY: it gives nothing out.
unsafe impl Direct for Recorder {
    unsafe fn expect(&mut self, _: u32, _: Row, _: Span) -> Option<u32> {
        self.note("expect");
        Some(7)
    }
    unsafe fn send_direct(&mut self, _: u32, _: Row, _: u32, _: Span) -> bool {
        self.note("send_direct");
        true
    }
    fn end(&mut self) {
        self.note("end");
    }
}

// SAFETY: it gives nothing out.
unsafe impl OneSided for Recorder {
    fn contexts(&self) -> u32 {
        self.note("contexts");
        3
    }
    unsafe fn register_exposed(&mut self, _: Span, _: RemoteAccess) -> Result<RemoteKey, String> {
        self.note("register_exposed");
        Ok(KEY)
    }
    fn withdraw_exposed(&mut self, _: &RemoteKey) {
        self.note("withdraw_exposed");
    }
    fn withdraw_for_good(&mut self, _: &RemoteKey) -> u64 {
        self.note("withdraw_for_good");
        18
    }
    fn settled(&mut self, _: u64) -> Settled {
        self.note("settled");
        Settled::Lost
    }
    fn may_use(&mut self, _: u32) -> bool {
        self.note("may_use");
        true
    }
    fn has_left(&mut self, _: u32) {
        self.note("has_left");
    }
    fn refuses_stale_keys(&self) -> bool {
        self.note("refuses_stale_keys");
        true
    }
    fn atomics(&mut self) -> AtomicWidths {
        self.note("atomics");
        AtomicWidths { four: true, eight: false }
    }
    fn copies_max(&self) -> usize {
        self.note("copies_max");
        14
    }
    unsafe fn put(&mut self, _: Channel, _: RemoteRun, _: Span, _: u64) -> Result<Issued, String> {
        self.note("put");
        Ok(Issued::Taken(1))
    }
    unsafe fn get(&mut self, _: Channel, _: RemoteRun, _: Span, _: u64) -> Result<Issued, String> {
        self.note("get");
        Ok(Issued::Taken(2))
    }
    unsafe fn fetch_atomic(
        &mut self,
        _: Channel,
        _: RemoteRun,
        _: AtomicOperation,
        _: AtomicWord,
        _: Span,
        _: u64,
    ) -> Result<Issued, String> {
        self.note("fetch_atomic");
        Ok(Issued::Taken(3))
    }
    unsafe fn compare_swap(
        &mut self,
        _: Channel,
        _: RemoteRun,
        _: AtomicWord,
        _: AtomicWord,
        _: Span,
        _: u64,
    ) -> Result<Issued, String> {
        self.note("compare_swap");
        Err("compare_swap".into())
    }
    fn issued(&self, _: Channel) -> u64 {
        self.note("issued");
        15
    }
    fn completed(&self, _: Channel) -> u64 {
        self.note("completed");
        16
    }
    fn failed_operation(&mut self) -> Option<FailedOperation> {
        self.note("failed_operation");
        Some(FailedOperation { channel: CHANNEL, number: 17, reason: "why".into() })
    }
    fn progress(&mut self) {
        self.note("progress");
    }
    fn was_reached(&mut self) -> bool {
        self.note("was_reached");
        true
    }
}

impl Matching for Recorder {
    fn post_receive(&mut self, _: Row, _: &ReceiveEnvelope) -> Sent {
        self.note("post_receive");
        Sent::Blocked
    }
    fn recall(&mut self, _: Row, _: bool) {
        self.note("recall");
    }
    fn peek(&mut self, _: &ReceiveEnvelope, _: bool) -> Sent {
        self.note("peek");
        Sent::Blocked
    }
    fn peeked(&mut self) -> Peeked {
        self.note("peeked");
        Peeked::Nothing
    }
    fn leave(&mut self) {
        self.note("leave");
    }
}

// SAFETY: it gives nothing out.
unsafe impl Lending for Recorder {
    fn lend(&mut self, _: u32, _: u64, _: u64, _: &mut Spans) -> u64 {
        self.note("lend");
        8
    }
    fn take_back(&mut self, _: Span) {
        self.note("take_back");
    }
}

impl Registering for Recorder {
    fn register(&mut self, _: Span, _: Access) -> Result<Registration, String> {
        self.note("register");
        Ok(Registration(9))
    }
    fn deregister(&mut self, _: Registration) {
        self.note("deregister");
    }
}

impl CreditWindows for Recorder {
    fn grant(&mut self, _: u32, _: Credit) {
        self.note("grant");
    }
    fn granted(&mut self, _: u32) -> Credit {
        self.note("granted");
        Credit { lines: 10, envelopes: 11 }
    }
}

impl Watchers for Recorder {
    fn door(&self, _: &[u8]) -> Option<WatcherDoor> {
        self.note("door");
        Some(WatcherDoor { address: ([127, 0, 0, 1], 1).into(), secret: 2 })
    }
    fn next_watcher(&mut self) -> Option<Watcher> {
        self.note("next_watcher");
        Some(Watcher { socket: rustix::pipe::pipe().expect("a descriptor").0, question: [3; 16] })
    }
}

impl SharedMemory for Recorder {
    fn has_boards(&self) -> bool {
        self.note("has_boards");
        true
    }
    fn make(&mut self, _: u64, _: usize, _: Span) -> Result<SharedRun, String> {
        self.note("make");
        Err("none".into())
    }
    fn give(&mut self, _: u32, _: u64) -> Result<bool, String> {
        self.note("give");
        Ok(true)
    }
    fn stop_giving(&mut self, _: u64) {
        self.note("stop_giving");
    }
    fn take(&mut self, _: u32, _: u64) -> Option<Option<SharedRun>> {
        self.note("take");
        Some(None)
    }
    fn heap_of(&self, _: u32) -> Option<Arc<PeerHeap>> {
        self.note("heap_of");
        None
    }
    fn writable_heap(&mut self, _: u32) -> Option<&Arc<PeerHeap>> {
        self.note("writable_heap");
        None
    }
    fn fetches(&self, _: u32) -> bool {
        self.note("fetches");
        true
    }
    unsafe fn fetch(&mut self, _: u32, _: u64, _: Span) -> bool {
        self.note("fetch");
        true
    }
    unsafe fn store(&mut self, _: u32, _: u64, _: Span) -> bool {
        self.note("store");
        true
    }
    unsafe fn fetch_runs(&mut self, _: u32, _: &[(u64, Span)]) -> bool {
        self.note("fetch_runs");
        true
    }
    unsafe fn store_runs(&mut self, _: u32, _: &[(u64, Span)]) -> bool {
        self.note("store_runs");
        true
    }
    fn wake(&mut self, _: u32) {
        self.note("wake");
    }
}

/// The methods of the trait and of the facets, by their source.
fn methods() -> BTreeSet<&'static str> {
    let source = include_str!("transport.rs");
    let (_, from) = source.split_once("pub unsafe trait Transport: Send {").expect("the trait is there");
    let (body, _) = from.split_once("\n}\n").expect("it ends");
    let facets = include_str!("facets.rs");
    let name = |line: &'static str| {
        let line = line.strip_prefix("    unsafe fn ").or_else(|| line.strip_prefix("    fn "))?;
        line.split(['(', '<']).next()
    };
    body.lines().chain(facets.lines()).filter_map(name).collect()
}
