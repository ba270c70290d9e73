//! Calls: from both sides at once, from strangers, and to peers that are not there.

use super::kit::{World, endpoint, span};
use crate::handshake::{Greeting, Packet};
use crate::ofi::card::Card;
use crate::ofi::wrapper_tests::{Open, library, open};
use crate::ofi::*;
use crate::{LinkEvent, Transport};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use tickwire_components::wire::{Header, Kind, VERSION};

#[test]
fn two_that_call_each_other_have_one_link() {
    let Some(mut world) = World::pair("sockets") else { return };
    let cards = [world.all[0].card(), world.all[1].card()];
    let calls = [0, 1].map(|me| world.all[me].connect(1 - me as u32, &cards[1 - me], 0).unwrap());
    world.until("both connected", |world| world.events.iter().all(|events| !events.is_empty()));
    assert_eq!(world.events[0], [LinkEvent::Connected { link: calls[0] }], "the lower number's attempt wins");
    let [LinkEvent::Replaced { link, by }] = world.events[1][..] else { panic!("{:?}", world.events[1]) };
    assert_eq!(link, calls[1]);
    world.send(0, calls[0], 7, vec![1; 10]);
    world.send(1, by, 8, vec![2; 10]);
    world.until("both frames", |world| world.received.iter().all(|received| received.len() == 1));
}

/// What a hostile caller says, and what it is told.
fn told(world: &mut World, at: SocketAddr, words: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(words).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut answer = Vec::new();
    world.until("an answer", |_| {
        let mut part = [0; 600];
        match stream.read(&mut part) {
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
        !answer.is_empty()
    });
    let Ok(Packet::Refused(why)) = Packet::decode(&answer[4..]) else { panic!("{answer:?}") };
    why
}

#[test]
fn callers_that_are_none_are_told_why_and_harm_nobody() {
    let Some(mut world) = World::pair("sockets") else { return };
    let links = world.connect();
    let card = Card::decode(&world.all[1].card()).unwrap();
    let greeting = Greeting {
        capabilities: 0,
        slot: 0,
        proc: 2,
        procs: 3,
        ring_bytes: 0,
        first_ring_bytes: 0,
        frame_max: world.all[1].capabilities().frame_max as u64,
        pid: 1,
        start_time: 1,
        boot_id: 1,
        job: "ofi-tests".into(),
        heap_base: 0,
        heap_bytes: 0,
    };
    let hello = |greeting: &Greeting, secret: u64| {
        let (packet, mut proof) = (Packet::Hello(greeting.clone()).encode(), secret.to_be_bytes().to_vec());
        proof.extend([1; 8]);
        proof.push(0);
        let mut message = ((4 + packet.len() + proof.len()) as u16).to_be_bytes().to_vec();
        message.extend((packet.len() as u16).to_be_bytes());
        message.extend([packet, proof].concat());
        message
    };
    let mut other_version = hello(&greeting, card.secret);
    other_version[4 + 16..][..2].copy_from_slice(&(VERSION + 1).to_ne_bytes());
    let job = Greeting { job: "another".into(), ..greeting.clone() };
    let frame_max = Greeting { frame_max: 77, ..greeting.clone() };
    let number = Greeting { proc: 3, ..greeting.clone() };
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "another program"),
        (other_version, "use one version"),
        (hello(&greeting, card.secret ^ 1), "does not know this proc's card"),
        (hello(&job, card.secret), "belongs to job \"another\""),
        (hello(&frame_max, card.secret), "takes payloads of 77 bytes"),
        (hello(&number, card.secret), "proc 3 of 3"),
        (hello(&greeting, card.secret), "fi_av_insert"),
    ];
    for (words, expected) in cases {
        let why = told(&mut world, card.control, &words);
        assert!(why.contains(expected), "{expected}: {why}");
    }
    world.send(0, links[0], 7, vec![1; 10]);
    world.until("a frame", |world| world.received[1].len() == 1);
}

/// Two that are connected, their links, an endpoint that is none of theirs, and where it reaches the second one.
fn with_stranger() -> Option<(World, [u32; 2], Open, libfabric_sys::fi_addr_t)> {
    let mut world = World::pair("sockets")?;
    let links = world.connect();
    let stranger = open(&library()?, "sockets", false).unwrap().unwrap();
    let to = stranger.addresses.insert(&Card::decode(&world.all[1].card()).unwrap().address).unwrap();
    Some((world, links, stranger, to))
}

/// More of them than an endpoint may fail to receive.
#[test]
fn a_stranger_that_sends_more_than_there_is_room_for_harms_nobody() {
    let Some((mut world, [link, _], stranger, to)) = with_stranger() else { return };
    let (mut long, mut contexts) = (vec![1; 1 << 20], vec![[0u64; 8]; 300]);
    for (sent, context) in contexts.iter_mut().enumerate() {
        let run = span(&mut long);
        world.until("a message that is too long", |_| {
            let _ = stranger.queue.read(&mut [no_completion()]);
            // SAFETY: bytes and contexts are there until the end.
            #[expect(unsafe_code, reason = "FFI")]
            let sent = unsafe { stranger.endpoint.send(run, std::ptr::null_mut(), to, context.as_mut_ptr().cast()) };
            sent.is_ok()
        });
        world.until("a stray", |world| {
            let _ = stranger.queue.read(&mut [no_completion()]);
            world.all[1].port.get_mut().strays() > sent as u64
        });
    }
    world.send(0, link, 7, vec![1; 10]);
    world.until("a frame", |world| world.received[1].len() == 1);
    assert!(world.events.iter().all(|events| events.len() == 1), "{:?}", world.events);
    drop(stranger);
}

#[test]
fn frames_without_the_token_are_dropped_and_corrupt_ones_end_their_link() {
    let Some((mut world, [link, theirs], stranger, to)) = with_stranger() else { return };
    let token = world.all[1].port.get_mut().token(theirs);
    let frame = |link: u32, number: u32, token: u64, header: Header| {
        let mut words = vec![u64::from(link) | u64::from(number) << 32, token];
        words.extend([header.lead, header.origin, header.name, header.length]);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()
    };
    let plain = Header::new(Kind::Eager, 1, 2, 3, 0, 0);
    let strays = [
        vec![1],
        vec![1; 47],
        frame(theirs, 0, token ^ 1, plain),
        frame(theirs + 1, 0, token, plain),
        frame(theirs, 0, 0, plain),
    ];
    let send = |world: &mut World, mut bytes: Vec<u8>| {
        let run = span(&mut bytes);
        world.until("a stray", |_| {
            // SAFETY: the bytes are there until the call returns, and may be used again then.
            #[expect(unsafe_code, reason = "FFI")]
            let sent = unsafe { stranger.endpoint.inject(run, to) };
            let _ = stranger.queue.read(&mut [no_completion()]);
            sent.is_ok()
        });
    };
    let count = strays.len() as u64;
    strays.into_iter().for_each(|stray| send(&mut world, stray));
    world.until("strays", |world| {
        let _ = stranger.queue.read(&mut [no_completion()]);
        world.all[1].port.get_mut().strays() == count
    });
    world.send(0, link, 7, vec![1; 10]);
    world.until("a frame", |world| world.received[1].len() == 1);
    assert!(world.events.iter().all(|events| events.len() == 1), "{:?}", world.events);
    // With the token, which only the peer has: a frame that says another length than it has.
    send(&mut world, frame(theirs, 2, token, Header::new(Kind::Eager, 1, 2, 3, 0, 1 << 40)));
    world.until("an end", |world| {
        let _ = stranger.queue.read(&mut [no_completion()]);
        world.events.iter().all(|events| events.len() == 2)
    });
    let LinkEvent::Failed { reason, .. } = &world.events[1][1] else { panic!() };
    assert!(reason.contains("corrupt bytes"), "{reason}");
    let LinkEvent::Failed { reason, .. } = &world.events[0][1] else { panic!() };
    assert!(reason.contains("gave the connection up: corrupt bytes"), "{reason}");
}

#[test]
fn a_peer_that_is_not_there_or_does_not_answer_is_one_clear_error() {
    let Some(caller) = endpoint(0, "sockets") else { return };
    let mut world = World::new(vec![caller]);
    world.all[0].own.config.connect_ms_max = Some(100);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let real = Card::decode(&world.all[0].card()).unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (silent.local_addr().unwrap(), "did not answer within", "TICKWIRE_OFI_INTERFACE"),
        (gone, "is not running any more", "Connection refused"),
    ];
    for (control, what, more) in cases {
        let card = Card { control, ..real.clone() };
        let now_ns = world.now_ns();
        let called = world.all[0].connect(1, &card.encode(), now_ns);
        let reason = match called {
            Err(reason) => reason,
            Ok(link) => {
                world.events[0].clear();
                world.until("an error", |world| !world.events[0].is_empty());
                let [LinkEvent::Failed { link: failed, reason }] = &world.events[0][..] else { panic!() };
                assert_eq!(*failed, link);
                let reason = reason.clone();
                world.all[0].close_link(link);
                reason
            }
        };
        assert!(reason.contains(what) && reason.contains(more), "{reason}");
    }
    assert!(world.all[0].reaches(1, &[]).unwrap_err().contains("open the same transports"));
    assert!(world.all[0].reaches(0, &real.encode()).unwrap_err().contains("loopback"));
}

#[test]
fn what_comes_in_one_read_with_the_answer_to_a_call_is_heard() {
    let Some(mut world) = World::pair("sockets") else { return };
    // The second endpoint is where the bytes of a made-up callee come from.
    let callee = world.all.remove(1);
    world.events.pop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let card = Card { control: listener.local_addr().unwrap(), ..Card::decode(&callee.card()).unwrap() };
    let now_ns = world.now_ns();
    let link = world.all[0].connect(1, &card.encode(), now_ns).unwrap();
    let mut stream = None;
    world.until("a call", |_| {
        stream = listener.accept().ok();
        stream.is_some()
    });
    let (mut stream, _) = stream.unwrap();
    let mut hello = [0; 700];
    stream.set_nonblocking(true).unwrap();
    world.until("a greeting", |_| stream.read(&mut hello).is_ok_and(|count| count > 100));
    let proof = control::Proof { secret: card.secret, token: 5, address: card.address.clone() };
    let mut words = control::Message::Welcome(callee.own.greeting.clone(), proof).encode();
    // More than one pass hears, and the last one ends the connection.
    for _ in 0..300 {
        words.extend(control::Message::AskSent.encode());
    }
    words.extend(control::Message::Refused("enough".into()).encode());
    let (mut written, mut answers) = (0, vec![0; 4096]);
    world.until("an end", |world| {
        written += stream.write(&words[written..]).unwrap_or(0);
        let _ = stream.read(&mut answers);
        matches!(world.events[0].last(), Some(LinkEvent::Failed { .. }))
    });
    assert_eq!(world.events[0][0], LinkEvent::Connected { link });
    let Some(LinkEvent::Failed { reason, .. }) = world.events[0].last() else { panic!() };
    assert!(reason.contains("enough"), "{reason}");
}
