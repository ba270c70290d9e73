//! Messages of a simulated provider, one by one.

use super::*;
use crate::{Other, ReceiveEnvelope};

/// Takes messages whose tag is below a bound.
struct Below {
    bound: u32,
    /// Tag, bytes and the receive of each.
    taken: Vec<(u32, usize, Row)>,
}

impl Below {
    fn take(&mut self, header: &Header, payload: Span, receive: Row) -> bool {
        let takes = header.tag() < self.bound;
        if takes {
            self.taken.push((header.tag(), payload.len(), receive));
        }
        takes
    }
}

#[expect(unsafe_code, reason = "payloads are addresses")]
impl Take for Below {
    fn now_ns(&mut self) -> u64 {
        1
    }

    unsafe fn message(&mut self, header: &Header, payload: Span, _: Row) -> bool {
        self.take(header, payload, NIL)
    }

    unsafe fn other(&mut self, _: &Header, _: Span, _: Row) -> Other {
        Other::Left
    }

    unsafe fn matched(&mut self, header: &Header, payload: Span, vc: Row, receive: Row) -> bool {
        assert_eq!(vc, 9);
        self.take(header, payload, receive)
    }
}

#[test]
fn what_a_provider_has_matched_is_handed_over_in_its_order() {
    let (_, sims) = pair(SimConfig::calm(6));
    let [mut a, mut b] = sims.map(|sim| Provider::new(sim, 0, ProviderConfig::calm(6)).unwrap());
    // The links were opened before the providers were there.
    for (sim, proc, vc) in [(&mut a, 1, 7), (&mut b, 0, 9)] {
        let link = sim.connect(proc, &[], 0).unwrap();
        sim.attach(link, vc);
    }
    for tag in 0..4 {
        let header = Header::new(Kind::Eager, 0, 0, tag, 0, 3);
        assert_eq!(a.send(0, &header, &vec![5u8; 3], &mut SimState::default()), Sent::Done);
        let wanted = ReceiveEnvelope { link: 0, context: 0, source: 0, tag };
        assert_eq!(b.matching().unwrap().post_receive(20 + tag, &wanted), Sent::Done);
    }
    let mut take = Below { bound: 3, taken: Vec::new() };
    assert_eq!(b.deliver(2, &mut take), (2, true));
    assert_eq!(b.deliver(8, &mut take), (1, true), "the last one is not taken");
    take.bound = 4;
    assert_eq!(b.deliver(8, &mut take), (1, false));
    assert_eq!(take.taken, [(0, 3, 20), (1, 3, 21), (2, 3, 22), (3, 3, 23)]);
    assert_eq!(b.drain(1, &mut [Arrival::default(); 4]), 0);
}
