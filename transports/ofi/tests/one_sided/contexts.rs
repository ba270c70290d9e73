//! Several contexts: those of a scalable endpoint, or several endpoints.

use super::kit::{Memory, PROVIDERS, at, bytes_of, configured};
use crate::ofi::scalable::context_bits;
use crate::{AtomicOperation, AtomicWord, Channel, RemoteAccess};

#[test]
fn several_contexts_go_on_beside_each_other_and_are_counted_by_themselves() {
    const EACH: usize = 100;
    const BYTES: usize = 6000;
    for provider in PROVIDERS {
        for contexts in [2, 3, 5] {
            let Some(mut world) = configured(provider, 2, |config| config.choice.contexts = Some(contexts)) else {
                continue;
            };
            let [link, theirs] = world.connect();
            assert_eq!(world.side(0).contexts() as usize, contexts);
            let mut memory = Memory::new(contexts * EACH * BYTES + 8);
            let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
            let channels: Vec<_> = (0..contexts as u32).map(|context| Channel { link, context }).collect();
            let place = |context: usize, index: usize| (index * contexts + context) * BYTES;
            let mut from: Vec<_> = (0..contexts * EACH).map(|seed| bytes_of(seed as u32, BYTES)).collect();
            for (seed, from) in from.iter_mut().enumerate() {
                let (context, index) = (seed / EACH, seed % EACH);
                // The last one is not flushed with the others.
                world.put(0, channels[context], at(key, place(context, index)), from);
            }
            for (context, &channel) in channels.iter().enumerate() {
                world.flush(0, channel);
                let counts = [world.side(0).issued(channel), world.side(0).completed(channel)];
                assert_eq!(counts, [EACH as u64; 2], "{provider}: {contexts} contexts");
                for index in 0..EACH {
                    let has = &memory.bytes()[place(context, index)..][..BYTES];
                    assert!(*has == from[context * EACH + index], "{provider}: {contexts} contexts");
                }
            }
            if world.side(0).atomics().eight {
                let word = at(key, contexts * EACH * BYTES);
                for (added, &channel) in (0..).zip(&channels) {
                    let found = world.fetch(0, channel, word, AtomicOperation::Sum, AtomicWord::Eight(1));
                    assert_eq!(found, added, "{provider}: {contexts} contexts");
                }
            }
            // Only this provider has one scalable endpoint with all contexts. The others have an endpoint for each context.
            let shape = if provider == "sockets" { (1, context_bits(contexts)) } else { (contexts, 0) };
            for ofi in &mut world.all {
                assert_eq!(ofi.port.get_mut().rma_for_test().shape(), shape, "{provider}: {contexts} contexts");
            }
            let mut into = vec![0; BYTES];
            let back = world.expose(0, &mut from[0], RemoteAccess::READ);
            let channel = Channel { link: theirs, context: contexts as u32 - 1 };
            world.get(1, channel, at(back, 0), &mut into);
            world.flush(1, channel);
            assert!(into == bytes_of(0, BYTES), "{provider}: {contexts} contexts");
            world.side(0).withdraw_exposed(&back);
        }
    }
}
