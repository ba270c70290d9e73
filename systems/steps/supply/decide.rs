//! Decides whose memory the bytes of an operation go through. The decision depends on its [`Question`] alone.

use tickwire_components::limits::EAGER_MAX;
use tickwire_components::{Abilities, Combine, Decision, Means, Question, Supplier, Target};

/// Decides who supplies the memory of an operation, and how its bytes get there.
///
/// The ways are tried in the order of how many copies they save. There is no copy where both sides use the application's memory, or memory
/// that one of the two methods lends. There is one copy where bytes go through a temporary. A sending method lends before a receiving one:
/// its shortage of buffers then acts as flow control (reference: communication agent notes).
pub const fn decide(question: &Question) -> Decision {
    match (&question.receive, &question.send) {
        (Some(receive), Some(send)) => {
            Decision { supplier: between(question, receive, send), means: means(question, false) }
        }
        (Some(_), None) => match question.target {
            // No receive is posted yet, so the message may stay long. It must not occupy the method's own memory.
            Target::Nowhere => Decision { supplier: Supplier::Temporary, means: means(question, false) },
            // A datatype's layout is filled run by run, from frames.
            Target::Scattered => Decision { supplier: Supplier::Segment, means: means(question, false) },
            Target::Runs => Decision { supplier: Supplier::Segment, means: means(question, true) },
        },
        (None, Some(send)) => Decision { supplier: leaving(question, send), means: means(question, false) },
        (None, None) => Decision { supplier: Supplier::Segment, means: Means::Whole },
    }
}

/// Who supplies memory for an operation that only sends.
const fn leaving(question: &Question, send: &Abilities) -> Supplier {
    match question.target {
        Target::Runs if send.fits(false, question.bytes) => Supplier::Segment,
        Target::Scattered if send.fits(true, question.bytes) => Supplier::Segment,
        _ if send.lends => Supplier::Sender,
        _ => Supplier::Temporary,
    }
}

/// Who supplies memory for bytes that arrive over one method and leave over another.
///
/// A short message could in principle leave straight from the frame that it arrived in, if the frame stays until it was handled and the
/// send copies. This is not done: the send may be refused, and then the bytes need another place anyway.
const fn between(question: &Question, receive: &Abilities, send: &Abilities) -> Supplier {
    let bytes = question.bytes;
    // The result of a combination on arrival is in the segment, and leaves from there in any case.
    if matches!(question.combine, Combine::Receive) && !matches!(question.target, Target::Nowhere) {
        return Supplier::Segment;
    }
    let segment = matches!(question.combine, Combine::Never);
    if segment && matches!(question.target, Target::Runs) && receive.fits(false, bytes) && send.fits(false, bytes) {
        return Supplier::Segment;
    }
    if send.lends && receive.fits(false, bytes) {
        return Supplier::Sender;
    }
    if receive.lends && send.fits(false, bytes) {
        return Supplier::Receiver;
    }
    if segment && matches!(question.target, Target::Scattered) && receive.fits(true, bytes) && send.fits(true, bytes) {
        return Supplier::Segment;
    }
    Supplier::Temporary
}

/// How the bytes get to the receiving side. With `runs` they go into contiguous runs, which a method can read into.
const fn means(question: &Question, runs: bool) -> Means {
    if runs && question.readable && question.bytes > 0 {
        Means::Read
    } else if question.bytes <= question.frame {
        Means::Whole
    } else {
        Means::Pieces
    }
}

/// The least that every method can do.
const LEAST: Abilities = Abilities { lends: false, registers: false, gathers: true, copies: 0, minimum: 1 };

/// The question for a message that is only received.
pub const fn received(method: Abilities, target: Target, bytes: u64, frame: u64, readable: bool) -> Question {
    Question { receive: Some(method), send: None, target, combine: Combine::Never, bytes, frame, readable }
}

// Two answers are the same for all methods, so they are not asked for each message: a message that has arrived as a whole goes into the
// segment of its receive, or into a temporary if no receive is posted.
const SHORT: u64 = EAGER_MAX as u64;
const _: () = {
    let awaited = decide(&received(LEAST, Target::Runs, SHORT, SHORT, false));
    assert!(matches!(awaited, Decision { supplier: Supplier::Segment, means: Means::Whole }));
    let unexpected = decide(&received(LEAST, Target::Nowhere, SHORT, SHORT, false));
    assert!(matches!(unexpected, Decision { supplier: Supplier::Temporary, means: Means::Whole }));
};

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_components::limits::REGISTER_MIN;

    const SHORT_BYTES: u64 = 100;
    const LONG_BYTES: u64 = 1 << 20;
    const FRAME: u64 = 4096;

    /// All methods that differ in something the decision depends on.
    fn methods() -> Vec<Abilities> {
        let bits = (0..16u32).map(|bits| Abilities {
            lends: bits & 1 != 0,
            registers: bits & 2 != 0,
            gathers: bits & 4 != 0,
            copies: if bits & 8 != 0 { FRAME } else { 0 },
            minimum: 1,
        });
        bits.collect()
    }

    const TARGETS: [Target; 3] = [Target::Nowhere, Target::Runs, Target::Scattered];
    const COMBINES: [Combine; 3] = [Combine::Never, Combine::Receive, Combine::Send];

    /// Every question there is: about 10 000.
    fn each(mut visit: impl FnMut(&Question, Decision)) {
        let sides: Vec<Option<Abilities>> = methods().into_iter().map(Some).chain([None]).collect();
        for (&receive, &send) in sides.iter().flat_map(|r| sides.iter().map(move |s| (r, s))) {
            for (target, combine) in TARGETS.iter().flat_map(|&t| COMBINES.map(|c| (t, c))) {
                for (bytes, readable) in [0, SHORT_BYTES, LONG_BYTES].iter().flat_map(|&b| [(b, false), (b, true)]) {
                    let question = Question { receive, send, target, combine, bytes, frame: FRAME, readable };
                    visit(&question, decide(&question));
                }
            }
        }
    }

    #[test]
    fn whoever_supplies_can_and_whoever_uses_it_can_use_it() {
        let mut seen = [0; 4];
        each(|question, Decision { supplier, .. }| {
            let Question { receive, send, target, combine, bytes, .. } = *question;
            seen[supplier as usize] += 1;
            let usable = |method: Option<Abilities>| method.is_none_or(|method| method.fits(false, bytes));
            match supplier {
                Supplier::Sender => assert!(send.is_some_and(|m| m.lends) && usable(receive), "{question:?}"),
                Supplier::Receiver => assert!(receive.is_some_and(|m| m.lends) && usable(send), "{question:?}"),
                Supplier::Segment if receive.is_some() && send.is_some() => {
                    assert!(target != Target::Nowhere && combine != Combine::Send, "{question:?}");
                    let scattered = target == Target::Scattered;
                    let both = [receive, send].iter().flatten().all(|method| method.fits(scattered, bytes));
                    assert!(both || combine == Combine::Receive, "{question:?}");
                }
                // Bytes that are only sent are somewhere already. Bytes that are only received go to where the receive wants them.
                Supplier::Segment => assert!(target != Target::Nowhere || receive.is_none(), "{question:?}"),
                Supplier::Temporary => {
                    assert!(send.is_none_or(|method| !method.lends || !usable(receive)), "{question:?}");
                }
            }
        });
        assert!(seen.iter().all(|&count| count > 100), "all four ways are taken: {seen:?}");
    }

    #[test]
    fn memory_is_read_only_for_a_receive_into_runs() {
        each(|question, Decision { means, .. }| {
            let alone = question.receive.is_some() && question.send.is_none();
            let may = alone && question.readable && question.target == Target::Runs && question.bytes > 0;
            assert_eq!(means == Means::Read, may, "{question:?}");
            assert!(means != Means::Pieces || question.bytes > FRAME, "{question:?}");
            assert!(means != Means::Whole || question.bytes <= FRAME || question.receive.is_none(), "{question:?}");
        });
    }

    /// Who supplies the memory of a forward between two methods.
    fn forward(receive: Abilities, send: Abilities, target: Target, combine: Combine, bytes: u64) -> Supplier {
        let (receive, send) = (Some(receive), Some(send));
        decide(&Question { receive, send, target, combine, bytes, frame: FRAME, readable: false }).supplier
    }

    #[test]
    fn the_ways_of_a_forward_in_their_order() {
        let plain = LEAST;
        let lender = Abilities { lends: true, registers: true, ..LEAST };
        let narrow = Abilities { gathers: false, ..LEAST };
        use {Combine::*, Supplier::*, Target::*};
        let long = LONG_BYTES;
        let table = [
            // receive, send, target, combine, bytes, who supplies
            (plain, plain, Runs, Never, long, Segment),
            (plain, plain, Nowhere, Never, long, Temporary),
            (plain, lender, Nowhere, Never, long, Sender),
            (lender, plain, Nowhere, Never, long, Receiver),
            (lender, lender, Nowhere, Never, long, Sender),
            (lender, lender, Nowhere, Never, SHORT_BYTES, Temporary),
            (lender, lender, Runs, Never, long, Segment),
            (lender, plain, Runs, Never, SHORT_BYTES, Receiver),
            (plain, lender, Runs, Never, SHORT_BYTES, Sender),
            (plain, plain, Nowhere, Never, SHORT_BYTES, Temporary),
            (plain, plain, Scattered, Never, long, Segment),
            (plain, narrow, Scattered, Never, long, Temporary),
            (narrow, lender, Scattered, Never, long, Sender),
            (plain, lender, Runs, Receive, long, Segment),
            (narrow, narrow, Scattered, Receive, long, Segment),
            (plain, plain, Runs, Send, long, Temporary),
            (plain, lender, Runs, Send, long, Sender),
            (lender, plain, Runs, Send, long, Receiver),
        ];
        for (line, (receive, send, target, combine, bytes, supplier)) in table.into_iter().enumerate() {
            assert_eq!(forward(receive, send, target, combine, bytes), supplier, "line {line}");
        }
    }

    #[test]
    fn registering_pays_from_a_length_on() {
        let registers = Abilities { registers: true, ..LEAST };
        let alone = |bytes| {
            let send = Some(registers);
            let (target, combine) = (Target::Runs, Combine::Never);
            let question = Question { receive: None, send, target, combine, bytes, frame: FRAME, readable: false };
            decide(&question).supplier
        };
        let least = REGISTER_MIN as u64;
        assert_eq!([least - 1, least].map(alone), [Supplier::Temporary, Supplier::Segment]);
    }
}
