//! Tagged mode: the provider matches messages with receives.

use crate::kit::{MATCHING, chosen, exchange, run_with};
use tickwire::internals::transports::Transport;
use tickwire::internals::transports::ofi::tags::{ProviderTags, TagFormat};
use tickwire::internals::transports::ofi::{Choice, Info, Library, Ofi, OfiConfig, tagged_hints};
use tickwire::launch::RankStatus;
use tickwire::testing::{Board, Cluster, ROWS, TagMode, rows};
use tickwire::{Engine, Rank, RequestError, Source, Tag, TagFilter};
use tickwire_tests::cases::{self, BOUND, content};
use tickwire_tests::needs::has_libfabric;

/// As [`cluster`](crate::kit::cluster), in tagged mode.
fn tagged(engines: u32, provider: &str, mode: TagMode) -> Cluster {
    chosen(engines, &Choice { include: vec![provider.into()], tags: Some(mode), ..Choice::default() })
}

/// Whether the provider matches messages for an engine.
fn is_matched(cluster: &mut Cluster) -> bool {
    rows(&mut cluster.engines[0]).endpoints.iter().any(|endpoint| endpoint.matches)
}

fn all_tagged_cases(provider: &str) {
    if has_libfabric() {
        for (engines, mode) in [(2, TagMode::Auto), (3, TagMode::Full), (2, TagMode::One), (2, TagMode::Two)] {
            let mut cluster = tagged(engines, provider, mode);
            assert!(is_matched(&mut cluster), "{provider}");
            cases::all(&mut cluster);
            special_cases(&mut cluster);
        }
    }
}

/// Cases that take another way if the provider matches messages.
fn special_cases(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    // A receive is cancelled. The next one gets the message.
    for source in [Source::Any, Source::Rank(Rank(1))] {
        let request = cluster.engines[0].irecv(vec![0u8; 8], source, Tag(5), world).unwrap();
        cluster.tick_times(5);
        let cancelled = cluster.engines[0].cancel(&request).unwrap();
        assert_eq!(cluster.finish(BOUND, 0, request).unwrap_err().error, RequestError::Cancelled, "{cancelled}");
        let next = cluster.engines[0].irecv(vec![0u8; 8], source, Tag(5), world).unwrap();
        let send = cluster.engines[1].isend(b"for next".to_vec(), Rank(0), Tag(5), world).unwrap();
        assert_eq!(cluster.finish(BOUND, 0, next).unwrap().0, b"for next");
        cluster.finish(BOUND, 1, send).unwrap();
    }
    // Synchronous sends. With its header, a message of 16 380 B is too long to go as a whole.
    for length in [0, 100, 16_000, 16_380, 50_000] {
        let send = cluster.engines[1].issend(content(1, length), Rank(0), Tag(6), world).unwrap();
        cluster.tick_times(20);
        assert!(cases::is_pending(cluster, 1, &send));
        let request = cluster.engines[0].irecv(vec![0u8; length], Rank(1), TagFilter::Any, world).unwrap();
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
        let request = cluster.engines[0].imrecv(message, vec![0u8; length]).unwrap();
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
    if !has_libfabric() {
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

/// The engine's words about a choice that is impossible.
fn refused(choice: Choice) -> String {
    let built = Engine::builder().ofi(choice).build(Board::new(2).bootstrap(0));
    built.map(drop).unwrap_err().to_string()
}

#[test]
fn a_mode_that_is_asked_for_by_name_is_refused_with_the_reason_where_the_provider_cannot_do_it() {
    if !has_libfabric() {
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
    if has_libfabric() {
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
    if !has_libfabric() {
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
                let receive = cluster.engines[0].irecv(vec![0u8; 50_000], Rank(from as u32), Tag(tag), world).unwrap();
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
    if !has_libfabric() {
        return;
    }
    for provider in ["shm", "udp;ofi_rxd", "net"] {
        let choice = Choice { include: vec![provider.into()], tags: Some(TagMode::Auto), ..Choice::default() };
        let config = OfiConfig { choice, ..OfiConfig::new("tagged", 0, 1) };
        let mut opened = Ofi::open(&config).unwrap();
        let version = Library::get().unwrap().version();
        if provider != "shm" || version < (2, 6) {
            assert!(opened[0].who_matches().starts_with("message mode: provider "), "{}", opened[0].who_matches());
            assert!(opened[0].matching().is_none());
            let mut cluster = tagged(2, provider, TagMode::Auto);
            assert!(!is_matched(&mut cluster));
            cases::truncation(&mut cluster);
        }
    }
    for provider in MATCHING {
        let choice = Choice { include: vec![provider.into()], tags: Some(TagMode::One), ..Choice::default() };
        let config = OfiConfig { choice, ..OfiConfig::new("tagged", 0, 1) };
        let opened = Ofi::open(&config).unwrap();
        assert_eq!(opened[0].who_matches(), "tagged mode ofi_tag_1: the provider matches");
        assert_eq!(opened[0].capabilities().tags.contexts, 1 << 12, "{provider}");
    }
}

#[test]
fn bits_that_a_provider_keeps_are_missing_in_the_context() {
    if !has_libfabric() {
        return;
    }
    let library = Library::get().unwrap();
    // Only libfabric up to 1.17 has a provider that keeps some of the bits.
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
    if !has_libfabric() {
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
    if has_libfabric() {
        for provider in MATCHING {
            let outcome = run_with(provider, 3, "storm", &["3", "30"], "auto");
            assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
            let outcome = run_with(provider, 3, "death", &[], "auto");
            assert_eq!(outcome.first_failure, Some((2, RankStatus::Killed(9))), "{provider}: {outcome:?}");
            assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{provider}: {outcome:?}");
        }
    }
}
