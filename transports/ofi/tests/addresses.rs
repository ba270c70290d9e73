//! Endpoints at addresses of each kind that this host has.

use super::kit::{World, config};
use crate::ofi::wrapper_tests::library;
use crate::ofi::*;
use std::collections::BTreeSet;
use std::net::IpAddr;

#[test]
fn endpoints_meet_at_addresses_of_ipv6_too() {
    let Some(library) = library() else { return };
    for provider in ["tcp;ofi_rxm", "sockets"] {
        let choice = config(0, provider).choice;
        let at_ipv6 = || {
            let candidates = choice.candidates(&library, &message_hints()).unwrap().into_iter();
            let infos = candidates.filter(|candidate| candidate.provider == provider).filter_map(|found| found.info);
            infos.filter(|info| info.ip().is_some_and(|ip| ip.is_ipv6()))
        };
        let all: BTreeSet<IpAddr> = at_ipv6().filter_map(|info| info.ip()).collect();
        if all.is_empty() {
            eprintln!("SKIPPED: {provider} has no address of IPv6");
        }
        for ip in all {
            let open = |me: u32| {
                let info = at_ipv6().find(|info| info.ip() == Some(ip)).unwrap();
                Ofi::open_one(&config(me, provider), info, format!("ofi:{provider}"), 1).unwrap()
            };
            let mut world = World::new(vec![open(0), open(1)]);
            let [link, _] = world.connect();
            world.send(0, link, 9, vec![9; 100]);
            world.until("a message", |world| world.received[1].iter().any(|(_, payload)| *payload == [9; 100]));
            eprintln!("{provider} at {ip}");
        }
    }
}
