//! What is asked of providers: the hints of each use of a fabric. See fi_getinfo(3).

use super::info::Hints;
use libfabric_sys as sys;

/// The `mr_mode` bits that are supported: all but those that need callbacks about pages or arrivals.
pub const MR_MODE: u64 =
    sys::FI_MR_LOCAL | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY | sys::FI_MR_ENDPOINT;

/// The hints of tagged mode. With `directed`, they also ask for directed receives, which a provider need not have.
pub fn tagged_hints(provider: &str, directed: bool) -> Hints {
    let directed = if directed { sys::FI_DIRECTED_RECV } else { 0 };
    let caps = sys::FI_MSG | sys::FI_TAGGED | sys::FI_SOURCE | directed;
    Hints { caps, provider: Some(provider.to_owned()), ..message_hints() }
}

/// The hints of message mode: reliable datagrams that keep their order.
pub fn message_hints() -> Hints {
    Hints {
        caps: sys::FI_MSG,
        mr_mode: MR_MODE,
        msg_order: sys::FI_ORDER_SAS,
        completes: 0,
        contexts: 0,
        automatic: false,
        provider: None,
    }
}

/// The hints of one-sided operations; with `atomic`, including atomic ones. When a write completes, the peer's memory holds it.
pub fn one_sided_hints(provider: &str, atomic: bool) -> Hints {
    let atomic = if atomic { sys::FI_ATOMIC } else { 0 };
    Hints {
        caps: sys::FI_RMA | atomic,
        msg_order: 0,
        completes: sys::FI_DELIVERY_COMPLETE,
        provider: Some(provider.to_owned()),
        ..message_hints()
    }
}
