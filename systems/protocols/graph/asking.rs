//! When a member asks after messages, and how many of its questions may be open at a time. See [`super::inquiry`].

use crate::procs::priorities::list_sender;
use tickwire_components::limits::{INQUIRIES_MAX, INQUIRY_FIRST_NS, INQUIRY_INTERVAL_NS_MAX};
use tickwire_components::{Asking, Control, Inquiry, NIL, Progress, Row, Vc};

/// Whether it is time to ask; then the next time is set.
pub(super) fn is_time(asking: &mut Asking, now_ns: u64) -> bool {
    let is_time = now_ns.wrapping_sub(asking.next_ns).cast_signed() >= 0;
    if is_time {
        asking.interval_ns = (2 * asking.interval_ns).min(INQUIRY_INTERVAL_NS_MAX);
        asking.next_ns = now_ns.wrapping_add(asking.interval_ns);
    }
    is_time
}

/// A peer has answered, so further questions come soon: the next one after [`INQUIRY_FIRST_NS`] at the latest.
pub(super) fn hurry(asking: &mut Asking, now_ns: u64) {
    let soon_ns = now_ns.wrapping_add(INQUIRY_FIRST_NS);
    if asking.next_ns.wrapping_sub(soon_ns).cast_signed() > 0 {
        asking.next_ns = soon_ns;
    }
    asking.interval_ns = INQUIRY_FIRST_NS;
}

/// Queues an inquiry for a peer, unless one of its kind, of any operation, is queued for that peer already. `false` if so many inquiries
/// are queued that this one has to wait.
pub(super) fn send(progress: &mut Progress, vcs: &mut [Vc], vc: Row, inquiry: Inquiry) -> bool {
    let mut owed = 0;
    for frame in &progress.control.frames {
        let Control::Inquiry(other) = frame.what else { continue };
        if frame.vc == vc && (other.message == NIL) == (inquiry.message == NIL) {
            return true;
        }
        owed += 1;
    }
    let sent = owed < INQUIRIES_MAX && progress.control.push(vc, Control::Inquiry(inquiry));
    if sent {
        list_sender(progress, vcs, vc);
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestWorld;
    use tickwire_components::VcState;

    #[test]
    fn questions_are_one_a_peer_and_leave_room_for_answers() {
        let count = 2 * INQUIRIES_MAX as u32;
        let mut world = TestWorld::new(count + 1);
        let peers: Vec<Row> = (1..=count).map(|proc| world.contact(proc, VcState::Connected)).collect();
        let receive = Inquiry { context: 0, source: 0, tag: 1, message: NIL, call: 0, start: 1 };
        let all = world.all();
        let (progress, vcs) = (all.progress, all.vcs);
        let mut ask = |peer: Row, inquiry| send(progress, vcs, peer, inquiry);
        assert!(
            ask(peers[0], receive) && ask(peers[0], Inquiry { tag: 2, ..receive }),
            "the second one waits for the first"
        );
        assert!(ask(peers[0], Inquiry { message: 7, ..receive }), "whether an offer is taken is another question");
        let asked: Vec<bool> = peers[1..].iter().map(|&peer| ask(peer, receive)).collect();
        assert_eq!(asked.iter().position(|asked| !asked), Some(INQUIRIES_MAX - 2));
        assert!(!asked[INQUIRIES_MAX - 2..].contains(&true));
        let frames = &progress.control.frames;
        assert_eq!(frames.len(), INQUIRIES_MAX);
        assert_eq!(frames.iter().filter(|frame| frame.vc == peers[0]).count(), 2);
        assert!(progress.control.push(peers[0], Control::Denial(receive)) && progress.control.has_room(true));
    }

    #[test]
    fn each_question_comes_after_twice_the_time_up_to_a_second() {
        let mut asking = Asking { start: 1, interval_ns: INQUIRY_FIRST_NS, next_ns: INQUIRY_FIRST_NS, cursor: 0 };
        let asked: Vec<u64> =
            (0..400).map(|look| look * INQUIRY_FIRST_NS / 2).filter(|&now_ns| is_time(&mut asking, now_ns)).collect();
        let between: Vec<u64> = asked.windows(2).map(|pair| (pair[1] - pair[0]) / INQUIRY_FIRST_NS).collect();
        assert_eq!((asked[0], &between[..]), (INQUIRY_FIRST_NS, &[2, 4, 8, 16, 32, 50, 50][..]));
    }

    #[test]
    fn an_answer_brings_the_next_question_near_and_puts_none_off() {
        for (next, expected) in [(100, 11), (11, 11), (10, 10), (3, 3)] {
            let [now_ns, next_ns] = [10, next].map(|times| times * INQUIRY_FIRST_NS);
            let mut asking = Asking { start: 1, interval_ns: INQUIRY_INTERVAL_NS_MAX, next_ns, cursor: 0 };
            hurry(&mut asking, now_ns);
            assert_eq!((asking.next_ns, asking.interval_ns), (expected * INQUIRY_FIRST_NS, INQUIRY_FIRST_NS));
        }
    }
}
