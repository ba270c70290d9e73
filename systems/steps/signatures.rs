//! Type checks of messages. Each engine tells its peers the names of its types, and compares the type of a receive with that of its
//! message. Used by Post and Match. An engine that does not check types has no [`Signatures`].

use crate::procs::endpoint::Endpoint;
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use std::any::Any;
use tickwire_components::signatures::{Signatures, TYPE_NAME_MAX, told};
use tickwire_components::wire::{Header, Kind, TypeNumber};
use tickwire_components::{Car, CarKind, NIL, Payload, Progress, Row, Span, car_flags};
use tickwire_transports::{Sent, copy};

/// Notes the type of an operation.
#[cold]
pub fn note(progress: &mut Progress, row: Row, name: Option<&'static str>) {
    if let Some(types) = &mut progress.signatures {
        let number = types.number(name);
        *types.operation(row) = number;
    }
}

/// Puts the number of the message's type into its header, if types are checked.
#[inline]
pub(crate) fn stamp(progress: &mut Progress, car: &Car, row: Row, header: Header) -> Header {
    match &mut progress.signatures {
        Some(types) if car.kind == CarKind::Send && header.has_type() => header.with_type(*types.operation(row)),
        _ => header,
    }
}

/// Tells the peer of a VC that types are checked here, and the names of types that the peer does not know yet. Runs before the message that
/// needs them leaves.
#[cold]
pub(crate) fn tell(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row, row: Row) -> Sent {
    let Rows { progress, vcs, .. } = rows;
    let Some(types) = &mut progress.signatures else { return Sent::Done };
    let needed = *types.operation(row);
    loop {
        // The first frame has no name: it only says that types are checked. A name that the transport may have taken in part comes to its
        // end, even if another message has become the first one: nothing else may go over the link before.
        let peer = types.peer(vc_row);
        let next = match peer.told {
            None => 0,
            Some(last) if last < needed || peer.state.is_some() => last + 1,
            Some(_) => return Sent::Done,
        };
        let name = told(types.name(next)).as_bytes();
        // SAFETY: a name is static; it is only read.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let run = [unsafe { Span::new(name.as_ptr().cast_mut(), name.len()) }];
        let header = Header::new(Kind::Type, 0, 0, next.into(), 0, name.len() as u64);
        let peer = types.peer(vc_row);
        if let Some(states) = endpoint.rows {
            peer.state.get_or_insert_with(states.fresh);
        }
        let state = peer.state.as_deref_mut().map(|state| state as &mut dyn Any);
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let payload = unsafe { Payload::new(&run) };
        match endpoint.transport.get().send(vcs[vc_row as usize].link, &header, &payload, state) {
            Sent::Done => (peer.told, peer.state) = (Some(next), None),
            sent => return sent,
        }
    }
}

/// Takes a type name from a peer.
///
/// # Errors
/// If the frame is invalid, or this engine does not check types.
#[cold]
pub(crate) fn learn(progress: &mut Progress, header: &Header, payload: Span, vc_row: Row) -> Result<(), NotTaken> {
    let Some(types) = progress.signatures.as_mut().filter(|_| vc_row != NIL) else {
        return Err(NotTaken::Wrong(ONE_SIDED));
    };
    let names = &mut types.peer(vc_row).names;
    let next = names.as_ref().map_or(0, |names| names.len() + 1);
    if header.tag() as usize != next || next > TypeNumber::MAX.into() || payload.len() > TYPE_NAME_MAX {
        return Err(NotTaken::Wrong("a type out of order, or with too long a name"));
    }
    let Some(names) = names else {
        *names = Some(Vec::new());
        return Ok(());
    };
    let run = [payload];
    // SAFETY: a payload is there until its transport is told to release it; it is copied.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let name = copy::gather(&unsafe { Payload::new(&run) });
    names.push(String::from_utf8_lossy(&name).into_owned());
    Ok(())
}

const ONE_SIDED: &str =
    "one engine checks the types of messages and the other does not: give both the same Builder::check_types";

/// Whether a VC's peer may send envelopes. Where types are checked, the peer must first say that it checks them too.
///
/// # Errors
/// If it has not.
#[inline]
pub(crate) fn check_peer(progress: &mut Progress, vc_row: Row) -> Result<(), NotTaken> {
    // A frame without a VC is refused by the checks that follow.
    let Some(types) = progress.signatures.as_mut().filter(|_| vc_row != NIL) else { return Ok(()) };
    if types.peer(vc_row).names.is_none() { Err(NotTaken::Wrong(ONE_SIDED)) } else { Ok(()) }
}

/// Compares the type of a receive with that of its message. On a mismatch the receive fails when it is done. A message without bytes
/// matches every type.
#[cold]
pub(crate) fn compare(types: &mut Signatures, car: &mut Car, row: Row, vc_row: Row, number: TypeNumber, length: u64) {
    let own = *types.operation(row);
    if own == 0 || number == 0 || length == 0 {
        return;
    }
    let expected = told(types.name(own));
    let sent = types.peer(vc_row).name(number);
    if sent == Some(expected) {
        return;
    }
    let sent = sent.map_or_else(|| format!("type {number}, which its sender has not named"), str::to_owned);
    types.mismatches.retain(|(other, _)| *other != row);
    types.mismatches.push((row, sent));
    car.flags |= car_flags::OTHER_TYPE;
}

/// For a receive that has failed because of its type: the name of the message's type, and that of the receive's own.
pub fn mismatch(types: Option<&Signatures>, row: Row) -> (String, &'static str) {
    let sent = types.and_then(|types| types.mismatches.iter().find(|(of, _)| *of == row));
    let own = types.map_or("", |types| types.operations.get(row as usize).map_or("", |&number| types.name(number)));
    (sent.map(|(_, name)| name.clone()).unwrap_or_default(), own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestWorld;
    use crate::tick::match_cars::match_cars;
    use tickwire_components::{Ended, VcState};

    /// A world that checks types, with a connected peer.
    fn world() -> (TestWorld, Row) {
        let mut world = TestWorld::new(2);
        world.all().progress.signatures = Some(Box::default());
        let vc = world.contact(1, VcState::Connected);
        (world, vc)
    }

    fn name(number: u32, bytes: &[u8]) -> (Header, Vec<u8>) {
        (Header::new(Kind::Type, 0, 0, number, 0, bytes.len() as u64), bytes.to_vec())
    }

    /// Lets these frames arrive. Returns why the peer's VC has ended, if it has.
    fn ends(frames: &[(Header, Vec<u8>)]) -> Option<String> {
        let (mut world, vc) = world();
        for (header, payload) in frames {
            world.arrive(vc, *header, payload);
            world.step(match_cars);
            world.all().progress.arrivals = 0;
        }
        world.take_ended().into_iter().next().map(|(row, ended)| match ended {
            Ended::Corrupt(words) if row == vc => words,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn names_come_in_order_behind_a_frame_without_one() {
        let greeting = name(0, b"");
        assert_eq!(ends(&[greeting.clone(), name(1, b"f64"), name(2, "é".as_bytes())]), None);
        assert_eq!(ends(&[greeting.clone(), name(1, &[b'x'; TYPE_NAME_MAX])]), None);
        let hostile = [
            vec![name(1, b"f64")],
            vec![greeting.clone(), greeting.clone()],
            vec![greeting.clone(), name(2, b"f64")],
            vec![greeting.clone(), name(u32::MAX, b"f64")],
            vec![greeting.clone(), name(1, b"f64"), name(1, b"f64")],
            vec![greeting.clone(), name(1, &[b'x'; TYPE_NAME_MAX + 1])],
        ];
        for frames in hostile {
            let words = ends(&frames).unwrap();
            assert!(words.contains("a type out of order, or with too long a name"), "{words}");
        }
        let many: Vec<_> = (0..=256).map(|number| name(number, if number == 0 { b"" } else { b"T" })).collect();
        assert_eq!(ends(&many[..256]), None);
        assert!(ends(&many).is_some(), "a 256th type");
    }

    #[test]
    fn an_envelope_of_a_peer_that_does_not_check_types_is_refused() {
        for kind in [Kind::Eager, Kind::Rts, Kind::Head] {
            let (message, length) = if kind == Kind::Head { (2, 4) } else { (7, 4) };
            let header = Header::new(kind, 0, 1, 5, message, length);
            let payload = vec![0; header.payload() as usize];
            let words = ends(&[(header, payload.clone())]).unwrap();
            assert!(words.contains("give both the same Builder::check_types"), "{kind:?}: {words}");
            assert_eq!(ends(&[name(0, b""), (header, payload)]), None, "{kind:?}");
        }
    }

    #[test]
    fn a_number_without_a_name_is_another_type() {
        let (mut world, vc) = world();
        let posted = world.receive(Some(1), Some(5), &[8]);
        note(world.all().progress, posted.car, Some("f64"));
        let (greeting, _) = name(0, b"");
        world.arrive(vc, greeting, b"");
        world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 8).with_type(9), &[0; 8]);
        world.step(match_cars);
        assert!(world.car(posted).flags & car_flags::OTHER_TYPE != 0);
        let (sent, own) = mismatch(world.all().progress.signatures.as_deref(), posted.car);
        assert_eq!((sent.as_str(), own), ("type 9, which its sender has not named", "f64"));
    }
}
