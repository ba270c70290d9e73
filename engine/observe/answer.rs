//! How an engine answers commands that ask for a dump, from this host and from others.

use super::door::{Door, Visitor};
use super::watchers;
use crate::run::engine::Engine;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use tickwire_systems::procs::cards::card_of;

/// How to ask a rank: its number, the number of its host, the address where it listens, and the secret to show it.
pub(crate) type Way = (u32, Option<u32>, String, u64);

impl Engine {
    /// Answers everybody who asks for a dump.
    #[cold]
    pub(crate) fn answer_visitors(&mut self) {
        self.answer_watchers();
        let Some(door) = &self.observer.door else { return };
        if door.signalled() {
            let words = self.dump().to_string();
            // A closed stderr is no reason to fail.
            let _ = io::stderr().write_all(words.as_bytes());
        }
        // Serializing cannot fail here: all keys of maps are strings.
        while let Some(stream) = self.visitor(|door| door.accept(&door.listener)) {
            let answer = serde_json::to_vec(&self.dump()).unwrap_or_default();
            self.seat(stream, answer);
        }
        while let Some(stream) = self.visitor(|door| door.accept(door.hosts.as_ref()?)) {
            let answer = serde_json::to_vec(&self.ways()).unwrap_or_default();
            self.seat(stream, answer);
        }
        let now_ns = self.store.progress().now_ns;
        if let Some(door) = &mut self.observer.door {
            door.serve(now_ns);
        }
    }

    fn visitor(&self, accept: impl Fn(&Door) -> Option<UnixStream>) -> Option<UnixStream> {
        accept(self.observer.door.as_ref()?)
    }

    fn seat(&mut self, stream: UnixStream, answer: Vec<u8>) {
        let since_ns = self.store.progress().now_ns;
        if let Some(door) = &mut self.observer.door {
            door.visitors.push(Visitor { stream, answer, written: 0, since_ns });
        }
    }

    /// How to ask each other rank that can be asked over a network.
    fn ways(&mut self) -> Vec<Way> {
        let (me, exchange) = (self.exchange.rank(), &self.exchange);
        let all = self.store.all();
        let procs = &all.procs;
        let mut ways: Vec<Way> = Vec::new();
        for endpoint in all.endpoints.iter_mut().map(|endpoint| endpoint.transport.get()) {
            let name = endpoint.name().to_owned();
            let Some(watchers) = endpoint.watchers() else { continue };
            for rank in (0..exchange.size()).filter(|&rank| rank != me) {
                let door = card_of(procs.card(rank), &name).and_then(|card| watchers.door(card));
                ways.extend(door.map(|door| (rank, exchange.host_of(rank), door.address.to_string(), door.secret)));
            }
            // One such endpoint is enough.
            break;
        }
        ways
    }

    /// Answers those who ask from other hosts.
    fn answer_watchers(&mut self) {
        for endpoint in self.store.endpoints() {
            let Some(watchers) = endpoint.transport.get().watchers() else { continue };
            while let Some(watcher) = watchers.next_watcher() {
                watchers::answer(watcher, self.exchange.job());
            }
        }
    }
}
