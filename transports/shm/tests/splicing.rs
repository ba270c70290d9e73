//! Endpoints that splice messages to each other, and such that do it wrong.

use super::*;
use crate::Spliced;
use crate::rings::pieces::{self, PieceMemory};
use crate::sim::SplitMix;
use tickwire_components::limits::SPLICE_BYTES;

/// Two connected endpoints with pipes both ways, the first's link to the second and the other way; `None` where the kernel
/// lets nobody read memory.
fn connected(name: &str) -> Option<(Net, u32, u32)> {
    let mut net = Net::with(name, 2, |config| config.splicing = Splicing::Always);
    let (a, b) = net.connect(0, 1);
    let mut byte = [0];
    let read = [MemoryRead { address: 16, into: span(&mut byte) }];
    for (proc, link) in [(0, a), (1, b)] {
        assert_eq!(net.shm(proc).wants_splice(link, &read), None, "no pipes yet");
    }
    let has_pipes = |net: &mut Net, proc, link| net.shm(proc).wants_splice(link, &read).is_some();
    net.until("pipes", |net| has_pipes(net, 0, a) && has_pipes(net, 1, b));
    net.shm(0).reads(a, 0, 1).then_some((net, a, b))
}

fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_ne_bytes()).take(length).collect()
}

/// Reads of buffers of a peer, into buffers of as many bytes.
fn reads(from: &[Vec<u8>], into: &mut [Vec<u8>]) -> Vec<MemoryRead> {
    let address = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
    from.iter().zip(into).map(|(from, into)| MemoryRead { address: address(from), into: span(into) }).collect()
}

/// Pieces of buffers, in order.
fn pieces_of(from: &mut [Vec<u8>]) -> Vec<Span> {
    from.iter_mut().flat_map(|bytes| bytes.chunks_mut(SPLICE_BYTES).map(span)).collect()
}

fn spliced(net: &mut Net, proc: usize) -> u64 {
    net.shm(proc).bytes_read().spliced
}

#[test]
fn what_a_peer_splices_is_not_read_and_what_it_does_not_is() {
    let Some((mut net, a, b)) = connected("splice") else { return };
    let mut from = [2 * SPLICE_BYTES + 777, 5000, 100_001].map(|length| content(length as u64, length));
    let mut into = from.each_ref().map(|bytes| vec![0; bytes.len()]);
    let (reads, parts) = (reads(&from, &mut into), pieces_of(&mut from));
    let first = net.shm(0).wants_splice(a, &reads).expect("always");
    let number = |n: usize| first.wrapping_add(n as u32);
    let put = |net: &mut Net, n: usize| net.shm(1).splice_out(b, number(n), parts[n]);
    assert_eq!(put(&mut net, 1), Spliced::Over, "one after another");
    assert_eq!([put(&mut net, 0), put(&mut net, 0)], [Spliced::Done, Spliced::Over]);
    assert_eq!([put(&mut net, 1), put(&mut net, 2)], [Spliced::Done, Spliced::Full]);
    assert_eq!(net.shm(0).read_into(a, &reads, 3), Ok(()));
    assert!(into == from);
    let there = 2 * SPLICE_BYTES as u64;
    let all: u64 = from.iter().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(net.shm(0).bytes_read(), BytesRead { heap: 0, attach: all - there, spliced: there });
    assert_eq!(net.shm(0).traffic(a).expect("open").read, all);
    // The peer comes too late for the rest, and in time for the next message.
    assert_eq!([put(&mut net, 2), put(&mut net, 4)], [Spliced::Over; 2]);
    into.iter_mut().for_each(|bytes| bytes.fill(0));
    assert_eq!(net.shm(0).wants_splice(a, &reads[1..]), Some(number(5)));
    assert_eq!(
        [net.shm(1).splice_out(b, number(5), parts[3]), net.shm(1).splice_out(b, number(6), parts[4])],
        [Spliced::Done; 2]
    );
    assert_eq!(net.shm(0).read_into(a, &reads[1..], 2), Ok(()));
    assert!(into[1..] == from[1..]);
    assert_eq!(spliced(&mut net, 0), there + 105_001);
    // Without being asked, nothing is spliced, and nothing is waited for.
    assert_eq!(net.shm(0).wants_splice(a, &reads[1..]), Some(number(7)));
    assert_eq!(net.shm(0).read_into(a, &reads[1..], 0), Ok(()));
    assert_eq!((net.shm(0).wants_splice(a, &reads), spliced(&mut net, 0)), (Some(number(7)), there + 105_001));
}

#[test]
fn two_threads_splice_and_read_whatever_comes_in_time() {
    let Some((mut net, a, b)) = connected("splice-threads") else { return };
    let mut random = SplitMix::new(7);
    let rounds: Vec<Vec<Vec<u8>>> = (0..300)
        .map(|round| {
            let count = 1 + random.below(4);
            (0..count).map(|n| content(round * 10 + n, 1 + random.below(400_000) as usize)).collect()
        })
        .collect();
    let (mut reader, mut sender) = (net.shms[0].take().expect("there"), net.shms[1].take().expect("there"));
    let (say, hear) = std::sync::mpsc::channel::<(u32, Vec<Span>)>();
    let mut copies = rounds.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (mut number, parts) in hear {
                for part in parts {
                    let spliced = loop {
                        match sender.splice_out(b, number, part) {
                            Spliced::Full => std::hint::spin_loop(),
                            other => break other,
                        }
                    };
                    if spliced == Spliced::Over {
                        break;
                    }
                    number = number.wrapping_add(1);
                }
            }
        });
        for (from, copy) in rounds.iter().zip(&mut copies) {
            let mut into: Vec<_> = from.iter().map(|bytes| vec![0; bytes.len()]).collect();
            let reads = reads(copy, &mut into);
            let first = reader.wants_splice(a, &reads).expect("always");
            say.send((first, pieces_of(copy))).expect("heard");
            assert_eq!(reader.read_into(a, &reads, reads.len()), Ok(()));
            assert!(into == *from);
        }
        drop(say);
    });
    let BytesRead { attach, spliced, .. } = reader.bytes_read();
    assert_eq!(attach + spliced, rounds.iter().flatten().map(|bytes| bytes.len() as u64).sum::<u64>());
}

#[test]
fn a_peer_that_says_what_is_not_so_is_not_believed() {
    let length = 2 * SPLICE_BYTES;
    // Puts nothing and says so; puts less; says that it has put what nobody has asked for.
    type Lie<'a> = &'a dyn Fn(&mut Shm, u32, u32, &mut [u8]);
    let lies: [Lie<'_>; 4] = [
        &|shm, link, number, _| assert!(pieces::put(&shm.links.memory(link, true).expect("open"), number)),
        &|shm, link, number, bytes| assert_eq!(shm.splice_out(link, number, span(&mut bytes[..100])), Spliced::Done),
        &|shm, link, number, _| {
            shm.links.memory(link, true).expect("open").swap_put(number.wrapping_add(1000));
        },
        &|shm, link, number, bytes| {
            assert_eq!(shm.splice_out(link, number, span(&mut bytes[..SPLICE_BYTES])), Spliced::Done);
            shm.links.memory(link, true).expect("open").swap_put(number.wrapping_sub(1));
        },
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        let Some((mut net, a, b)) = connected("splice-lies") else { return };
        let mut from = [content(1, length)];
        let mut into = [vec![0; length]];
        let reads = reads(&from, &mut into);
        let first = net.shm(0).wants_splice(a, &reads).expect("always");
        lie(net.shm(1), b, first, &mut from[0]);
        assert_eq!(net.shm(0).read_into(a, &reads, 1), Ok(()), "{at}");
        assert!(into == from, "lie {at}");
        // Nor does that harm what follows, spliced or not.
        for _ in 0..3 {
            into[0].fill(0);
            let asked = net.shm(0).wants_splice(a, &reads).is_some();
            assert_eq!(net.shm(0).read_into(a, &reads, usize::from(asked)), Ok(()), "{at}");
            assert!(into == from, "after lie {at}");
        }
        assert!(at > 1 || net.shm(0).wants_splice(a, &reads).is_none(), "its pipes are not used again");
        assert!(net.events[0].len() == 1 && net.shm(0).traffic(a).is_some(), "{:?}", net.events[0]);
    }
}

#[test]
fn memory_that_is_not_there_is_not_spliced() {
    let Some((mut net, a, b)) = connected("splice-nowhere") else { return };
    static ONLY_READ: [u8; 100] = [7; 100];
    // SAFETY: nothing is read here; the kernel is given addresses that are not mapped, and says so.
    #[expect(unsafe_code, reason = "an address of nothing")]
    let nowhere = unsafe { Span::new(std::ptr::without_provenance_mut(16), 100) };
    let mut into = [vec![0; 100]];
    let read = [MemoryRead { address: 16, into: span(&mut into[0]) }];
    let first = net.shm(0).wants_splice(a, &read).expect("always");
    assert_eq!(net.shm(1).splice_out(b, first, nowhere), Spliced::Over);
    assert!(net.shm(0).read_into(a, &read, 1).unwrap_err().contains("Bad address"));
    // Of what ends before it should, nothing stays in the pipe.
    let (page, flags) = (4096, rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE);
    // SAFETY: new memory, which stays; nothing of it is read or written here.
    #[expect(unsafe_code, reason = "memory with an end")]
    let cut = unsafe {
        use rustix::mm::{MapFlags, MprotectFlags, mmap_anonymous, mprotect};
        let map = mmap_anonymous(std::ptr::null_mut(), 2 * page, flags, MapFlags::PRIVATE).expect("maps");
        mprotect(map.byte_add(page), page, MprotectFlags::empty()).expect("its own");
        Span::new(map.cast(), 2 * page)
    };
    let first = net.shm(0).wants_splice(a, &read).expect("always");
    assert_eq!(net.shm(1).splice_out(b, first, cut), Spliced::Over);
    assert!(net.shm(0).read_into(a, &read, 1).is_err());
    // One that is too long for a pipe neither; what may only be read is.
    let mut long = vec![0; SPLICE_BYTES + 1];
    let from = [vec![7; 100]];
    let reads = reads(&from, &mut into);
    let first = net.shm(0).wants_splice(a, &reads).expect("always");
    assert_eq!(net.shm(1).splice_out(b, first, span(&mut long)), Spliced::Over);
    assert_eq!(net.shm(0).read_into(a, &reads, 1), Ok(()));
    let first = net.shm(0).wants_splice(a, &reads).expect("always");
    // SAFETY: only read, and there for ever.
    #[expect(unsafe_code, reason = "lends what may only be read")]
    let readable = unsafe { Span::new(ONLY_READ.as_ptr().cast_mut(), 100) };
    assert_eq!(net.shm(1).splice_out(b, first, readable), Spliced::Done);
    into[0].fill(9);
    assert_eq!(net.shm(0).read_into(a, &reads, 1), Ok(()));
    assert!(into == from);
    let mut again = from.clone();
    let first = net.shm(0).wants_splice(a, &reads).expect("always");
    assert_eq!(net.shm(1).splice_out(b, first, span(&mut again[0])), Spliced::Done);
    into[0].fill(9);
    assert_eq!(net.shm(0).read_into(a, &reads, 1), Ok(()));
    assert!(into == from);
    assert_eq!(spliced(&mut net, 0), 200, "through both pipes");
}

#[test]
fn a_piece_that_nobody_waits_for_any_more_is_taken_out_again() {
    let Some((mut net, a, b)) = connected("splice-late") else { return };
    let mut from = [content(3, SPLICE_BYTES)];
    let mut into = [vec![0; SPLICE_BYTES]];
    let reads = reads(&from, &mut into);
    for _ in 0..20 {
        let first = net.shm(0).wants_splice(a, &reads).expect("always");
        // As when the reader has lost its patience while the piece was on its way into the pipe.
        let Some(Stage::Open(line)) = net.shm(1).connections.stage(b) else { panic!("open") };
        assert_eq!(line.more.pipes.fill(first, span(&mut from[0])), Some(true));
        assert_eq!(net.shm(0).read_into(a, &reads, 1), Ok(()));
        let Some(Stage::Open(line)) = net.shm(1).connections.stage(b) else { panic!("open") };
        assert!(line.more.pipes.clear(first), "empty");
        into[0].fill(0);
        let first = net.shm(0).wants_splice(a, &reads).expect("always");
        assert_eq!(net.shm(1).splice_out(b, first, span(&mut from[0])), Spliced::Done);
        assert_eq!(net.shm(0).read_into(a, &reads, 1), Ok(()));
        assert!(into == from);
    }
    assert_eq!(spliced(&mut net, 0), 20 * SPLICE_BYTES as u64);
}

#[test]
fn pipes_are_what_a_peer_passes_as_such_and_nothing_else() {
    let file = || OwnedFd::from(std::fs::File::open("/dev/zero").expect("there"));
    let pipe = || rustix::pipe::pipe().expect("a pipe").0;
    for (what, passed) in [
        ("nothing", vec![]),
        ("one", vec![pipe()]),
        ("three", vec![pipe(), pipe(), pipe()]),
        ("no pipes", vec![file(), file()]),
        ("two pipes", vec![pipe(), pipe()]),
    ] {
        let mut net = Net::with("splice-pipes", 2, |config| config.splicing = Splicing::Always);
        let (a, b) = net.connect(0, 1);
        let mut byte = [1];
        let mut into = [vec![0; 1]];
        let from = [vec![7; 1]];
        let reads = reads(&from, &mut into);
        assert_eq!(net.shm(0).wants_splice(a, &reads), None);
        let Some(Stage::Open(line)) = net.shm(1).connections.stage(b) else { panic!("open") };
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        line.pass(&Packet::Pipes, &passed).expect("sent");
        // Its own come too late, or are the first that are any.
        for _ in 0..20 {
            net.tick();
        }
        let asked = net.shm(0).wants_splice(a, &reads);
        assert_eq!(asked.is_some(), what == "two pipes", "{what}");
        if net.shm(0).reads(a, 0, 1) {
            // The peer's end blocks, and there is nothing in it: this side does not.
            let put = |net: &mut Net| pieces::put(&net.shm(1).links.memory(b, true).expect("open"), 0);
            assert!(asked.is_none() || put(&mut net));
            assert_eq!(net.shm(0).read_into(a, &reads, usize::from(asked.is_some())), Ok(()), "{what}");
            assert_eq!(into[0], [7]);
        }
        byte[0] = 0;
        assert!(send(net.shm(0), a, 1, &byte) == Sent::Done && net.events[0].len() == 1, "{what}");
    }
}

#[test]
fn what_is_no_choice_is_refused_in_words() {
    let words = ["never", "cheaper", "always"].map(str::parse);
    assert_eq!(words, [Splicing::Never, Splicing::IfCheaper, Splicing::Always].map(Ok));
    for wrong in ["", "sometimes", "Always"] {
        let error = wrong.parse::<Splicing>().expect_err("no such choice");
        assert!(error.contains(&format!("'{wrong}'")) && error.contains("never, cheaper or always"), "{error}");
    }
}

#[test]
fn only_those_splice_that_want_to() {
    let mut net = Net::with("splice-never", 3, |config| {
        config.splicing = if config.me == 2 { Splicing::Never } else { Splicing::Always };
    });
    let mut byte = [0];
    let read = [MemoryRead { address: 16, into: span(&mut byte) }];
    let links = [net.connect(0, 2), net.connect(0, 1)];
    let asks = |net: &mut Net, proc, link| net.shm(proc).wants_splice(link, &read).is_some();
    net.until("pipes", |net| {
        assert!(!asks(net, 0, links[0].0) && !asks(net, 2, links[0].1));
        asks(net, 0, links[1].0) && asks(net, 1, links[1].1)
    });
}
