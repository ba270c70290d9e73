//! Probes that claim a message while the provider has no room for more receives.

use super::kit::{World, config, endpoint_of};
use crate::ofi::tags::TagMode;
use crate::ofi::*;
use crate::{Peeked, ReceiveEnvelope, Sent, Transport};
use tickwire_components::limits::ANY;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{NIL, Row};

/// More receives than a provider takes.
const RECEIVES: Row = 10_000;

fn wanted(tag: u32) -> ReceiveEnvelope {
    ReceiveEnvelope { link: NIL, context: 1, source: ANY, tag }
}

#[test]
fn a_message_is_claimed_although_all_receives_that_the_provider_takes_are_posted() {
    for provider in ["tcp;ofi_rxm", "sockets"] {
        let tagged = |me| {
            let choice = Choice { tags: Some(TagMode::Auto), ..config(me, provider).choice };
            endpoint_of(&OfiConfig { choice, ..config(me, provider) })
        };
        let (Some(first), Some(second)) = (tagged(0), tagged(1)) else { continue };
        let mut world = World::new(vec![first, second]);
        let [_, theirs] = world.connect();
        let posted = {
            let matching = world.all[0].matching().unwrap();
            (0..RECEIVES).take_while(|&row| matching.post_receive(row, &wanted(7)) == Sent::Done).count()
        };
        let header = Header::new(Kind::Eager, 1, 2, 9, 0, 100);
        let mut sent = Sent::Blocked;
        world.until("a send", |world| {
            sent = world.all[1].send(theirs, &header, &vec![3u8; 100], &mut ());
            sent != Sent::Blocked
        });
        let (mut asks, mut found) = (false, Peeked::Pending);
        world.until("a probe that finds it", |world| {
            let matching = world.all[0].matching().unwrap();
            if !asks {
                asks = matching.peek(&wanted(9), true) == Sent::Done;
                return false;
            }
            found = matching.peeked();
            asks = found == Peeked::Pending;
            matches!(found, Peeked::Found(..))
        });
        world.until("the message", |world| !world.received[0].is_empty());
        assert_eq!(world.received[0][0].1, [3; 100], "{provider}, {posted} receives");
        assert!(world.all[0].port.get_mut().broken().is_none(), "{provider}");
    }
}
