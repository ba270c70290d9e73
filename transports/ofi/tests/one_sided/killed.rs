//! A process that is killed while its peer's operations on its memory are under way.

use super::kit::{Memory, at, bytes_of, channel, configured};
use crate::ofi::tests::kit::{BOUND, span};
use crate::ofi::wrapper_tests::library;
use crate::{AtomicOperation, AtomicWord, LinkEvent, RemoteAccess, RemoteKey, Transport};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The variable that says to the second process that it is one, and over which provider.
const VICTIM: &str = "TICKWIRE_TEST_VICTIM";
/// What stands before its card and the key of its memory.
const MARK: &str = "VICTIM ";
const BYTES: usize = 1 << 20;

/// What the second process does: it exposes memory, says where, and looks until it is killed.
fn be_killed(provider: &str) {
    let mut world = configured(provider, 2, |_| {}).expect("the provider is there");
    let mut memory = Memory::new(BYTES);
    let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    println!("\n{MARK}{} {}", hex(&world.all[1].card()), hex(&key.to_bytes()));
    world.all.remove(0);
    world.events.remove(0);
    let start = Instant::now();
    while start.elapsed() < BOUND {
        world.step();
    }
}

/// Starts it: the process, its card and the key of its memory.
fn start(provider: &str) -> (Child, Vec<u8>, RemoteKey) {
    let name = std::thread::current().name().expect("the name of this test").to_owned();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", &name, "--nocapture"]).env(VICTIM, provider).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a second process");
    let lines = BufReader::new(child.stdout.take().expect("a pipe").take(1 << 20)).lines();
    let line = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(MARK).map(str::to_owned));
    let line = line.expect("what the second process says");
    let bytes = |hex: &str| {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
        (0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>()
    };
    let (card, key) = line.split_once(' ').expect("two words");
    let key = bytes(key).try_into().expect("the bytes of a key");
    (child, bytes(card), RemoteKey::from_bytes(&key).expect("a key"))
}

#[test]
fn operations_on_a_process_that_is_killed_fail_and_nothing_hangs() {
    if let Ok(provider) = std::env::var(VICTIM) {
        return be_killed(&provider);
    }
    if library().is_none() {
        return;
    }
    // Who waits for a lock of `shm` in shared memory that a stopped process holds, waits for ever.
    for provider in ["tcp;ofi_rxm", "net", "sockets", "udp;ofi_rxd"] {
        let Some(mut world) = configured(provider, 1, |_| {}) else { continue };
        let (mut child, card, key) = start(provider);
        let link = world.all[0].connect(1, &card, 0).expect("a call");
        world.until("a connection", |world| world.events[0] == [LinkEvent::Connected { link }]);
        let channel = channel(link);
        let (mut from, mut into) = (vec![bytes_of(1, BYTES); 2], vec![0; BYTES / 2]);
        world.put(0, channel, at(key, 0), &mut from[0]);
        world.get(0, channel, at(key, 0), &mut into);
        world.flush(0, channel);
        assert!(into == from[0][..BYTES / 2], "{provider}");
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).expect("a process to be stopped");
        for from in &mut from {
            world.put(0, channel, at(key, 0), from);
        }
        world.get(0, channel, at(key, 0), &mut into);
        if world.side(0).atomics().eight {
            let (add, one, mut result) = (AtomicOperation::Sum, AtomicWord::Eight(1), [0; 8]);
            let result = span(&mut result);
            // SAFETY: the result stays until the operations are complete.
            #[expect(unsafe_code, reason = "a run of the caller's")]
            world.start(|world| unsafe { world.side(0).fetch_atomic(channel, at(key, 0), add, one, result, 9) });
        }
        let issued = world.side(0).issued(channel);
        assert!(world.side(0).completed(channel) < issued, "{provider}: it is stopped");
        child.kill().expect("a process to be killed");
        world.until("an end", |world| world.events[0].iter().any(|event| matches!(event, LinkEvent::Failed { .. })));
        world.until("failures", |world| world.side(0).completed(channel) == issued);
        // `net` of libfabric 1.17 says of one in ten such processes that all has been done.
        let has_failed = world.side(0).failed_operation().is_some();
        assert!(has_failed || provider == "net", "{provider}: none has failed");
        child.wait().expect("an end");
        world.all[0].close_link(link);
        let start = Instant::now();
        drop(world);
        assert!(start.elapsed() < BOUND / 4, "{provider}: a close that hangs");
    }
}
