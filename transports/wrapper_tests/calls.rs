//! Every call is made through each wrapper.

use super::*;

/// Calls all methods: what each has answered. One by one, since a boxed transport has no common trait with others.
macro_rules! call_all {
    ($t:expr, $state:expr) => {{
        let t = &mut $t;
        let (header, wanted) =
            (Header::new(Kind::Eager, 0, 1, 2, 0, 0), ReceiveEnvelope { link: 0, context: 0, source: 1, tag: 2 });
        let (frame, credit) = (Frame { header, payload: Span::EMPTY }, Credit { lines: 1, envelopes: 1 });
        let (mut arrivals, mut events, mut spans) = ([Arrival::default(); 4], Vec::new(), Spans::new());
        let mut answers: BTreeMap<&'static str, String> = BTreeMap::new();
        let mut heard = |name, answer: &dyn std::fmt::Debug| drop(answers.insert(name, format!("{answer:?}")));
        heard("name", &t.name());
        heard("capabilities", &t.capabilities().priority);
        heard("card", &t.card());
        heard("reaches", &t.reaches(1, &[]));
        heard("connect", &t.connect(1, &[], 0));
        heard("attach", &t.attach(0, 1));
        heard("moved", &t.moved());
        heard("fits", &t.fits(0, 1));
        heard("shared_bytes", &t.shared_bytes());
        heard("traffic", &t.traffic(0));
        if let Some(memory) = t.memory() {
            heard("reads", &memory.reads(0, 1, 2));
            // SAFETY: there are no bytes.
            heard("read", &unsafe { memory.read(0, &[]) });
            // SAFETY: there are no bytes.
            heard("read_at_once", &unsafe { memory.read_at_once(0, 1, Span::EMPTY, true) });
            // SAFETY: there are no bytes.
            heard("expose", &unsafe { memory.expose(0, Span::EMPTY) });
            heard("withdraw", &memory.withdraw(0, Span::EMPTY));
            heard("withdraw_all", &memory.withdraw_all());
        }
        if let Some(direct) = t.direct() {
            // SAFETY: there are no bytes.
            heard("expect", &unsafe { direct.expect(0, 1, Span::EMPTY) });
            // SAFETY: there are no bytes.
            heard("send_direct", &unsafe { direct.send_direct(0, 1, 2, Span::EMPTY) });
            heard("end", &direct.end());
        }
        if let Some(one_sided) = t.one_sided() {
            heard("contexts", &one_sided.contexts());
            heard("atomics", &one_sided.atomics());
            heard("copies_max", &one_sided.copies_max());
            let (run, word, none) = (RemoteRun { key: KEY, offset: 0 }, AtomicWord::Eight(1), Span::EMPTY);
            // SAFETY: there are no bytes.
            unsafe {
                heard("register_exposed", &one_sided.register_exposed(none, RemoteAccess::ALL));
                heard("put", &one_sided.put(CHANNEL, run, none, 0));
                heard("get", &one_sided.get(CHANNEL, run, none, 0));
                let add = AtomicOperation::Sum;
                heard("fetch_atomic", &one_sided.fetch_atomic(CHANNEL, run, add, word, none, 0));
                heard("compare_swap", &one_sided.compare_swap(CHANNEL, run, word, word, none, 0));
            }
            heard("withdraw_exposed", &one_sided.withdraw_exposed(&KEY));
            heard("withdraw_for_good", &one_sided.withdraw_for_good(&KEY));
            heard("settled", &one_sided.settled(18));
            heard("may_use", &one_sided.may_use(4));
            heard("has_left", &one_sided.has_left(5));
            heard("refuses_stale_keys", &one_sided.refuses_stale_keys());
            heard("issued", &one_sided.issued(CHANNEL));
            heard("completed", &one_sided.completed(CHANNEL));
            heard("failed_operation", &one_sided.failed_operation());
            heard("progress", &one_sided.progress());
            heard("was_reached", &one_sided.was_reached());
        }
        if let Some(matching) = t.matching() {
            heard("post_receive", &matching.post_receive(0, &wanted));
            heard("recall", &matching.recall(0, true));
            heard("peek", &matching.peek(&wanted, false));
            heard("peeked", &matching.peeked());
            heard("leave", &matching.leave());
        }
        if let Some(lending) = t.lending() {
            heard("lend", &lending.lend(0, 1, 2, &mut spans));
            heard("take_back", &lending.take_back(Span::EMPTY));
        }
        if let Some(known) = t.registering() {
            heard("register", &known.register(Span::EMPTY, Access::SEND));
            heard("deregister", &known.deregister(Registration(9)));
        }
        if let Some(windows) = t.credit_windows() {
            heard("grant", &windows.grant(0, credit));
            heard("granted", &windows.granted(0));
        }
        if let Some(watchers) = t.watchers() {
            heard("door", &watchers.door(b"").is_some());
            heard("next_watcher", &watchers.next_watcher().is_some());
        }
        if let Some(memory) = t.shared_memory() {
            heard("has_boards", &memory.has_boards());
            heard("make", &memory.make(1, 8, Span::EMPTY).is_ok());
            heard("give", &memory.give(0, 1));
            heard("stop_giving", &memory.stop_giving(1));
            heard("take", &memory.take(0, 1).is_some());
            heard("heap_of", &memory.heap_of(0).is_some());
            heard("writable_heap", &memory.writable_heap(0).is_some());
            heard("fetches", &memory.fetches(0));
            // SAFETY: nothing is lent.
            heard("fetch", &unsafe { memory.fetch(0, 0, Span::EMPTY) });
            // SAFETY: as above.
            heard("store", &unsafe { memory.store(0, 0, Span::EMPTY) });
            // SAFETY: as above.
            heard("fetch_runs", &unsafe { memory.fetch_runs(0, &[]) });
            // SAFETY: as above.
            heard("store_runs", &unsafe { memory.store_runs(0, &[]) });
            heard("wake", &memory.wake(0));
        }
        heard("send", &t.send(0, &header, &NoBytes, $state));
        // SAFETY: there are no bytes.
        heard("send_batch", &unsafe { t.send_batch(0, &[frame], $state) });
        heard("flush", &t.flush());
        heard("ready", &t.ready());
        heard("drain", &t.drain(0, &mut arrivals));
        heard("deliver", &t.deliver(4, &mut Nobody));
        heard("drain_link", &t.drain_link(0, 0, &mut arrivals));
        heard("release", &t.release());
        heard("wants_control", &t.wants_control());
        heard("control", &t.control(0, &mut events));
        heard("wait_fd", &t.wait_fd().is_some());
        heard("arm", &t.arm());
        heard("must_poll", &t.must_poll());
        heard("disarm", &t.disarm());
        heard("close_link", &t.close_link(0));
        heard("give_up", &t.give_up(0, "why"));
        heard("has_ended", &t.has_ended(0, &[]));
        heard("close", &t.close());
        answers.insert("events", format!("{events:?}"));
        answers
    }};
}

/// Which methods a wrapper does not hand on.
fn kept(called: &Called) -> BTreeSet<&'static str> {
    methods().difference(&called.lock().expect("not poisoned")).copied().collect()
}

#[test]
fn a_box_hands_everything_on_and_its_answer_back() {
    let (mut bare, called) = Recorder::new();
    let expected = call_all!(bare, &mut 0);
    assert_eq!(*called.lock().expect("not poisoned"), methods(), "this test calls all methods there are");
    let (inner, called) = Recorder::new();
    let mut boxed = AnyTransport::outside(inner);
    assert_eq!(call_all!(boxed, None), expected);
    assert_eq!(kept(&called), [].into());
}

/// What neither a simulated network nor a provider that matches has: what goes past its frames, and a descriptor that tells
/// of what is late. Their capabilities say so.
const UNSIMULATED: [&str; 60] = [
    "name",
    "capabilities",
    "memory",
    "reads",
    "read",
    "read_at_once",
    "expose",
    "withdraw",
    "withdraw_all",
    "direct",
    "expect",
    "send_direct",
    "end",
    "one_sided",
    "contexts",
    "register_exposed",
    "withdraw_exposed",
    "withdraw_for_good",
    "settled",
    "may_use",
    "has_left",
    "refuses_stale_keys",
    "atomics",
    "copies_max",
    "put",
    "get",
    "fetch_atomic",
    "compare_swap",
    "issued",
    "completed",
    "failed_operation",
    "progress",
    "was_reached",
    "matching",
    "post_receive",
    "recall",
    "peek",
    "peeked",
    "leave",
    "credit_windows",
    "grant",
    "granted",
    "shared_memory",
    "make",
    "give",
    "stop_giving",
    "take",
    "has_boards",
    "heap_of",
    "writable_heap",
    "store",
    "store_runs",
    "fetch_runs",
    "fetches",
    "fetch",
    "wake",
    "deliver",
    "drain_link",
    "wait_fd",
    "must_poll",
];

/// What a wrapper answers by itself.
fn own<const N: usize>(more: [&'static str; N]) -> BTreeSet<&'static str> {
    UNSIMULATED.into_iter().chain(more).collect()
}

#[test]
fn a_simulated_network_hands_on_what_it_does_not_simulate() {
    let net = SimNet::new(2, SimConfig::calm(1));
    let (inner, called) = Recorder::new();
    let mut sim = Sim::new(inner, 0, &net);
    assert!(called.lock().expect("not poisoned").contains("leave"), "nothing matches below it");
    called.lock().expect("not poisoned").clear();
    call_all!(sim, &mut Default::default());
    // Frames are delayed one by one, and nobody matches.
    assert_eq!(kept(&called), own(["send_batch"]));
    assert!(sim.memory().is_none() && sim.credit_windows().is_none() && sim.matching().is_none());
    let has = sim.capabilities();
    assert!(!(has.remote_read || has.can_sleep));
}

#[test]
fn a_simulated_provider_hands_on_what_it_does_not_do_itself() {
    let (inner, called) = Recorder::new();
    let mut provider = Provider::new(inner, 0, ProviderConfig::calm(1)).expect("a mode that can be");
    called.lock().expect("not poisoned").clear();
    call_all!(provider, &mut 0);
    // It matches.
    assert_eq!(kept(&called), own([]));
    assert!(provider.memory().is_none() && provider.credit_windows().is_none() && provider.matching().is_none());
    let has = provider.capabilities();
    assert!(!(has.remote_read || has.can_sleep));
}
