//! The cases over libfabric's providers: engines of one process, and jobs of processes.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tickwire::launch::{Job, JobOutcome, OnFailure, RankStatus};
use tickwire::testing::{Board, Cluster, ROWS, TagMode, rows};
use tickwire::transports::Transport;
use tickwire::transports::ofi::tags::{ProviderTags, TagFormat};
use tickwire::transports::ofi::{Choice, ENV_TAG_MODE, Info, Library, Ofi, OfiConfig, tagged_hints};
use tickwire::{Builder, ENV_TRANSPORTS, Engine, Protocol, Rank, RequestError, Source, Tag, TagFilter};
use tickwire_tests::cases::{self, BOUND, content};

/// Providers that a machine without a special network has.
const PROVIDERS: [&str; 5] = ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"];

/// Whether there is libfabric; without it, a line that says so.
fn is_there() -> bool {
    let library = Library::get();
    if let Err(error) = &library {
        assert!(std::env::var_os("CI").is_none(), "{error}");
        eprintln!("SKIPPED: {error}");
    }
    library.is_ok()
}

/// Engines of one process that reach each other by one provider.
fn cluster(engines: u32, provider: &str) -> Cluster {
    let choice = Choice { include: vec![provider.into()], ..Choice::default() };
    Cluster::build(engines, |_| Engine::builder().ofi(choice.clone()).exclude(["shm"]).initial_rows(ROWS))
}

fn all_cases(provider: &str) {
    if is_there() {
        for engines in [2, 3] {
            cases::all(&mut cluster(engines, provider));
        }
    }
}

#[test]
fn all_cases_over_tcp() {
    all_cases("tcp;ofi_rxm");
}

#[test]
fn all_cases_over_net() {
    all_cases("net");
}

#[test]
fn all_cases_over_sockets() {
    all_cases("sockets");
}

#[test]
fn all_cases_over_shm() {
    all_cases("shm");
}

#[test]
fn all_cases_over_udp() {
    all_cases("udp;ofi_rxd");
}

// Tagged mode.

/// Providers whose matching can be used, in libfabric 1.17 and later.
const MATCHING: [&str; 2] = ["tcp;ofi_rxm", "sockets"];

/// As [`cluster`], in tagged mode.
fn tagged(engines: u32, provider: &str, mode: TagMode) -> Cluster {
    chosen(engines, &Choice { include: vec![provider.into()], tags: Some(mode), ..Choice::default() })
}

/// Engines of one process that reach each other as a choice says.
fn chosen(engines: u32, choice: &Choice) -> Cluster {
    Cluster::build(engines, |_| Engine::builder().ofi(choice.clone()).exclude(["shm"]).initial_rows(ROWS))
}

/// Whether the provider matches for an engine.
fn is_matched(cluster: &mut Cluster) -> bool {
    rows(&mut cluster.engines[0]).endpoints.iter().any(|endpoint| endpoint.matches)
}

fn all_tagged_cases(provider: &str) {
    if is_there() {
        for (engines, mode) in [(2, TagMode::Auto), (3, TagMode::Full), (2, TagMode::One), (2, TagMode::Two)] {
            let mut cluster = tagged(engines, provider, mode);
            assert!(is_matched(&mut cluster), "{provider}");
            cases::all(&mut cluster);
            special_cases(&mut cluster);
        }
    }
}

/// What goes another way where the provider matches.
fn special_cases(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    // Cancelled, and then the next one has the message.
    for source in [Source::Any, Source::Rank(1)] {
        let request = cluster.engines[0].irecv(vec![0; 8], source, Tag(5), world).unwrap();
        cluster.tick_times(5);
        let cancelled = cluster.engines[0].cancel(&request).unwrap();
        assert_eq!(cluster.finish(BOUND, 0, request).unwrap_err().error, RequestError::Cancelled, "{cancelled}");
        let next = cluster.engines[0].irecv(vec![0; 8], source, Tag(5), world).unwrap();
        let send = cluster.engines[1].isend(b"for next".to_vec(), Rank(0), Tag(5), world).unwrap();
        assert_eq!(cluster.finish(BOUND, 0, next).unwrap().0, b"for next");
        cluster.finish(BOUND, 1, send).unwrap();
    }
    // Synchronous.
    // The header of 16 380 B is too much for what goes whole.
    for length in [0, 100, 16_000, 16_380, 50_000] {
        let send = cluster.engines[1].issend(content(1, length), Rank(0), Tag(6), world).unwrap();
        cluster.tick_times(20);
        assert!(cases::is_pending(cluster, 1, &send));
        let request = cluster.engines[0].irecv(vec![0; length], Rank(1), TagFilter::Any, world).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == content(1, length));
        cluster.finish(BOUND, 1, send).unwrap();
    }
    // Probes.
    assert_eq!(cluster.engines[0].iprobe(Rank(1), TagFilter::Any, world).unwrap(), None);
    let planned = [(10, 100), (11, 50_000), (12, 0), (13, 16_384)];
    for (tag, length) in planned {
        drop(cluster.engines[1].isend(content(2, length), Rank(0), Tag(tag), world).unwrap());
    }
    for (tag, length) in planned.into_iter().rev() {
        let mut found = None;
        cluster.tick_until(BOUND, "a probe finds it", |cluster| {
            found = cluster.engines[0].iprobe(Source::Any, Tag(tag), world).unwrap();
            found.is_some()
        });
        let status = found.unwrap();
        assert_eq!((status.source, status.tag, status.length), (Rank(1), Tag(tag), length));
    }
    let first = cluster.engines[0].iprobe(Rank(1), TagFilter::Any, world).unwrap().unwrap();
    assert_eq!(first.tag, Tag(10), "the oldest");
    for (tag, length) in planned.into_iter().rev() {
        let message = cluster.engines[0].improbe(Rank(1), Tag(tag), world).unwrap().unwrap();
        assert_eq!(message.status().length, length);
        let request = cluster.engines[0].imrecv(message, vec![0; length]).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == content(2, length));
    }
    cluster.tick_until(BOUND, "all sends are done", |cluster| rows(&mut cluster.engines[1]).progress.active == 0);
    cluster.tick_times(200);
    cluster.assert_at_rest();
}

#[test]
fn all_cases_tagged_over_tcp() {
    all_tagged_cases("tcp;ofi_rxm");
}

#[test]
fn all_cases_tagged_over_sockets() {
    all_tagged_cases("sockets");
}

#[test]
fn providers_without_cq_data_are_served_by_the_modes_that_need_none() {
    if !is_there() {
        return;
    }
    for provider in MATCHING {
        let choice = |mode| {
            let (include, tags) = (vec![provider.into()], Some(mode));
            Choice { include, tags, without_data: true, ..Choice::default() }
        };
        for (mode, found) in [(TagMode::Auto, "ofi_tag_1"), (TagMode::One, "ofi_tag_1"), (TagMode::Two, "ofi_tag_2")] {
            let mut cluster = chosen(2, &choice(mode));
            assert!(is_matched(&mut cluster), "{provider}");
            assert_eq!(cluster.engines[0].tag_limits().mode, found);
            cases::all(&mut cluster);
            special_cases(&mut cluster);
        }
        let words = refused(choice(TagMode::Full));
        assert!(words.contains("ofi_tag_full needs remote CQ data") && words.contains(provider), "{words}");
    }
}

/// Why a choice cannot be, as an engine says it.
fn refused(choice: Choice) -> String {
    let built = Engine::builder().ofi(choice).build(Board::new(2).bootstrap(0));
    built.map(drop).unwrap_err().to_string()
}

#[test]
fn a_mode_that_is_asked_for_by_name_is_refused_with_the_reason_where_the_provider_cannot_do_it() {
    if !is_there() {
        return;
    }
    let version = Library::get().unwrap().version();
    for (provider, why) in
        [("shm", "posts a receive where it is asked to look"), ("udp;ofi_rxd", "loses what it"), ("net", "holds up")]
    {
        if provider == "shm" && version >= (2, 6) || provider == "net" && version >= (1, 18) {
            continue;
        }
        for mode in [TagMode::One, TagMode::Two, TagMode::Full] {
            let words = refused(Choice { include: vec![provider.into()], tags: Some(mode), ..Choice::default() });
            let says = |what: &str| assert!(words.contains(what), "{what}: {words}");
            [provider, mode.name(), why, "use auto or message"].iter().for_each(|what| says(what));
            let outcome = run_with(provider, 2, "lengths", &[], mode.name());
            assert_ne!(outcome.code(), 0, "{provider}, {mode}: {outcome:?}");
        }
    }
}

#[test]
fn a_flood_of_messages_that_a_provider_matches_is_bounded_and_nothing_is_lost() {
    if is_there() {
        for provider in MATCHING {
            for first in ["first", "last"] {
                let outcome = run_with(provider, 2, "flood", &["6000", first], "auto");
                assert_eq!(outcome.code(), 0, "{provider}, {first}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_dump_shows_what_a_provider_that_matches_holds() {
    if !is_there() {
        return;
    }
    for provider in MATCHING {
        for without_data in [false, true] {
            let (include, tags) = (vec![provider.into()], Some(TagMode::Auto));
            let mut cluster = chosen(3, &Choice { include, tags, without_data, ..Choice::default() });
            let world = cluster.engines[0].comm_world();
            let planned = [(1, 5, 10), (2, 5, 20), (1, 6, 50_000), (1, 7, 0), (2, 5, 30)];
            for (from, tag, length) in planned {
                drop(cluster.engines[from].isend(content(1, length), Rank(0), Tag(tag), world).unwrap());
            }
            let synchronous = cluster.engines[1].issend(content(1, 40), Rank(0), Tag(5), world).unwrap();
            let of = |cluster: &mut Cluster, from: u32| {
                let dump = cluster.engines[0].dump();
                assert_eq!(dump.hidden, None);
                let messages = dump.unexpected.into_iter().filter(|message| message.rank == from);
                messages.map(|message| (message.tag, message.bytes)).collect::<Vec<_>>()
            };
            cluster.tick_until(BOUND, "all are shown", |cluster| {
                of(cluster, 1) == [(5, 10), (6, 50_000), (7, 0), (5, 40)] && of(cluster, 2) == [(5, 20), (5, 30)]
            });
            cluster.tick_times(50);
            assert!(cases::is_pending(&mut cluster, 1, &synchronous));
            for (from, tag, length) in planned.into_iter().chain([(1, 5, 40)]) {
                let receive = cluster.engines[0].irecv(vec![0; 50_000], Rank(from as u32), Tag(tag), world).unwrap();
                let (bytes, status) = cluster.finish(BOUND, 0, receive).unwrap();
                assert!(status.length == length && bytes[..length] == content(1, length));
            }
            cluster.finish(BOUND, 1, synchronous).unwrap();
            cluster.tick_times(200);
            cluster.assert_at_rest();
        }
    }
}

#[test]
fn providers_that_match_wrongly_leave_it_to_the_engine_and_say_so() {
    if !is_there() {
        return;
    }
    for provider in ["shm", "udp;ofi_rxd", "net"] {
        let choice = Choice { include: vec![provider.into()], tags: Some(TagMode::Auto), ..Choice::default() };
        let config = OfiConfig { choice, ..OfiConfig::new("tagged", 0, 1) };
        let opened = Ofi::open(&config).unwrap();
        let version = Library::get().unwrap().version();
        if provider != "shm" || version < (2, 6) {
            assert!(opened[0].matching().starts_with("message mode: provider "), "{}", opened[0].matching());
            assert!(!opened[0].capabilities().matches_tags);
            let mut cluster = tagged(2, provider, TagMode::Auto);
            assert!(!is_matched(&mut cluster));
            cases::truncation(&mut cluster);
        }
    }
    for provider in MATCHING {
        let choice = Choice { include: vec![provider.into()], tags: Some(TagMode::One), ..Choice::default() };
        let config = OfiConfig { choice, ..OfiConfig::new("tagged", 0, 1) };
        let opened = Ofi::open(&config).unwrap();
        assert_eq!(opened[0].matching(), "tagged mode ofi_tag_1: the provider matches");
        assert_eq!(opened[0].capabilities().tags.contexts, 1 << 12, "{provider}");
    }
}

#[test]
fn bits_that_a_provider_keeps_are_missing_in_the_context() {
    if !is_there() {
        return;
    }
    let library = Library::get().unwrap();
    // Only up to 1.17 there is one that keeps some.
    for info in Info::list(&library, &tagged_hints("net", true)).unwrap_or_default().iter().take(1) {
        let (format, data_bytes) = (info.ep_attr().mem_tag_format, info.domain_attr().cq_data_size);
        let tags = ProviderTags { format, data_bytes, directed_receive: true };
        let bits = [TagMode::One, TagMode::Two, TagMode::Full, TagMode::Auto]
            .map(|mode| TagFormat::new(mode, &tags).unwrap().context_bits());
        assert_eq!((format.leading_zeros(), bits), (1, [11, 23, 28, 28]));
    }
}

#[test]
fn one_provider_matches_and_the_engine_for_the_others() {
    if !is_there() {
        return;
    }
    for provider in MATCHING {
        let mut cluster = tagged(2, provider, TagMode::Auto);
        cases::storm(&mut cluster, 3, 30);
    }
    let choice = Choice { include: vec!["sockets".into()], devices: 2, tags: Some(TagMode::Auto), ..Choice::default() };
    let mut cluster = Cluster::build(2, |_| Engine::builder().ofi(choice.clone()).exclude(["shm"]).initial_rows(ROWS));
    let endpoints = rows(&mut cluster.engines[0]).endpoints;
    let matches = endpoints.iter().filter(|endpoint| endpoint.matches).count();
    assert_eq!(matches, 1);
    exchange(&mut cluster, 0, 1);
}

#[test]
fn processes_send_everything_to_everyone_tagged() {
    if is_there() {
        for provider in MATCHING {
            let outcome = run_with(provider, 3, "storm", &["3", "30"], "auto");
            assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
            let outcome = run_with(provider, 3, "death", &[], "auto");
            assert_eq!(outcome.first_failure, Some((2, RankStatus::Killed(9))), "{provider}: {outcome:?}");
            assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{provider}: {outcome:?}");
        }
    }
}

/// Runs a job of `rank` programs that reach each other by one provider.
fn run(provider: &str, ranks: u32, test: &str, args: &[&str]) -> JobOutcome {
    run_with(provider, ranks, test, args, "message")
}

/// The same in a mode.
fn run_with(provider: &str, ranks: u32, test: &str, args: &[&str], mode: &str) -> JobOutcome {
    let name = format!("tickwire-fabric-{provider}-{test}-{mode}-{}", std::process::id());
    let place = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).unwrap();
    let job = Job::new(ranks).program(env!("CARGO_BIN_EXE_tests-rank")).args([test]).args([place.as_os_str()]);
    let job = job.args(args).env(ENV_TRANSPORTS, format!("loopback,ofi:{provider}")).env(ENV_TAG_MODE, mode);
    let outcome = job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
    let _ = std::fs::remove_dir_all(place);
    outcome
}

#[test]
fn processes_send_everything_to_everyone() {
    if is_there() {
        for provider in PROVIDERS {
            let outcome = run(provider, 3, "storm", &["3", "30"]);
            assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
        }
    }
}

#[test]
fn a_rank_that_is_stopped_or_computes_is_waited_for_and_one_that_was_given_up_is_told() {
    if is_there() {
        for provider in ["tcp;ofi_rxm", "net", "sockets"] {
            for limit in ["none", "300"] {
                let outcome = run(provider, 2, "computes", &[limit]);
                assert_eq!(outcome.code(), 0, "{provider}, {limit}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_killed_process_is_noticed_and_the_others_go_on() {
    if is_there() {
        for provider in PROVIDERS {
            let outcome = run(provider, 3, "death", &[]);
            assert_eq!(outcome.first_failure, Some((2, RankStatus::Killed(9))), "{provider}: {outcome:?}");
            assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{provider}: {outcome:?}");
        }
    }
}

#[test]
fn a_process_that_is_killed_amid_long_messages_leaves_nobody_waiting_and_no_memory_in_use() {
    if is_there() {
        // What a sender is done with is the kernel's here, so it comes although the sender has gone.
        for test in ["death-of-a-sender", "death-of-a-receiver"] {
            for _ in 0..3 {
                let outcome = run("net", 2, test, &[]);
                assert_eq!(outcome.statuses[1], RankStatus::Killed(9), "{test}: {outcome:?}");
                assert!(outcome.statuses[0].is_success(), "{test}: {outcome:?}");
            }
        }
    }
}

/// A message with receipts; how it was sent and received, and how often the receiver has copied it.
fn receipted(cluster: &mut Cluster, bytes: usize, room: usize) -> (Option<Protocol>, Option<Protocol>, u32) {
    let world = cluster.engines[0].comm_world();
    let message = content(bytes as u64, bytes);
    let receive = cluster.engines[1].receipted().irecv(vec![0; room], Rank(0), Tag(1), world).unwrap();
    let send = cluster.engines[0].receipted().isend(message.clone(), Rank(1), Tag(1), world).unwrap();
    // One that is cut short is done with an error.
    cluster.tick_until(BOUND, "a message", |cluster| {
        let [sender, receiver] = &mut cluster.engines[..] else { unreachable!() };
        sender.test(&send).unwrap().is_done() && receiver.test(&receive).map_or(true, |done| done.is_done())
    });
    let sent = cluster.engines[0].receipt(&send).unwrap();
    let received = cluster.engines[1].receipt(&receive).unwrap();
    assert!(cluster.finish(BOUND, 0, send).unwrap().0 == message);
    let bytes = match cluster.finish(BOUND, 1, receive) {
        Ok((bytes, _)) => bytes,
        Err(failed) => failed.buffer.unwrap(),
    };
    assert!(bytes[..] == message[..room]);
    (sent.protocol, received.protocol, received.copies)
}

/// What receipts say of a message that goes straight from memory to memory.
const DIRECT: (Option<Protocol>, Option<Protocol>, u32) = (Some(Protocol::Direct), Some(Protocol::Direct), 0);

/// Two engines that are ready for such messages.
fn direct_cluster() -> Cluster {
    let mut cluster = cluster(2, "net");
    let start = Instant::now();
    // The first ones go in pieces, while both sides make ready.
    while receipted(&mut cluster, 1 << 20, 1 << 20) != DIRECT {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    cluster
}

#[test]
fn long_messages_over_net_go_straight_from_memory_to_memory() {
    if !is_there() {
        return;
    }
    let mut cluster = direct_cluster();
    for bytes in [256 << 10, (1 << 20) - 1, (3 << 20) + 7, 20 << 20] {
        assert_eq!(receipted(&mut cluster, bytes, bytes), DIRECT, "{bytes}");
    }
    let pieces = (Some(Protocol::Pieces), Some(Protocol::Pieces), 1);
    assert_eq!(receipted(&mut cluster, (256 << 10) - 1, (256 << 10) - 1), pieces);
    // What is cut short goes so as far as it is wanted.
    assert_eq!(receipted(&mut cluster, 2 << 20, 1 << 20), DIRECT);
    cases::all(&mut cluster);
}

/// A message there and back.
fn exchange(cluster: &mut Cluster, first: usize, second: usize) {
    let world = cluster.engines[0].comm_world();
    for (from, to) in [(first, second), (second, first)] {
        let receive = cluster.engines[to].irecv(vec![0; 50_000], Rank(from as u32), Tag(1), world).unwrap();
        let send = cluster.engines[from].isend(content(1, 50_000), Rank(to as u32), Tag(1), world).unwrap();
        assert!(cluster.finish(BOUND, to, receive).unwrap().0 == content(1, 50_000));
        cluster.finish(BOUND, from, send).unwrap();
    }
}

#[test]
fn whoever_has_waited_for_sends_may_stay_away() {
    if !is_there() {
        return;
    }
    for provider in ["net", "shm"] {
        let mut cluster = cluster(2, provider);
        exchange(&mut cluster, 0, 1);
        let world = cluster.engines[0].comm_world();
        let [sender, receiver] = &mut cluster.engines[..] else { unreachable!() };
        for way in 0..3 {
            let receives: Vec<_> =
                (0..20).map(|tag| receiver.irecv(vec![0; 8], Rank(0), Tag(tag), world).unwrap()).collect();
            let sends: Vec<_> =
                (0..19).map(|tag| sender.isend(vec![tag as u8; 8], Rank(1), Tag(tag), world).unwrap()).collect();
            match way {
                0 => drop((sender.send(&[19; 8], Rank(1), Tag(19), world).unwrap(), sends)),
                1 => {
                    let last = sender.isend(vec![19; 8], Rank(1), Tag(19), world).unwrap();
                    sender.wait(&last).unwrap();
                }
                _ => {
                    let last = sender.isend(vec![19; 8], Rank(1), Tag(19), world).unwrap();
                    sender.wait_all(&sends).unwrap();
                    drop(last);
                }
            }
            // The sender does nothing more.
            for receive in &receives {
                receiver.wait_for(receive, Duration::from_secs(10)).unwrap();
            }
        }
    }
}

#[test]
fn one_world_uses_several_devices() {
    if !is_there() {
        return;
    }
    let (tcp, sockets) = ("ofi:tcp;ofi_rxm", "ofi:sockets");
    let lists = [vec!["loopback", tcp, sockets], vec!["loopback", tcp], vec!["loopback", sockets]];
    let mut cluster =
        Cluster::build(3, |rank| Engine::builder().include(lists[rank as usize].clone()).initial_rows(ROWS));
    exchange(&mut cluster, 0, 1);
    exchange(&mut cluster, 0, 2);
    let world = cluster.engines[0].comm_world();
    let words = cluster.engines[1].isend(vec![1], Rank(2), Tag(1), world).map(drop).unwrap_err().to_string();
    assert!(words.contains("ofi:tcp;ofi_rxm: it has no address on this fabric"), "{words}");
}

#[test]
fn each_of_several_devices_of_one_provider_has_an_endpoint() {
    if !is_there() {
        return;
    }
    let Some(host) = Host::with_two_devices() else { return };
    for provider in ["sockets", "tcp;ofi_rxm"] {
        let place = std::env::temp_dir().join(format!("tickwire-devices-{provider}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place).unwrap();
        let job =
            Job::new(2).program("ip").args(["netns", "exec", &host.0, env!("CARGO_BIN_EXE_tests-rank"), "devices"]);
        let job = job.args([place.as_os_str()]).args([provider]).env(ENV_TRANSPORTS, "loopback,ofi");
        let outcome = job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
        let _ = std::fs::remove_dir_all(place);
        assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
    }
}

/// A host of its own with two network devices. It ends with the test.
struct Host(String);

impl Host {
    /// `None` where this user may not make one.
    fn with_two_devices() -> Option<Self> {
        let host = Host(format!("tickwire-{}-two", std::process::id() % 1_000_000));
        if let Err(why) = ip(&["netns", "add", &host.0]) {
            assert!(std::env::var_os("CI").is_none(), "a host with two devices is needed: {why}");
            eprintln!("SKIPPED: no network namespaces ({why}): run as root, with iproute2");
            return None;
        }
        let own = |words: &[&str]| drop(ip(&[&["-n", &host.0], words].concat()).unwrap());
        own(&["link", "set", "lo", "up"]);
        for (device, end, address) in [("one", "one-end", "10.213.8.1/24"), ("two", "two-end", "10.213.9.1/24")] {
            own(&["link", "add", device, "type", "veth", "peer", "name", end]);
            own(&["address", "add", address, "dev", device]);
            own(&["link", "set", device, "up"]);
            own(&["link", "set", end, "up"]);
        }
        Some(host)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

#[test]
fn what_cannot_be_opened_is_one_clear_error() {
    if !is_there() {
        return;
    }
    let wrong = |change: &dyn Fn(Builder) -> Builder| {
        let built = change(Engine::builder()).build(Board::new(2).bootstrap(0));
        built.map(drop).unwrap_err().to_string()
    };
    let of = |provider: &str| Choice { include: vec![provider.into()], ..Choice::default() };
    let unknown = wrong(&|builder| builder.ofi(of("quadrics")));
    assert!(unknown.contains("no provider \"quadrics\" here: there are ") && unknown.contains("sockets"), "{unknown}");
    let interface = wrong(&|builder| builder.ofi(Choice { interface: Some("ib7".into()), ..of("sockets") }));
    assert!(interface.contains("provider sockets does not use the interface \"ib7\": it has "), "{interface}");
    let excluded = wrong(&|builder| builder.ofi(of("sockets")).exclude(["ofi:sockets"]));
    assert!(excluded.contains("sockets on ") && excluded.contains("excluded: sockets"), "{excluded}");
    let layer = wrong(&|builder| builder.include(["loopback", "ofi:ofi_rxm"]));
    assert!(layer.contains("'ofi:ofi_rxm'") || layer.contains("ofi:ofi_rxm"), "{layer}");
    assert!(layer.contains("exact name") && layer.contains(";ofi_rxm"), "{layer}");
}

/// Engine 0 waits 300 ms for a message; the processor time that takes, and whether it polls.
fn wait_for_a_late_message(provider: &str, polls: bool) -> (Duration, bool) {
    let choice = Choice { include: vec![provider.into()], polls, ..Choice::default() };
    let board = Board::new(2);
    let build = |rank| {
        let builder = Engine::builder().ofi(choice.clone()).exclude(["shm"]);
        builder.build(board.bootstrap(rank)).unwrap()
    };
    let cpu = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let mut engine = build(1);
            let world = engine.comm_world();
            engine.send(&[1; 100], Rank(0), Tag(1), world).unwrap();
            engine.recv(&mut [0; 1], Rank(0), Tag(1), world).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            engine.send(&[2; 100], Rank(0), Tag(2), world).unwrap();
            engine.finalize(Duration::from_secs(5)).unwrap();
        });
        let mut engine = build(0);
        let world = engine.comm_world();
        engine.recv(&mut [0; 100], Rank(1), Tag(1), world).unwrap();
        engine.send(&[1], Rank(1), Tag(1), world).unwrap();
        let (start, before) = (Instant::now(), cpu());
        engine.recv(&mut [0; 100], Rank(1), Tag(2), world).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(250), "it was waited for");
        let (spent, polls) = (cpu() - before, engine.must_poll());
        engine.finalize(Duration::from_secs(5)).unwrap();
        late.join().unwrap();
        (spent, polls)
    })
}

#[test]
fn a_wait_sleeps_where_the_provider_wakes_it_and_polls_where_not_or_asked_to() {
    if is_there() {
        for (provider, asked) in
            [("tcp;ofi_rxm", false), ("tcp;ofi_rxm", true), ("net", false), ("sockets", false), ("udp;ofi_rxd", false)]
        {
            let (spent, polls) = wait_for_a_late_message(provider, asked);
            let has_none = ["sockets", "udp;ofi_rxd"].contains(&provider);
            assert_eq!(polls, asked || has_none, "{provider}");
            assert!(spent < Duration::from_millis(150), "{provider}: {spent:?} of processor time");
        }
    }
}

#[test]
fn a_wait_for_a_long_message_sleeps_while_its_sender_is_away() {
    if !is_there() {
        return;
    }
    let mut cluster = direct_cluster();
    let world = cluster.engines[0].comm_world();
    let send = cluster.engines[0].isend(content(1, 1 << 20), Rank(1), Tag(1), world).unwrap();
    cluster.engines[0].tick();
    let receiver = &mut cluster.engines[1];
    let receive = receiver.irecv(vec![0; 1 << 20], Rank(0), Tag(1), world).unwrap();
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let before = now();
    let late = receiver.wait_for(&receive, Duration::from_millis(500)).unwrap_err();
    assert!(matches!(late, RequestError::Timeout), "{late}");
    let spent = now() - before;
    assert!(spent < Duration::from_millis(250), "{spent:?} of processor time");
    assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == content(1, 1 << 20));
    cluster.finish(BOUND, 0, send).unwrap();
}

#[test]
fn what_went_straight_is_received_although_its_sender_has_said_goodbye() {
    if !is_there() {
        return;
    }
    let choice = Choice { include: vec!["net".into()], ..Choice::default() };
    let bytes = 8 << 20;
    for round in 0..5 {
        let board = Board::new(2);
        let build = |rank| {
            let builder = Engine::builder().ofi(choice.clone()).exclude(["shm"]);
            builder.build(board.bootstrap(rank)).unwrap()
        };
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut engine = build(1);
                let world = engine.comm_world();
                let mut more = [1];
                while more == [1] {
                    engine.send(&vec![1; 1 << 20], Rank(0), Tag(1), world).unwrap();
                    engine.recv(&mut more, Rank(0), Tag(1), world).unwrap();
                }
                let last = engine.isend(content(round, bytes), Rank(0), Tag(2), world).unwrap();
                engine.wait(&last).unwrap();
                engine.finalize(Duration::from_secs(5)).unwrap();
            });
            let mut engine = build(0);
            let world = engine.comm_world();
            let (start, mut more) = (Instant::now(), [1]);
            while more == [1] {
                let receive = engine.receipted().irecv(vec![0; 1 << 20], Rank(1), Tag(1), world).unwrap();
                engine.wait(&receive).unwrap();
                let way = engine.receipt(&receive).unwrap().protocol;
                engine.take(receive).unwrap();
                more = [u8::from(way != Some(Protocol::Direct) && start.elapsed() < Duration::from_secs(20))];
                engine.send(&more, Rank(1), Tag(1), world).unwrap();
            }
            let receive = engine.receipted().irecv(vec![0; bytes], Rank(1), Tag(2), world).unwrap();
            engine.wait(&receive).unwrap();
            assert_eq!(engine.receipt(&receive).unwrap().protocol, Some(Protocol::Direct));
            assert!(engine.take(receive).unwrap().0 == content(round, bytes));
            engine.finalize(Duration::from_secs(5)).unwrap();
            sender.join().unwrap();
        });
    }
}

/// Two hosts of one machine: network namespaces with a cable between. They end with the test.
struct Hosts([String; 2]);

impl Hosts {
    /// `None` where this user may not make any.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let own = format!("{}-{}", std::process::id() % 1_000_000, COUNT.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts(["a", "b"].map(|name| format!("tickwire-{own}-{name}")));
        let [a, b] = &hosts.0;
        let (left, right) = (format!("tw{own}a"), format!("tw{own}b"));
        let made = ip(&["netns", "add", a])
            .and_then(|_| ip(&["netns", "add", b]))
            .and_then(|_| ip(&["link", "add", &left, "netns", a, "type", "veth", "peer", "name", &right, "netns", b]));
        if let Err(why) = made {
            assert!(std::env::var_os("CI").is_none(), "two hosts are needed: {why}");
            eprintln!("SKIPPED: no network namespaces ({why}): run as root, with iproute2");
            return None;
        }
        for (host, device, address) in [(a, &left, "10.213.7.1/24"), (b, &right, "10.213.7.2/24")] {
            ip(&["-n", host, "link", "set", "lo", "up"]).unwrap();
            ip(&["-n", host, "address", "add", address, "dev", device]).unwrap();
            ip(&["-n", host, "link", "set", device, "name", "cable"]).unwrap();
            ip(&["-n", host, "link", "set", "cable", "up"]).unwrap();
        }
        let start = Instant::now();
        let up = |host: &String| ip(&["-n", host, "link", "show", "cable", "up"]).unwrap().contains("state UP");
        while !hosts.0.iter().all(up) {
            assert!(start.elapsed() < Duration::from_secs(10), "the cable is up");
        }
        Some(hosts)
    }

    /// Cuts the cable, or mends it.
    fn cable(&self, state: &str) {
        ip(&["-n", &self.0[0], "link", "set", "cable", state]).unwrap();
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = ip(&["netns", "delete", host]);
        }
    }
}

fn ip(args: &[&str]) -> Result<String, String> {
    let output = std::process::Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("ip {}: {words}", args.join(" "))) }
}

/// How long a network is away that is back before anybody takes a peer for dead.
const MOMENT: Duration = Duration::from_millis(600);

/// Four ranks on two hosts, whose cable is taken out for a moment, then for good, and put in again; see the program.
fn two_hosts(provider: &str, mode: &str) {
    if !is_there() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let place = std::env::temp_dir().join(format!("tickwire-hosts-{provider}-{mode}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).unwrap();
    let [a, b] = &hosts.0;
    let script =
        format!("if [ $TICKWIRE_RANK -lt 2 ]; then host={a}; else host={b}; fi; exec ip netns exec $host \"$@\"");
    let job = Job::new(4).program("sh").args(["-c", &script, "sh", env!("CARGO_BIN_EXE_tests-rank"), "hosts"]);
    let transports = format!("loopback,shm,ofi:{provider}");
    let job = job.args([place.as_os_str()]).env(ENV_TRANSPORTS, transports).env(ENV_TAG_MODE, mode);
    let job = job.on_failure(OnFailure::Continue).tag_output(true);
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(move || job.run().unwrap());
        // The ranks are other processes: they are looked at until they have come so far, or have ended.
        let until = |what: &str| {
            let all_say = || (0..4).all(|rank| place.join(format!("{what}-{rank}")).exists());
            while !all_say() && !job.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until("away");
        hosts.cable("down");
        std::thread::sleep(MOMENT);
        hosts.cable("up");
        std::fs::write(place.join("back"), []).unwrap();
        until("ready");
        let now = clock_gettime(ClockId::Monotonic);
        let now_ms = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
        std::fs::write(place.join("cut"), now_ms.to_string()).unwrap();
        hosts.cable("down");
        until("noticed");
        hosts.cable("up");
        std::fs::write(place.join("back-again"), []).unwrap();
        job.join().unwrap()
    });
    let _ = std::fs::remove_dir_all(&place);
    assert_eq!(outcome.code(), 0, "{provider}, {mode}: {outcome:?}");
}

#[test]
fn two_hosts_use_shared_memory_inside_and_the_network_between_until_it_is_cut() {
    two_hosts("tcp;ofi_rxm", "message");
}

#[test]
fn two_hosts_whose_provider_matches_bear_a_moment_without_a_network_and_not_more() {
    two_hosts("tcp;ofi_rxm", "auto");
}

#[test]
fn two_hosts_whose_messages_go_straight_from_memory_to_memory_have_it_back_when_the_network_is_cut() {
    two_hosts("net", "message");
}
