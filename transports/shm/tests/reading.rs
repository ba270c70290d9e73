//! Reading a peer's memory: by the kernel, and out of its heap.

use super::kit::{Net, span};
use crate::shm::*;
use crate::testing::GivenMemory;

/// Reads a peer's bytes from `address` on.
fn read(net: &mut Net, proc: usize, link: u32, address: *const u8, length: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; length];
    let into = span(&mut bytes);
    let read = MemoryRead { address: address.expose_provenance() as u64, into };
    net.shm(proc).read_into(link, &[read]).map(|()| bytes)
}

#[test]
fn memory_of_a_peer_is_read_while_it_stands_by_it() {
    let mut net = Net::new("reads", 2);
    let (a, b) = net.connect(0, 1);
    if !net.shm(0).reads(a, 0, 1) {
        // What the kernel forbids is not tried: such messages go in pieces.
        assert!(!net.shm(0).capabilities().remote_read);
        return;
    }
    let bytes: Vec<u8> = (0..100_000).map(|n| (n * 31 % 251) as u8).collect();
    assert_eq!(read(&mut net, 0, a, bytes.as_ptr(), bytes.len()).as_ref(), Ok(&bytes));
    assert_eq!(read(&mut net, 1, b, bytes[500..].as_ptr(), 1000).as_deref(), Ok(&bytes[500..1500]));
    let wrong = read(&mut net, 0, a, std::ptr::without_provenance(16), 100).unwrap_err();
    assert!(wrong.contains("cannot be read") && wrong.contains("Bad address"), "{wrong}");
    assert!(read(&mut net, 0, a + 7, bytes.as_ptr(), 8).is_err(), "no such link");
    // Several at once, as many as need more than one piece of the stack, and one of them wrong.
    let mut many = vec![0; bytes.len()];
    let mut reads: Vec<MemoryRead> = (many.chunks_mut(9000).zip(bytes.chunks(9000)))
        .map(|(into, from)| MemoryRead { address: from.as_ptr().expose_provenance() as u64, into: span(into) })
        .collect();
    assert_eq!(net.shm(0).read_into(a, &reads), Ok(()));
    assert!(many == bytes && reads.len() > 8);
    assert_eq!(net.shm(0).traffic(a).expect("open").read, 200_000);
    reads[3].address = 16;
    let wrong = net.shm(0).read_into(a, &reads).unwrap_err();
    assert!(wrong.contains("cannot be read") && wrong.contains("Bad address"), "{wrong}");
    // The engine of proc 1 gives the connection up and its application has its memory back; proc 0 has not heard of it.
    net.shm(1).close_link(b);
    let wrong = read(&mut net, 0, a, bytes.as_ptr(), 8).unwrap_err();
    assert!(wrong.contains("given the message up"), "{wrong}");
    net.fails_with(0, "has closed the connection");
    assert!(!net.shm(0).reads(a, 0, 1));
}

/// Copies bytes out of the heap of proc 0's peer.
fn copy_out(net: &mut Net, link: u32, address: u64, into: &mut [u8]) -> bool {
    net.shm(0).read_into_at_once(link, address, span(into), false)
}

#[test]
fn what_is_alone_is_read_by_the_kernel_at_once_where_nobody_is_asked_to_stage_it() {
    for staging in [Staging::Never, Staging::IfCheaper] {
        let mut net = Net::with("alone", 2, |config| config.staging = staging);
        let (a, b) = net.connect(0, 1);
        if !net.shm(0).reads(a, 0, 1) {
            return;
        }
        let bytes: Vec<u8> = (0..100_000).map(|n| (n * 31 % 251) as u8).collect();
        let address = bytes.as_ptr().expose_provenance() as u64;
        let mut into = vec![0; bytes.len()];
        let quiet = staging == Staging::Never;
        assert!(!net.shm(0).read_into_at_once(a, address, span(&mut into), false), "it may go with others");
        assert_eq!(net.shm(0).read_into_at_once(a, address, span(&mut into), true), quiet);
        assert_eq!((into == bytes, net.shm(0).bytes_read().attach), (quiet, if quiet { 100_000 } else { 0 }));
        assert!(!net.shm(0).read_into_at_once(a, 16, span(&mut into), true), "nothing is there");
        net.shm(1).close_link(b);
        assert!(!net.shm(0).read_into_at_once(a, address, span(&mut into), true), "given up");
    }
}

#[test]
fn a_peers_heap_is_read_without_the_kernel_and_nothing_else_of_it() {
    crate::heap::open().expect("a heap");
    let change = |config: &mut ShmConfig| {
        (config.cross_memory_attach, config.shared_heap) = (false, config.me != 2);
    };
    let mut net = Net::with("heap", 4, change);
    let (a, b) = net.connect(0, 1);
    let mut buffer = crate::HeapBuffer::new(100_000).expect("room");
    buffer.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n * 31 % 251) as u8);
    let plain = vec![1; 100_000];
    let at = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
    assert!(net.shm(0).capabilities().remote_read && net.shm(0).reads(a, at(&buffer), 100_000));
    assert!(read(&mut net, 0, a, buffer.as_ptr(), 100_000).as_deref() == Ok(&buffer[..]));
    assert!(read(&mut net, 1, b, buffer[500..].as_ptr(), 1000).as_deref() == Ok(&buffer[500..1500]));
    assert_eq!(net.shm(0).bytes_read(), BytesRead { heap: 100_000, ..BytesRead::default() });
    let mut into = vec![0; 1000];
    assert!(copy_out(&mut net, a, at(&buffer[500..]), &mut into) && into == buffer[500..1500]);
    assert_eq!(net.shm(0).bytes_read().heap, 101_000);
    assert_eq!(net.shm(0).traffic(a).map(|traffic| traffic.read), Some(101_000));
    // Neither what is elsewhere, nor what is partly elsewhere.
    let offer = crate::heap::offer().expect("on");
    let end = offer.base + offer.bytes;
    for (address, length) in [(at(&plain), 100_000), (offer.base - 8, 16), (end - 8, 16), (end, 8), (u64::MAX - 8, 64)]
    {
        assert!(!net.shm(0).reads(a, address, length), "{address:#x}");
        let address = std::ptr::with_exposed_provenance(address as usize);
        assert!(read(&mut net, 0, a, address, length as usize).unwrap_err().contains("may not be read"));
        assert!(!copy_out(&mut net, a, address.expose_provenance() as u64, &mut vec![0; length as usize]));
    }
    // A peer that offers no heap reads from one that does, and has nothing read.
    let (c, d) = net.connect(2, 1);
    assert!(!net.shm(2).capabilities().remote_read && !net.shm(1).reads(d, at(&buffer), 8));
    assert!(read(&mut net, 2, c, buffer.as_ptr(), 100_000).as_deref() == Ok(&buffer[..]));
    // Two procs of one process have one heap, and one map of it that goes with the last of them.
    let (e, _) = net.connect(0, 3);
    let map = |net: &mut Net, link| {
        net.shm(0).connections.line(link).and_then(Line::heap).map(Arc::downgrade).expect("a map")
    };
    let (first, second) = (map(&mut net, a), map(&mut net, e));
    assert!(first.ptr_eq(&second));
    net.shm(1).close_link(b);
    let wrong = read(&mut net, 0, a, buffer.as_ptr(), 8).unwrap_err();
    assert!(wrong.contains("given the message up"), "{wrong}");
    assert!(!copy_out(&mut net, a, at(&buffer), &mut into), "given up");
    net.fails_with(0, "has closed the connection");
    assert!(!copy_out(&mut net, a, at(&buffer), &mut into), "closed");
    assert!(!net.shm(0).reads(a, at(&buffer), 8) && first.upgrade().is_some());
    net.shm(0).close_link(e);
    assert!(first.upgrade().is_none());
}
