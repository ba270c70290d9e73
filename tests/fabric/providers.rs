//! The cases of all transports, over every libfabric provider that a machine without a special network has.

use crate::kit::cluster;
use tickwire_tests::cases;
use tickwire_tests::needs::has_libfabric;

fn all_cases(provider: &str) {
    if has_libfabric() {
        for engines in [2, 3] {
            cases::all(&mut cluster(engines, provider));
        }
    }
}

#[test]
fn all_cases_over_tcp() {
    all_cases("tcp;ofi_rxm");
}

#[test]
fn all_cases_over_net() {
    all_cases("net");
}

#[test]
fn all_cases_over_sockets() {
    all_cases("sockets");
}

#[test]
fn all_cases_over_shm() {
    all_cases("shm");
}

#[test]
fn all_cases_over_udp() {
    all_cases("udp;ofi_rxd");
}
