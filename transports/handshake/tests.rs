use super::*;

fn mine() -> Greeting {
    Greeting {
        capabilities: ONE_SIDED,
        slot: 7,
        proc: 1,
        procs: 4,
        ring_bytes: 4096,
        first_ring_bytes: 4096,
        frame_max: 992,
        pid: 42,
        start_time: 1 << 40,
        boot_id: 0x1234_5678_9ABC_DEF0_1111_2222_3333_4444,
        job: "a-job".into(),
        heap_base: 1 << 46,
        heap_bytes: 1 << 34,
    }
}

/// The encoding of a hello with some bytes replaced, and what its decoding says.
fn forged(at: usize, bytes: &[u8]) -> Result<Packet, Mismatch> {
    let mut packet = Packet::Hello(mine()).encode();
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    Packet::decode(&packet)
}

#[test]
fn packets_come_back_as_they_were() {
    let long = Greeting { job: "j".repeat(JOB_BYTES_MAX), ..mine() };
    for packet in [
        Packet::Hello(mine()),
        Packet::Welcome(long),
        Packet::Refused("no".into()),
        Packet::Later("busy".into()),
        Packet::Closed,
        Packet::AskStaging,
        Packet::Staging,
        Packet::NoStaging,
        Packet::Direct,
        Packet::OneSided,
        Packet::Ask,
        Packet::Answer,
    ] {
        assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
    }
    let long = Packet::Refused("é".repeat(PACKET_BYTES_MAX)).encode();
    assert_eq!(long.len(), PACKET_BYTES_MAX);
    assert!(matches!(Packet::decode(&long), Ok(Packet::Refused(_))));
}

#[test]
fn every_forged_field_is_refused_by_name() {
    assert_eq!(forged(0, b"TICKWIRE"), Err(Mismatch::Magic));
    assert_eq!(forged(8, &[0]), Err(Mismatch::Kind(0)));
    assert_eq!(forged(8, &[99]), Err(Mismatch::Kind(99)));
    assert_eq!(forged(8, &[10]), Err(Mismatch::Length { theirs: PACKET_BYTES, ours: 17 }), "a key is shorter");
    assert_eq!(forged(9, &[4]), Err(Mismatch::Word { theirs: 4, ours: size_of::<usize>() as u8 }));
    assert_eq!(forged(10, &[64]), Err(Mismatch::Header { theirs: 64, ours: 32 }));
    assert_eq!(forged(11, &[2]), Err(Mismatch::Reserved));
    assert_eq!(forged(18, &[0, 1]), Err(Mismatch::Reserved));
    let version = VERSION + 1;
    assert_eq!(forged(16, &version.to_ne_bytes()), Err(Mismatch::Version { theirs: version, ours: VERSION }));
    assert_eq!(forged(80, &[0xFF]), Err(Mismatch::Text));
    assert_eq!(forged(143, b"x"), Err(Mismatch::Text));
    let swapped = forged(12, &BYTE_ORDER.swap_bytes().to_ne_bytes());
    let message = swapped.expect_err("refused").to_string();
    #[cfg(target_endian = "little")]
    assert_eq!(
        message,
        "peer writes big-endian, this process little-endian: all procs must run on machines of one data format"
    );
    assert!(message.contains("-endian"));
    assert!(matches!(forged(12, &[9; 4]), Err(Mismatch::ByteOrder { theirs: "an unknown byte order", .. })));
}

#[test]
fn every_length_but_the_right_one_is_refused() {
    let packet = Packet::Hello(mine()).encode();
    for length in 0..packet.len() {
        assert!(Packet::decode(&packet[..length]).is_err(), "{length} bytes");
    }
    for length in [packet.len() + 1, PACKET_BYTES_MAX, PACKET_BYTES_MAX + 1, 1 << 16] {
        let mut long = packet.clone();
        long.resize(length, 0);
        assert_eq!(Packet::decode(&long), Err(Mismatch::Length { theirs: length, ours: PACKET_BYTES }));
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for round in 0..if cfg!(miri) { 200 } else { 2000 } {
        let mut packet = Packet::Hello(mine()).encode();
        for _ in 0..1 + round % 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % packet.len();
            packet[at] = (state >> 24) as u8;
        }
        packet.truncate((state >> 40) as usize % 200);
        let _ = Packet::decode(&packet);
    }
}

#[test]
fn a_peer_that_does_not_fit_is_told_why() {
    let fits = |change: fn(&mut Greeting)| {
        let mut theirs = Greeting { proc: 2, ..mine() };
        change(&mut theirs);
        theirs.fits(&mine()).and_then(|()| theirs.same_host(&mine()))
    };
    assert_eq!(fits(|_| ()), Ok(()));
    assert_eq!(fits(|g| g.proc = 1), Err(Mismatch::Same(1)));
    assert_eq!(fits(|g| g.proc = 4), Err(Mismatch::Proc { theirs: 4, procs: 4 }));
    assert_eq!(fits(|g| g.procs = 5), Err(Mismatch::Procs { theirs: 5, ours: 4 }));
    assert_eq!(fits(|g| g.ring_bytes = 8192), Err(Mismatch::Ring { theirs: 8192, ours: 4096 }));
    assert_eq!(fits(|g| g.first_ring_bytes = 8192), Err(Mismatch::FirstRing { theirs: 8192, ours: 4096 }));
    assert_eq!(fits(|g| g.frame_max = 1), Err(Mismatch::Frame { theirs: 1, ours: 992 }));
    assert_eq!(fits(|g| g.job.push('!')), Err(Mismatch::Job { theirs: "a-job!".into(), ours: "a-job".into() }));
    let boot = fits(|g| g.boot_id = 1).expect_err("refused").to_string();
    assert!(boot.contains("not on one host") && boot.contains("12345678"), "{boot}");
}
