//! Messages of control connections.

use super::*;

fn greeting() -> Greeting {
    Greeting {
        capabilities: 0,
        slot: 7,
        proc: 1,
        procs: 4,
        ring_bytes: 0,
        first_ring_bytes: 0,
        frame_max: 992,
        pid: 42,
        start_time: 1 << 40,
        boot_id: 9,
        job: "a-job".into(),
        heap_base: 0,
        heap_bytes: 0,
    }
}

#[test]
fn messages_come_back_as_they_were_however_they_are_cut() {
    let proof = Proof { secret: 1, token: u64::MAX, address: vec![3; ADDRESS_BYTES_MAX] };
    let answer = Proof { secret: 0, token: 2, address: Vec::new() };
    let all = [
        Message::Hello(greeting(), proof),
        Message::Welcome(greeting(), answer),
        Message::Refused("no".into()),
        Message::Later("busy".into()),
        Message::Sent(1 << 31 | 7),
        Message::AskSent,
        Message::Closed { sent: 1 << 30, received: 5 },
        Message::Direct(vec![4; ADDRESS_BYTES_MAX]),
        Message::OneSided(Introduction::At { contexts: 3, address: vec![5; ADDRESS_BYTES_MAX] }),
        Message::OneSided(Introduction::Nowhere("turned off".into())),
        Message::Ask(Ask { secret: 1 << 63 | 5, question: [7; 16] }),
        Message::Answer,
    ];
    for message in all {
        let bytes = message.encode();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        for length in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..length]), Ok(None), "{length} bytes");
        }
        let two = [&bytes[..], &bytes[..]].concat();
        assert_eq!(Message::decode(&two), Ok(Some((message, bytes.len()))));
    }
}

#[test]
fn what_is_no_message_is_refused_and_nothing_panics() {
    assert_eq!(Message::decode(b"GET / HTTP/1.1\r\n"), Err(Mismatch::Magic));
    let long = Message::Direct(vec![4; ADDRESS_BYTES_MAX + 1]).encode();
    assert!(matches!(Message::decode(&long), Err(Mismatch::Length { .. })));
    let long = Introduction::At { contexts: 1, address: vec![4; ADDRESS_BYTES_MAX + 1] };
    assert!(matches!(Message::decode(&Message::OneSided(long).encode()), Err(Mismatch::Length { .. })));
    let bytes = Message::Closed { sent: 1, received: 0 }.encode();
    let mut short = bytes.clone();
    short[1] -= 1;
    assert!(Message::decode(&short).is_err());
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for round in 0..3000 {
        let mut message = Message::Hello(greeting(), Proof { secret: 1, token: 2, address: vec![3; 16] }).encode();
        for _ in 0..1 + round % 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % message.len();
            message[at] = (state >> 24) as u8;
        }
        let _ = Message::decode(&message);
    }
}

#[test]
fn a_socket_carries_messages_and_tells_of_its_end() {
    // Of IPv6 whatever this host has: loopback, global and link-local addresses.
    let own = crate::ofi::interfaces::own().into_iter().filter(SocketAddr::is_ipv6);
    for at in own.chain([([127, 0, 0, 1], 0).into()]) {
        let (listener, at) = listen(at, 4).unwrap();
        let mut caller = Socket::call(at, 1000).unwrap();
        let mut called = loop {
            match crate::connections::accept(&listener) {
                Ok(descriptor) => break Socket::new(descriptor, 1000),
                Err(error) => assert_eq!(error, Errno::AGAIN),
            }
        };
        assert_eq!(called.hear(), Heard::Nothing);
        while !caller.connected().unwrap() {}
        caller.tell(&Message::Later("busy".into()));
        caller.tell(&Message::Closed { sent: 3, received: 4 });
        caller.hang_up();
        let mut heard = Vec::new();
        while heard.last() != Some(&Heard::Ended(None)) {
            match called.hear() {
                Heard::Nothing => {}
                other => heard.push(other),
            }
        }
        assert_eq!(heard[0], Heard::Message(Ok(Message::Later("busy".into()))));
        assert_eq!(heard[1], Heard::Message(Ok(Message::Closed { sent: 3, received: 4 })));
    }
}
