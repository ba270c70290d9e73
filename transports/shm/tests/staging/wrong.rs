//! Peers that say what is not so, memory that is not there, and choices that cannot be.

use super::*;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

#[test]
fn a_peer_that_says_what_is_not_so_is_not_believed() {
    let length = 2 * STAGING_STEP_BYTES;
    // Says that it has put more than the buffer holds, less than nothing, what nobody has asked for, or nothing at all.
    for lie in [STAGING_BYTES as u64 + 1, 1u64.wrapping_neg(), 1 << 31, 1 << 32, 0] {
        let Some((mut net, a, b)) = connected("staging-lies") else { return };
        let mut from = [content(1, length)];
        expose(&mut net, b, &mut from);
        let mut into = [vec![0; length]];
        let reads = reads(&from, &mut into);
        let first = net.shm(0).wants_staging(a, &reads).expect("always");
        let asked = net.shm(0).ask(a, &reads);
        staging::put(&net.shm(1).links.memory(b, true).expect("open"), first.wrapping_add(lie));
        assert_eq!(net.shm(0).read_asked(a, &reads, asked).err(), None, "{lie}");
        assert!(into == from, "lie {lie}");
        assert_eq!(staged(&mut net, 0), 0);
        // Nor does that harm what follows, staged or not.
        for _ in 0..3 {
            into[0].fill(0);
            read_all(&mut net, a, &reads);
            assert!(into == from, "after lie {lie}");
        }
        assert_eq!(staged(&mut net, 0), 3 * length as u64);
        assert!(net.events[0].len() == 1 && net.shm(0).traffic(a).is_some(), "{:?}", net.events[0]);
    }
}

#[test]
fn what_a_peer_puts_without_having_it_is_its_own_affair() {
    let Some((mut net, a, b)) = connected("staging-more") else { return };
    let mut from = [content(1, STAGING_MIN)];
    let mut into = [vec![7; STAGING_MIN + 1]];
    expose(&mut net, b, &mut from);
    let read = MemoryRead { address: address(&from[0]), into: span(&mut into[0][..STAGING_MIN]) };
    let first = net.shm(0).wants_staging(a, &[read]).expect("always");
    assert_eq!(net.shm(0).ask(a, &[read]), 1);
    // Zeros, and more of them than were asked for.
    staging::put(&net.shm(1).links.memory(b, true).expect("open"), first.wrapping_add(STAGING_BYTES as u64));
    assert_eq!(net.shm(0).read_asked(a, &[read], 1).err(), None);
    assert!(into[0][..STAGING_MIN].iter().all(|&byte| byte == 0) && into[0][STAGING_MIN] == 7);
    net.talks(0, 1);
}

#[test]
fn what_may_only_be_read_is_staged() {
    let Some((mut net, a, b)) = connected("staging-read-only") else { return };
    static ONLY_READ: [u8; STAGING_MIN] = [7; STAGING_MIN];
    // SAFETY: only read, and there for ever.
    #[expect(unsafe_code, reason = "lends what may only be read")]
    let readable = unsafe { Span::new(ONLY_READ.as_ptr().cast_mut(), STAGING_MIN) };
    net.shm(1).expose_run(b, readable);
    let mut into = vec![9; STAGING_MIN];
    let read = [MemoryRead { address: address(&ONLY_READ), into: span(&mut into) }];
    assert_eq!(read_all(&mut net, a, &read), 1);
    assert!(into == ONLY_READ);
    assert_eq!(staged(&mut net, 0), STAGING_MIN as u64);
}

#[test]
fn bytes_that_nobody_waits_for_any_more_are_not_taken_for_later_ones() {
    let Some((mut net, a, b)) = connected("staging-late") else { return };
    let length = 2 * STAGING_STEP_BYTES;
    let mut from = [content(3, length)];
    expose(&mut net, b, &mut from);
    let mut into = [vec![0; length]];
    let reads = reads(&from, &mut into);
    /// The words beside a ring, whose reader loses its patience while the first bytes are on their way into the buffer.
    struct Impatient<'a>(&'a mut Net, u32, &'a [MemoryRead]);
    impl StagingWords for std::cell::RefCell<Impatient<'_>> {
        fn load_put(&self, order: Ordering) -> Position {
            let Impatient(net, link, _) = &mut *self.borrow_mut();
            net.shm(0).links.memory(*link, false).expect("open").load_put(order)
        }
        fn store_put(&self, put: Position, order: Ordering) {
            let Impatient(net, link, reads) = &mut *self.borrow_mut();
            assert_eq!(net.shm(0).read_asked(*link, reads, 1).err(), None);
            net.shm(0).links.memory(*link, false).expect("open").store_put(put, order);
        }
        fn load_taken(&self, order: Ordering) -> Position {
            let Impatient(net, link, _) = &mut *self.borrow_mut();
            net.shm(0).links.memory(*link, false).expect("open").load_taken(order)
        }
        fn store_taken(&self, _: Position, _: Ordering) {
            unreachable!("the reader's")
        }
    }
    for round in 0..20 {
        let at = net.shm(0).wants_staging(a, &reads).expect("always");
        assert_eq!(net.shm(0).ask(a, &reads), 1);
        // What its sender has of it, and would put; the frame itself is for later.
        let mut outlet = std::mem::take(net.shm(1).links.outlet(b).expect("open"));
        let question = Question { address: reads[0].address, length: length as u64, at };
        assert_eq!(outlet.ask(&question.header()), Ok(()));
        assert!(!outlet.look(&std::cell::RefCell::new(Impatient(&mut net, a, &reads))));
        *net.shm(1).links.outlet(b).expect("open") = outlet;
        assert!(into == from, "read by the kernel");
        // The first bytes were put too late. What is asked for next is different.
        from[0].iter_mut().for_each(|byte| *byte = byte.wrapping_add(round + 1));
        into[0].fill(0);
        net.drain(1);
        assert_eq!(read_all(&mut net, a, &reads), 1);
        assert!(into == from);
    }
    assert_eq!(staged(&mut net, 0), 20 * length as u64);
}

#[test]
fn staging_buffers_are_what_a_peer_passes_as_such_and_nothing_else() {
    let zero = || OwnedFd::from(std::fs::File::open("/dev/zero").expect("there"));
    let memory = |bytes: u64, seals: SealFlags| {
        let file = rustix::fs::memfd_create(c"tickwire-test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC);
        let file = file.expect("memory");
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).expect("there is room");
        rustix::fs::fcntl_add_seals(&file, seals).expect("its own");
        file
    };
    let (bytes, sealed) = (STAGING_BYTES as u64, SealFlags::SHRINK | SealFlags::GROW);
    for (what, passed) in [
        ("nothing", vec![]),
        ("two", vec![memory(bytes, sealed), memory(bytes, sealed)]),
        ("no memory", vec![zero()]),
        ("a short one", vec![memory(bytes - 4096, sealed)]),
        ("one that may shrink", vec![memory(bytes, SealFlags::GROW)]),
        ("a buffer", vec![memory(bytes, sealed)]),
    ] {
        let mut net = Net::with("staging-buffers", 2, |config| config.staging = Staging::Always);
        let (a, b) = net.connect(0, 1);
        let mut into = [vec![0; STAGING_MIN]];
        let from = [vec![7; STAGING_MIN]];
        let reads = reads(&from, &mut into);
        assert_eq!(net.shm(0).wants_staging(a, &reads), None);
        let Some(Stage::Open(line)) = net.shm(1).connections.stage(b) else { panic!("open") };
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        line.pass(&Packet::Staging, &passed).expect("sent");
        // Its own comes too late, or is the first that is one.
        for _ in 0..20 {
            net.tick();
        }
        let asked = net.shm(0).wants_staging(a, &reads);
        assert_eq!(asked.is_some(), what == "a buffer", "{what}");
        // A buffer that could not be taken is not kept.
        let is_kept = net.shm(1).links.outlet(b).is_some_and(|outlet| outlet.has_buffer());
        assert_eq!(is_kept, what == "a buffer", "{what}");
        if net.shm(0).reads(a, 0, 1) {
            assert_eq!(net.shm(0).read_asked(a, &reads, usize::from(asked.is_some())).err(), None, "{what}");
            assert_eq!(into, from);
        }
        assert!(send(net.shm(0), a, 1, &[0]) == Sent::Done && net.events[0].len() == 1, "{what}");
    }
}

#[test]
fn staging_buffers_take_half_of_what_rings_may_grow_by_at_most() {
    let bytes = STAGING_BYTES;
    let mut net = Net::with("staging-room", 3, |config| {
        (config.grown_bytes_max, config.staging) = (2 * bytes + bytes / 2, Staging::Always);
    });
    let links = [net.connect(0, 1), net.connect(2, 1)];
    let mut into = vec![0; STAGING_MIN];
    let read = [MemoryRead { address: 16, into: span(&mut into) }];
    if !net.shm(0).reads(links[0].0, 0, 1) {
        return;
    }
    let before = net.shm(1).shared_bytes();
    let asks = |net: &mut Net, proc, link| net.shm(proc).wants_staging(link, &read).is_some();
    net.until("a buffer", |net| asks(net, 0, links[0].0));
    for _ in 0..20 {
        assert!(!asks(&mut net, 2, links[1].0));
        net.tick();
    }
    assert_eq!(net.shm(1).shared_bytes() - before, bytes as u64, "what it takes is counted");
    net.shm(1).close_link(links[0].1);
    assert!(net.shm(1).shared_bytes() <= before && net.shm(1).own.grown.load(Ordering::Relaxed) == 0, "and given back");
}

#[test]
fn a_sender_that_tells_of_single_bytes_counts_as_one_that_tells_of_none() {
    let Some((mut net, a, b)) = connected("staging-drips") else { return };
    let length = 8 * STAGING_STEP_BYTES;
    let mut from = [content(1, length)];
    expose(&mut net, b, &mut from);
    let mut into = [vec![0; length]];
    let reads = reads(&from, &mut into);
    let first = net.shm(0).wants_staging(a, &reads).expect("always");
    assert_eq!(net.shm(0).ask(a, &reads), 1);
    let memory = net.shm(1).links.memory(b, true).expect("open");
    let over = std::sync::atomic::AtomicBool::new(false);
    let mut reader = net.shms[0].take().expect("there");
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            // Less than a step, and never more than that, in ever so many words.
            for put in (1..STAGING_STEP_BYTES as u64).cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                staging::put(&memory, first + put);
            }
        });
        assert_eq!(reader.read_asked(a, &reads, 1).err(), None);
        over.store(true, Ordering::Relaxed);
    });
    assert!(into == from);
    assert_eq!(reader.bytes_read().staged, 0);
}

#[test]
fn what_is_no_choice_is_refused_in_words() {
    let words = ["never", "cheaper", "always"].map(str::parse);
    assert_eq!(words, [Staging::Never, Staging::IfCheaper, Staging::Always].map(Ok));
    for wrong in ["", "sometimes", "Always"] {
        let error = wrong.parse::<Staging>().expect_err("no such choice");
        assert!(error.contains(&format!("'{wrong}'")) && error.contains("never, cheaper or always"), "{error}");
    }
}

#[test]
fn only_those_stage_that_want_to() {
    let mut net = Net::with("stage-never", 3, |config| {
        config.staging = if config.me == 2 { Staging::Never } else { Staging::Always };
    });
    let mut bytes = vec![0; STAGING_MIN];
    let read = [MemoryRead { address: 16, into: span(&mut bytes) }];
    let links = [net.connect(0, 2), net.connect(0, 1)];
    if !net.shm(0).reads(links[0].0, 0, 1) {
        return;
    }
    let asks = |net: &mut Net, proc, link| net.shm(proc).wants_staging(link, &read).is_some();
    net.until("buffers", |net| {
        assert!(!asks(net, 0, links[0].0) && !asks(net, 2, links[0].1));
        asks(net, 0, links[1].0) && asks(net, 1, links[1].1)
    });
    // Whoever asks all the same is no peer.
    let mut from = content(1, STAGING_MIN);
    net.shm(2).expose_run(links[0].1, span(&mut from));
    put_question(&mut net, links[0].0, &Question { address: address(&from), length: 1, at: 0 }.header());
    net.fails_with(2, "a frame of unknown kind 130");
}
