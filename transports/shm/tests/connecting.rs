//! Connections: how they come about, and all the ways in which they end.

use super::kit::{Net, TICK_NS, TICKS_MAX, config, job, send};
use crate::connections::Stage;
use crate::shm::*;
use tickwire_components::NoBytes;

#[test]
fn the_lower_number_wins_when_both_connect_at_once() {
    for round in 0..60 {
        let mut net = Net::new("at-once", 2);
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for proc in order {
            net.call(proc, 1 - proc as u32).expect("starts");
        }
        // Different ones look first, and at different moments.
        for step in 0..round % 5 {
            net.control((round + step) % 2);
        }
        net.until("connected", |net| {
            net.link(0, 1).is_some()
                && net.link(1, 0).is_some()
                && net.shms.iter().flatten().all(|s| s.connections.calls.is_empty())
        });
        for _ in 0..50 {
            net.tick();
        }
        net.talks(0, 1);
        assert_eq!(net.events[0], [LinkEvent::Connected { link: 0 }], "round {round}");
        assert_eq!(net.events[1], [LinkEvent::Replaced { link: 0, by: 1 }], "round {round}");
    }
}

#[test]
fn two_threads_that_connect_at_once_agree() {
    for round in 0..40 {
        let mut net = Net::new("threads-at-once", 2);
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let threads: Vec<_> = [0, 1]
            .map(|me| {
                let (mut shm, barrier) = (net.shms[me].take().expect("there"), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    let card = shm.card();
                    shm.connect(1 - me as u32, &card, 0).expect("starts");
                    let mut events = Vec::new();
                    for now in 0..TICKS_MAX {
                        shm.control(u64::from(now) * 1000, &mut events);
                        let peer = shm.connections.procs.get(&(1 - me as u32)).copied();
                        if let Some(link) =
                            peer.filter(|&link| matches!(shm.connections.stage(link), Some(Stage::Open(_))))
                        {
                            shm.attach(link, link);
                            break;
                        }
                        std::thread::yield_now();
                    }
                    (shm, events)
                })
            })
            .into();
        for (me, thread) in threads.into_iter().enumerate() {
            let (shm, events) = thread.join().expect("no panic");
            net.shms[me] = Some(shm);
            net.events[me] = events;
        }
        net.now_ns = u64::from(TICKS_MAX) * 1000;
        net.until("agreed", |net| net.link(0, 1).is_some() && net.link(1, 0).is_some());
        net.talks(0, 1);
        assert!(net.failures(0).is_empty() && net.failures(1).is_empty(), "{round} {:?}", net.events);
    }
}

#[test]
fn connecting_again_gives_the_same_link() {
    let mut net = Net::new("again", 2);
    let (a, b) = net.connect(0, 1);
    assert_eq!((net.call(0, 1), net.call(1, 0)), (Ok(a), Ok(b)));
    net.tick();
    assert_eq!(net.events[1], [LinkEvent::Accepted { link: b, proc: 0 }, LinkEvent::Connected { link: b }]);
    net.talks(0, 1);
}

#[test]
fn numbers_are_used_again() {
    let mut net = Net::new("numbers", 2);
    for _ in 0..100 {
        let (a, b) = net.connect(0, 1);
        net.talks(0, 1);
        net.shm(0).close_link(a);
        net.events[1].clear();
        net.fails_with(1, "proc 0 (process");
        assert_eq!(net.failures(1).len(), 1);
        assert_eq!(send(net.shm(0), a, 1, b"x"), Sent::Failed);
        assert_eq!(send(net.shm(1), b, 1, b"x"), Sent::Failed);
    }
    assert!(net.shms.iter().flatten().all(|shm| shm.connections.table.len() <= 2));
}

#[test]
fn an_end_is_reported_though_nobody_reads() {
    let mut net = Net::new("unread", 2);
    let (link, _) = net.connect(1, 0);
    assert_eq!(send(net.shm(1), link, 1, b"never read"), Sent::Done);
    drop(net.shms[1].take());
    let started = net.now_ns;
    for _ in 0..TICKS_MAX {
        net.now_ns += TICK_NS;
        net.control(0);
        if !net.failures(0).is_empty() {
            break;
        }
    }
    let waited = net.now_ns - started;
    assert!((1_000_000_000..1_100_000_000).contains(&waited), "{waited} ns");
}

#[test]
fn a_corrupt_ring_ends_its_link_and_no_other() {
    let mut net = Net::new("corrupt", 3);
    let (link, _) = net.connect(1, 0);
    net.connect(2, 0);
    let header = Header { lead: 77, ..Header::default() };
    assert_eq!(net.shm(1).send(link, &header, &NoBytes, &mut ()), Sent::Done);
    net.fails_with(0, "corrupt ring: a frame of unknown kind 77");
    net.fails_with(1, "gave the connection up: corrupt ring");
    net.talks(0, 2);
    net.events[0].clear();
    net.connect(1, 0);
    net.talks(0, 1);
}

#[test]
fn a_proc_that_does_not_run_is_reported() {
    let mut net = Net::new("absent", 3);
    drop(net.shms[1].take());
    let started = net.now_ns;
    let link = net.call(0, 1).expect("starts");
    assert!(net.shm(0).wants_control());
    net.fails_with(0, "proc 1 has closed its endpoint, or has finalized");
    let waited = net.now_ns - started;
    assert!((250_000_000..300_000_000).contains(&waited), "{waited} ns");
    assert!(!net.shm(0).wants_control());
    assert_eq!(net.events[0].len(), 1);
    // It starts a little later than who calls it.
    assert_eq!(net.call(0, 1), Ok(link));
    net.tick();
    let late = config(&net.job.clone(), 1, 3);
    net.shms[1] = Some(Shm::open(late).expect("opens"));
    net.until("connected", |net| net.link(0, 1).is_some());
    net.talks(0, 1);
}

#[test]
fn a_proc_that_computes_for_an_hour_answers_when_it_goes_on() {
    for calls_back in [false, true] {
        let mut net = Net::new("computes", 2);
        net.call(0, 1).expect("starts");
        for _ in 0..3600 {
            net.now_ns += 1_000_000_000;
            net.control(0);
        }
        assert!(net.events[0].is_empty(), "{:?}", net.events);
        if calls_back {
            net.call(1, 0).expect("starts");
        }
        net.until("connected", |net| net.link(0, 1).is_some() && net.link(1, 0).is_some());
        net.talks(0, 1);
    }
}

#[test]
fn a_proc_that_does_not_answer_in_the_applications_time_is_reported() {
    let mut net = Net::with("silent", 2, |config| config.connect_ms_max = Some(10_000));
    let _link = net.call(0, 1).expect("starts");
    let started = net.now_ns;
    while net.failures(0).is_empty() {
        net.now_ns += 10 * TICK_NS;
        net.control(0);
        assert!(net.now_ns - started < 11_000_000_000);
    }
    net.fails_with(0, "proc 1 did not answer within 10001 ms");
    // The late answer finds nobody, and harms nobody.
    for _ in 0..100 {
        net.tick();
    }
    assert_eq!(net.link(1, 0), None);
    net.connect(0, 1);
    net.talks(0, 1);
}

#[test]
fn a_link_that_is_given_up_tells_its_peer_why() {
    let mut net = Net::new("given-up", 3);
    let (a, _) = net.connect(0, 1);
    net.connect(0, 2);
    net.shm(0).give_up(a, "it is of no use");
    net.fails_with(1, "proc 0 gave the connection up: it is of no use");
    assert!(net.failures(0).is_empty() && net.link(0, 1).is_none());
    net.talks(0, 2);
}

#[test]
fn closing_is_in_order_and_final() {
    let mut net = Net::new("close", 2);
    net.connect(0, 1);
    net.shm(0).close();
    net.shm(0).close();
    assert!(net.shm(0).wait_fd().is_none());
    assert!(net.call(0, 1).expect_err("closed").contains("closed"));
    net.fails_with(1, "has closed the connection");
    assert_eq!(net.failures(1).len(), 1);
}

#[test]
fn what_cannot_be_opened_says_what_to_do() {
    let name = job("refused");
    let refused = |change: fn(&mut ShmConfig)| {
        let mut config = config(&name, 0, 2);
        change(&mut config);
        Shm::open(config).err().expect("refused").to_string()
    };
    assert!(refused(|c| c.job = "a/b".into()).contains("letters"));
    assert!(refused(|c| c.job = String::new()).contains("letters"));
    assert!(refused(|c| c.job = "j".repeat(65)).contains("letters"));
    assert!(refused(|c| c.me = 2).contains("proc 2 of 2"));
    assert!(refused(|c| c.ring_bytes = 5000).contains("power of two"));
    assert!(refused(|c| c.first_ring_bytes = 64).contains("first_ring_bytes is 64"));
    let nowhere = |c: &mut ShmConfig| c.directory = "/no/such/place".into();
    let mut without = config(&job("without"), 0, 2);
    nowhere(&mut without);
    Shm::open(without).expect("memory is in no directory");
    assert!(refused(|c| (c.directory, c.files) = ("/no/such/place".into(), Files::Unnamed)).contains("tmpfs"));
    let _first = Shm::open(config(&name, 0, 2)).expect("opens");
    assert!(refused(|_| ()).contains("runs on this host already"));
}

#[test]
fn a_lack_of_memory_fails_a_connection_in_words() {
    // Rings that no machine has memory for, after the inbox was made.
    let mut net = Net::new("full", 2);
    (net.shm(0).own.config.ring_bytes, net.shm(0).own.config.first_ring_bytes) = (1 << 60, 1 << 60);
    let error = net.call(0, 1).expect_err("no room");
    assert!(error.contains("no memory") && error.contains("2305843009213694720 bytes were asked for"), "{error}");
    assert!(net.shm(0).connections.procs.is_empty());
}

#[test]
fn cards_tell_hosts_apart() {
    let net = Net::new("cards", 2);
    let [Some(a), Some(b)] = &net.shms[..] else { panic!("two") };
    let card = HostCard::decode(&b.card()).expect("a card");
    assert_eq!(a.reaches(1, &b.card()), Ok(()));
    let elsewhere = HostCard { host: [0; 8], ..card };
    assert_eq!(a.reaches(1, &elsewhere.encode()), Err("proc 1 runs on another host".into()));
    assert_eq!((a.has_ended(1, &b.card()), a.has_ended(1, &elsewhere.encode())), (None, None));
    let gone = HostCard { start_time: card.start_time + 1, ..card };
    assert_eq!(a.has_ended(1, &gone.encode()), Some(format!("process {} has ended", card.pid)));
    assert!(a.reaches(1, &[0; 8]).is_err_and(|why| why.contains("one build of tickwire")));
    assert_eq!(a.reaches(1, &[]), Err("proc 1 has not opened it".into()));
    assert!(a.reaches(0, &a.card()).is_err());
    assert!(a.reaches(2, &b.card()).is_err());
}
