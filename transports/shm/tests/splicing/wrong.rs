//! Peers that say what is not so, memory that is not there, and choices that cannot be.

use super::*;
use rustix::fd::OwnedFd;

#[test]
fn a_peer_that_says_what_is_not_so_is_not_believed() {
    let length = 2 * SPLICE_BYTES;
    // Puts nothing and says so; puts less; says that it has put what nobody has asked for.
    type Lie<'a> = &'a dyn Fn(&mut Shm, u32, u32);
    // What it has put is in the first pipe.
    let put_some = |shm: &mut Shm, link, number, bytes: &[u8]| {
        let outlet = shm.links.outlet(link).expect("open");
        assert_eq!(
            rustix::io::write(&outlet.pipes().expect("passed")[pieces::pipe_of(number)].1, bytes),
            Ok(bytes.len())
        );
        assert!(pieces::put(&shm.links.memory(link, true).expect("open"), number));
    };
    let lies: [Lie<'_>; 4] = [
        &|shm, link, number| assert!(pieces::put(&shm.links.memory(link, true).expect("open"), number)),
        &|shm, link, number| put_some(shm, link, number, &[7; 100]),
        &|shm, link, number| {
            shm.links.memory(link, true).expect("open").swap_put(number.wrapping_add(1000));
        },
        &|shm, link, number| {
            put_some(shm, link, number, &content(1, length)[..SPLICE_BYTES]);
            shm.links.memory(link, true).expect("open").swap_put(number.wrapping_sub(1));
        },
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        let Some((mut net, a, b)) = connected("splice-lies") else { return };
        let mut from = [content(1, length)];
        expose(&mut net, b, &mut from);
        let mut into = [vec![0; length]];
        let reads = reads(&from, &mut into);
        let first = net.shm(0).wants_splice(a, &reads).expect("always");
        let asked = net.shm(0).ask(a, &reads);
        lie(net.shm(1), b, first);
        assert_eq!(net.shm(0).read_asked(a, &reads, asked).err(), None, "{at}");
        assert!(into == from, "lie {at}");
        // Nor does that harm what follows, spliced or not.
        for _ in 0..3 {
            into[0].fill(0);
            read_all(&mut net, a, &reads);
            assert!(into == from, "after lie {at}");
        }
        assert!(at > 1 || net.shm(0).wants_splice(a, &reads).is_none(), "its pipes are not used again");
        assert!(net.events[0].len() == 1 && net.shm(0).traffic(a).is_some(), "{:?}", net.events[0]);
    }
}

#[test]
fn memory_that_is_not_there_is_not_spliced() {
    let Some((mut net, a, b)) = connected("splice-nowhere") else { return };
    static ONLY_READ: [u8; SPLICE_MIN] = [7; SPLICE_MIN];
    // SAFETY: nothing is read here; the kernel is given addresses that are not mapped, and says so.
    #[expect(unsafe_code, reason = "an address of nothing")]
    let nowhere = unsafe { Span::new(std::ptr::without_provenance_mut(16), SPLICE_MIN) };
    // Of what ends before it should, nothing stays in the pipe.
    let (page, flags) = (4 * 4096, rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE);
    // SAFETY: new memory, which stays; nothing of it is read or written here.
    #[expect(unsafe_code, reason = "memory with an end")]
    let cut = unsafe {
        use rustix::mm::{MapFlags, MprotectFlags, mmap_anonymous, mprotect};
        let map = mmap_anonymous(std::ptr::null_mut(), 2 * page, flags, MapFlags::PRIVATE).expect("maps");
        mprotect(map.byte_add(page), page, MprotectFlags::empty()).expect("its own");
        Span::new(map.cast(), 2 * page)
    };
    for run in [nowhere, cut] {
        net.shm(1).expose_run(b, run);
        let mut into = vec![0; run.len()];
        let read = [MemoryRead { address: run.start().addr() as u64, into: span(&mut into) }];
        let asked = net.shm(0).ask(a, &read);
        net.drain(1);
        net.drain(1);
        assert!(asked == 1 && !net.shm(1).ready(), "nothing waits");
        assert!(net.shm(0).read_asked(a, &read, asked).unwrap_err().contains("Bad address"));
    }
    // What may only be read is spliced.
    let from = [vec![7; SPLICE_MIN]];
    let mut into = [vec![0; SPLICE_MIN]];
    // SAFETY: only read, and there for ever.
    #[expect(unsafe_code, reason = "lends what may only be read")]
    let readable = unsafe { Span::new(ONLY_READ.as_ptr().cast_mut(), SPLICE_MIN) };
    net.shm(1).expose_run(b, readable);
    let read = [MemoryRead { address: address(&ONLY_READ), into: span(&mut into[0]) }];
    for _ in 0..2 {
        into[0].fill(9);
        assert_eq!(read_all(&mut net, a, &read), 1);
        assert!(into == from);
    }
    assert_eq!(spliced(&mut net, 0), 2 * SPLICE_MIN as u64, "through both pipes");
}

#[test]
fn a_piece_that_nobody_waits_for_any_more_is_taken_out_again() {
    let Some((mut net, a, b)) = connected("splice-late") else { return };
    let mut from = [content(3, SPLICE_BYTES)];
    expose(&mut net, b, &mut from);
    let mut into = [vec![0; SPLICE_BYTES]];
    let reads = reads(&from, &mut into);
    /// The words beside a ring, whose reader loses its patience while a piece is on its way into the pipe.
    struct Impatient<'a>(&'a mut Net, u32, &'a [MemoryRead]);
    impl PieceMemory for std::cell::RefCell<Impatient<'_>> {
        fn load_put(&self, order: Ordering) -> u32 {
            let Impatient(net, link, _) = &mut *self.borrow_mut();
            net.shm(0).links.memory(*link, false).expect("open").load_put(order)
        }
        fn exchange_put(&self, before: u32, after: u32) -> bool {
            let Impatient(net, link, reads) = &mut *self.borrow_mut();
            assert_eq!(net.shm(0).read_asked(*link, reads, 1).err(), None);
            net.shm(0).links.memory(*link, false).expect("open").exchange_put(before, after)
        }
        fn swap_put(&self, _: u32) -> u32 {
            unreachable!("the reader's")
        }
        fn load_taken(&self, order: Ordering) -> u32 {
            let Impatient(net, link, _) = &mut *self.borrow_mut();
            net.shm(0).links.memory(*link, false).expect("open").load_taken(order)
        }
        fn store_taken(&self, _: u32, _: Ordering) {
            unreachable!("the reader's")
        }
    }
    for _ in 0..20 {
        let first = net.shm(0).wants_splice(a, &reads).expect("always");
        assert_eq!(net.shm(0).ask(a, &reads), 1);
        // What its sender has of it, and would put; the frame itself is for later.
        let mut outlet = std::mem::take(net.shm(1).links.outlet(b).expect("open"));
        let question = Question { address: reads[0].address, length: SPLICE_BYTES as u64, first };
        assert_eq!(outlet.ask(&question.header()), Ok(()));
        assert!(!outlet.look(&std::cell::RefCell::new(Impatient(&mut net, a, &reads))));
        assert!(outlet.is_piped(), "its pipes are empty");
        *net.shm(1).links.outlet(b).expect("open") = outlet;
        net.drain(1);
        into[0].fill(0);
        assert_eq!(read_all(&mut net, a, &reads), 1);
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
        let mut into = [vec![0; SPLICE_MIN]];
        let from = [vec![7; SPLICE_MIN]];
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
            assert_eq!(net.shm(0).read_asked(a, &reads, usize::from(asked.is_some())).err(), None, "{what}");
            assert_eq!(into, from);
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
    let mut bytes = vec![0; SPLICE_MIN];
    let read = [MemoryRead { address: 16, into: span(&mut bytes) }];
    let links = [net.connect(0, 2), net.connect(0, 1)];
    if !net.shm(0).reads(links[0].0, 0, 1) {
        return;
    }
    let asks = |net: &mut Net, proc, link| net.shm(proc).wants_splice(link, &read).is_some();
    net.until("pipes", |net| {
        assert!(!asks(net, 0, links[0].0) && !asks(net, 2, links[0].1));
        asks(net, 0, links[1].0) && asks(net, 1, links[1].1)
    });
    // Whoever asks all the same is no peer.
    let mut from = content(1, SPLICE_MIN);
    net.shm(2).expose_run(links[0].1, span(&mut from));
    put_question(&mut net, links[0].0, &Question { address: address(&from), length: 1, first: 0 }.header());
    net.fails_with(2, "a frame of unknown kind 130");
}
