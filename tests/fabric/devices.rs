//! Several devices in one world, and devices that cannot be opened.

use crate::kit::exchange;
use crate::namespaces::Host;
use tickwire::internals::transports::ofi::Choice;
use tickwire::launch::{Job, OnFailure};
use tickwire::testing::{Board, Cluster, ROWS};
use tickwire::{Builder, ENV_TRANSPORTS, Engine, Rank, Tag};
use tickwire_tests::needs::has_libfabric;
use tickwire_tests::scratch::Directory;

#[test]
fn one_world_uses_several_devices() {
    if !has_libfabric() {
        return;
    }
    let (tcp, sockets) = ("ofi:tcp;ofi_rxm", "ofi:sockets");
    let lists = [vec!["loopback", tcp, sockets], vec!["loopback", tcp], vec!["loopback", sockets]];
    let mut cluster =
        Cluster::build(3, |rank| Engine::builder().include(lists[rank as usize].clone()).initial_rows(ROWS));
    exchange(&mut cluster, 0, 1);
    exchange(&mut cluster, 0, 2);
    let world = cluster.engines[0].comm_world();
    let words = cluster.engines[1].isend(vec![1u8], Rank(2), Tag(1), world).map(drop).unwrap_err().to_string();
    assert!(words.contains("ofi:tcp;ofi_rxm: it has no address on this fabric"), "{words}");
}

#[test]
fn each_of_several_devices_of_one_provider_has_an_endpoint() {
    if !has_libfabric() {
        return;
    }
    let Some(host) = Host::with_two_devices() else { return };
    for provider in ["sockets", "tcp;ofi_rxm"] {
        let place = Directory::new(&format!("devices-{provider}"));
        let job =
            Job::new(2).program("ip").args(["netns", "exec", &host.0, env!("CARGO_BIN_EXE_tests-rank"), "devices"]);
        let job = job.args([place.as_os_str()]).args([provider]).env(ENV_TRANSPORTS, "loopback,ofi");
        let outcome = job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
        assert_eq!(outcome.code(), 0, "{provider}: {outcome:?}");
    }
}

#[test]
fn what_cannot_be_opened_is_one_clear_error() {
    if !has_libfabric() {
        return;
    }
    let wrong = |change: &dyn Fn(Builder) -> Builder| {
        let built = change(Engine::builder()).build(Board::new(2).bootstrap(0));
        built.map(drop).unwrap_err().to_string()
    };
    let of = |provider: &str| Choice { include: vec![provider.into()], ..Choice::default() };
    let unknown = wrong(&|builder| builder.ofi(of("quadrics")));
    assert!(unknown.contains("no provider \"quadrics\" here: there are ") && unknown.contains("sockets"), "{unknown}");
    let interface = wrong(&|builder| builder.ofi(Choice { interface: Some("ib7".into()), ..of("sockets") }));
    assert!(interface.contains("provider sockets does not use the interface \"ib7\": it has "), "{interface}");
    let excluded = wrong(&|builder| builder.ofi(of("sockets")).exclude(["ofi:sockets"]));
    assert!(excluded.contains("sockets on ") && excluded.contains("excluded: sockets"), "{excluded}");
    let layer = wrong(&|builder| builder.include(["loopback", "ofi:ofi_rxm"]));
    assert!(layer.contains("'ofi:ofi_rxm'") || layer.contains("ofi:ofi_rxm"), "{layer}");
    assert!(layer.contains("exact name") && layer.contains(";ofi_rxm"), "{layer}");
}
