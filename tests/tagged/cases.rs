//! The same cases as over other transports, in each tag mode.

use crate::kit::{mixed, provider};
use tickwire::testing::{Cluster, ProviderConfig, ProviderTags, SimConfig, SimNet, TagMode};
use tickwire_tests::cases;

#[test]
fn all_cases() {
    for seed in 0..4 {
        cases::all(&mut provider(3, seed));
    }
}

#[test]
fn all_cases_over_two_methods() {
    for seed in 0..4 {
        cases::all(&mut mixed(4, seed, ProviderConfig::new(seed)));
    }
}

#[test]
fn all_cases_in_each_tag_mode() {
    let net = || SimNet::new(2, SimConfig::calm(1));
    let modes = [TagMode::One, TagMode::Two, TagMode::Full].map(|mode| (mode, 8));
    // Without CQ data, and with less CQ data than a length needs.
    for (mode, data_bytes) in modes.into_iter().chain([(TagMode::One, 0), (TagMode::Two, 0), (TagMode::Full, 4)]) {
        for format in [u64::MAX, u64::MAX >> 1] {
            let calm = ProviderConfig::calm(1);
            let tags = ProviderTags { format, data_bytes, ..calm.tags };
            cases::all(&mut Cluster::provider(2, &net(), |_| ProviderConfig { mode, tags, ..calm.clone() }));
        }
    }
}

#[test]
fn storms_over_two_methods_from_many_seeds() {
    for seed in 0..24 {
        cases::storm(&mut mixed(4, seed, ProviderConfig::new(seed)), seed, 8);
    }
}

#[test]
fn storms_over_a_slow_network() {
    for seed in 0..6 {
        let net = SimNet::new(4, SimConfig::new(seed));
        cases::storm(&mut Cluster::provider(4, &net, |_| ProviderConfig::new(seed)), seed, 8);
    }
}
