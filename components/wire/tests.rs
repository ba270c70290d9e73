use super::*;

#[test]
fn fields_stand_where_the_table_says() {
    let header = Header { lead: Kind::Rts as u64 | 0xA8 << 8, ..Header::new(Kind::Rts, 2, 3, 4, 5, 6) };
    let words = [header.lead, header.origin, header.name, header.length];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(bytes[0], 2);
    assert_eq!(bytes[1], 0xA8);
    assert_eq!(bytes[8..12], 2u32.to_le_bytes());
    assert_eq!(bytes[12..16], 3u32.to_le_bytes());
    assert_eq!(bytes[16..20], 4u32.to_le_bytes());
    assert_eq!(bytes[20..24], 5u32.to_le_bytes());
    assert_eq!(bytes[24..32], 6u64.to_le_bytes());
    assert_eq!((header.context(), header.source(), header.tag(), header.message()), (2, 3, 4, 5));
    assert_eq!((header.kind(), header.flags(), header.payload()), (Some(Kind::Rts), 0xA8, 0));
}

#[test]
fn credit_stands_in_the_first_word_as_far_as_it_fits() {
    let header = Header::new(Kind::Cts, 2, 3, 4, 5, 6).with_flags(0xA8);
    let (with, taken) = header.with_credit(Credit { lines: 0x1234, envelopes: 70_000 });
    assert_eq!((with.credit(), taken), (taken, Credit { lines: 0x1234, envelopes: 0xFFFF }));
    assert_eq!(with.lead.to_le_bytes(), [3, 0xA8, 0, 0, 0x34, 0x12, 0xFF, 0xFF]);
    assert_eq!((with.kind(), with.flags(), with.payload()), (header.kind(), header.flags(), header.payload()));
    assert_eq!(header.with_credit(Credit::NONE).0, header);
}

#[test]
fn an_offer_to_read_has_an_address() {
    let offer = Header::new(Kind::Rts, 2, 3, 4, 5, 9000).with_flags(READABLE);
    assert_eq!((offer.payload(), offer.flags(), offer.priority(), offer.type_number()), (8, READABLE, 0, 0));
    assert_eq!(offer.lead.to_le_bytes(), [2, READABLE, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Header { lead: offer.lead ^ u64::from(READABLE) << 8, ..offer }.payload(), 0, "else there is none");
    assert_eq!(frame_bytes(ADDRESS_BYTES), 64);
}

#[test]
fn every_byte_is_a_kind_or_refused() {
    for byte in 0..=255u8 {
        match Kind::from_byte(byte) {
            Some(kind) => assert_eq!(kind as u8, byte),
            None => assert!(byte == 0 || byte >= KINDS_END),
        }
    }
}

#[test]
fn frames_of_messages_are_as_the_table_says_and_are_told_apart() {
    let (context, source, tag, row, peer) = (1, 2, 3, 4, 5);
    let frames = [
        (Kind::Eager, Header::eager(context, source, tag, 6), 6, 6),
        (Kind::Sync, Header::synchronous(context, source, tag, row, 6).with_priority(1), 6, 6),
        (Kind::Rts, Header::offer(context, source, tag, row, 6), 0, 0),
        (Kind::Rts, Header::offer(context, source, tag, row, 6).with_flags(READABLE), ADDRESS_BYTES, 0),
        (Kind::Head, Header::head(context, source, tag, 5, 6), 5, 5),
        (Kind::Part, Header::part(context, 6), 6, 6),
        (Kind::Cts, Header::clear_to_send(context, row, peer, 6), 0, 0),
        (Kind::Cts, Header::clear_to_send_more(context, row, peer, 6), 0, 0),
        (Kind::Cts, Header::clear_to_move(context, 9, row, peer, 6), 0, 0),
        (Kind::Piece, Header::piece(context, peer, 6), 6, 0),
        (Kind::Stop, Header::stop(context, peer), 0, 0),
        (Kind::Nack, Header::refusal(context, peer), 0, 0),
        (Kind::Done, Header::done(context, row, peer), 0, 0),
    ];
    for (kind, header, payload, message) in frames {
        assert_eq!(header.kind(), Some(kind));
        assert_eq!(header.check(payload as usize, false), Ok(()), "{kind:?}");
        assert_eq!((header.payload(), header.message_bytes()), (payload, message), "{kind:?}");
        let told = [
            header.is_eager(),
            header.is_synchronous(),
            header.is_offer(),
            header.is_head(),
            header.is_part(),
            header.is_stop(),
        ];
        let kinds = [Kind::Eager, Kind::Sync, Kind::Rts, Kind::Head, Kind::Part, Kind::Stop];
        assert_eq!(told, kinds.map(|other| other == kind), "{kind:?}");
        assert_eq!(header.is_envelope(), matches!(kind, Kind::Eager | Kind::Sync | Kind::Rts | Kind::Head));
    }
    let header = Header::clear_to_send(context, row, peer, 6);
    assert_eq!((header.tag(), header.message(), header.length), (row, peer, 6), "the receiver's row and the sender's");
}

/// A frame of a kind as its sender makes it.
fn plain(kind: Kind) -> Header {
    let (message, length) = match kind {
        Kind::Bye | Kind::Nack | Kind::Stop | Kind::Done | Kind::Credit | Kind::Offers | Kind::Call | Kind::Accept => {
            (5, 0)
        }
        Kind::Head => (64, 100),
        _ => (5, 100),
    };
    Header::new(kind, 0, 1, 4, message, length)
}

fn check(header: Header) -> Result<(), &'static str> {
    header.check(header.payload() as usize, true)
}

#[test]
fn each_kind_has_what_its_table_says_and_nothing_else() {
    for kind in (1..KINDS_END).filter_map(Kind::from_byte) {
        assert_eq!(check(plain(kind)), Ok(()), "{kind:?}");
        for flags in 0..=255u8 {
            let may = match kind {
                Kind::Rts => matches!(flags, 0..=5),
                Kind::Cts => matches!(flags, 0 | DIRECT | WIDER),
                _ => flags == 0,
            };
            let words = "flags that its kind cannot have";
            let found = check(plain(kind).with_flags(flags));
            assert_eq!(found.is_ok(), may, "{kind:?} with flags {flags:#x}");
            assert!(may || found.is_err_and(|wrong| wrong.contains(words)), "{kind:?} with flags {flags:#x}");
        }
        let (urgent, offers) = (matches!(kind, Kind::Rts | Kind::Sync), kind == Kind::Rts);
        assert_eq!(check(plain(kind).with_priority(1)).is_ok(), urgent, "{kind:?}");
        let typed = matches!(kind, Kind::Eager | Kind::Rts | Kind::Head);
        let (words, found) = ("a type, which its kind cannot have", check(plain(kind).with_type(1)));
        assert_eq!((found.is_ok(), plain(kind).has_type()), (typed, typed), "{kind:?}");
        assert!(typed || found.is_err_and(|wrong| wrong.contains(words)), "{kind:?}");
        assert!(plain(kind).with_type(1).check(plain(kind).payload() as usize, false).is_err(), "{kind:?}");
        assert_eq!(check(plain(kind).with_flags(READABLE)).is_ok(), offers, "{kind:?}");
        assert_eq!(check(plain(kind).with_flags(READABLE).with_type(255)).is_ok(), offers, "{kind:?}");
        let credit = Credit { lines: 7, envelopes: 8 };
        assert_eq!(check(plain(kind).with_credit(credit).0), Ok(()), "{kind:?} may bring credit");
        let [payload, length] = [plain(kind).payload() as usize, plain(kind).length as usize];
        assert!(plain(kind).check(payload + 1, true).is_err(), "{kind:?}");
        assert!(payload == 0 || plain(kind).check(payload - 1, true).is_err(), "{kind:?}");
        let [none, other] = [0, if length == 0 { 1 } else { 64 }].map(|length| Header { length, ..plain(kind) });
        let [empty, some] = match kind {
            Kind::Eager | Kind::Sync | Kind::Rts | Kind::Cts | Kind::Type | Kind::Remote | Kind::Answer => [true, true],
            Kind::Inquiry | Kind::Denial => [true, true],
            Kind::Piece | Kind::Part => [false, true],
            Kind::Head => [false, false],
            _ => [true, false],
        };
        assert_eq!([check(none).is_ok(), check(other).is_ok()], [empty, some], "{kind:?}");
    }
    assert!(check(Header::new(Kind::Head, 0, 1, 4, 0, 100)).is_err(), "a head without a part");
    for lead in [0, KINDS_END.into(), TRANSPORTS_OWN.into(), 255] {
        assert_eq!(check(Header { lead, ..Header::default() }), Err("a frame of unknown kind"));
    }
}

#[test]
fn frames_are_a_line_or_pairs_of_lines() {
    assert_eq!([0, 32, 33, 96, 97, 224, 225].map(frame_bytes), [64, 64, 128, 128, 256, 256, 384]);
}
