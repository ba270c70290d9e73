//! The Internet addresses of this host.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The addresses of all network interfaces that are up, without ports, in the kernel's order.
pub(super) fn own() -> Vec<SocketAddr> {
    let mut first = std::ptr::null_mut();
    let mut found = Vec::new();
    // SAFETY: the list is read before it is freed; addresses are as long as their families say.
    #[expect(unsafe_code, reason = "FFI")]
    unsafe {
        if libc::getifaddrs(&raw mut first) != 0 {
            return found;
        }
        let mut at = first;
        while let Some(entry) = at.as_ref() {
            at = entry.ifa_next;
            let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
            let Some(address) = entry.ifa_addr.as_ref().filter(|_| is_up) else { continue };
            let bytes = match i32::from(address.sa_family) {
                libc::AF_INET => size_of::<libc::sockaddr_in>(),
                libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
                _ => continue,
            };
            found.extend(host_address(std::slice::from_raw_parts(entry.ifa_addr.cast(), bytes)));
        }
        libc::freeifaddrs(first);
    }
    found
}

/// The address of a host that most other hosts reach. Those of one kind of addresses are taken in their order: IPv4 before IPv6, and what
/// only this cable reaches last. `None` if only the host itself reaches it.
pub(super) fn widest(addresses: impl IntoIterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let reached = addresses.into_iter().filter(|address| !address.ip().is_loopback());
    reached.min_by_key(|address| (is_near(address.ip()), address.is_ipv6()))
}

/// Whether an address is loopback or link-local, so that other hosts cannot reach it by the address alone.
pub(super) fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

/// The IP address in a socket address of the kernel's layout, without the port. A link-local address names a host only together with its
/// scope, the number of the interface.
pub(super) fn host_address(address: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(address.get(..2)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let bytes: [u8; 4] = address.get(4..8)?.try_into().ok()?;
            Some((bytes, 0).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(address.get(8..24)?).ok()?);
            let scope = u32::from_ne_bytes(address.get(24..28)?.try_into().ok()?);
            Some(SocketAddrV6::new(ip, 0, 0, if ip.is_unicast_link_local() { scope } else { 0 }).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internet_addresses_are_read_out_of_socket_addresses() {
        let mut four = vec![0; 16];
        four[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        four[2..4].copy_from_slice(&[1, 2]);
        four[4..8].copy_from_slice(&[10, 0, 0, 7]);
        assert_eq!(host_address(&four), Some(([10, 0, 0, 7], 0).into()));
        assert_eq!(host_address(&four[..6]), None);
        let mut six = vec![0; 28];
        six[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        six[23] = 1;
        six[24..].copy_from_slice(&3u32.to_ne_bytes());
        assert_eq!(host_address(&six), Some((Ipv6Addr::LOCALHOST, 0).into()), "only link-local addresses have a scope");
        six[8..10].copy_from_slice(&[0xFE, 0x80]);
        assert_eq!(host_address(&six), Some("[fe80::1%3]:0".parse().unwrap()));
        assert_eq!(host_address(&six[..27]), None);
        assert_eq!(host_address(&[]), None);
        assert_eq!(host_address(&[0; 28]), None, "of another family");
    }

    #[test]
    fn a_host_is_reached_at_the_widest_of_its_addresses() {
        let chosen = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| address.parse::<SocketAddr>().unwrap());
            widest(addresses).map(|address| address.to_string())
        };
        let all =
            ["[::1]:0", "127.0.0.1:0", "[fe80::1%3]:0", "169.254.0.7:0", "[fd00::2]:0", "10.0.0.7:0", "10.0.0.8:0"];
        let best = ["10.0.0.7:0", "[fd00::2]:0", "169.254.0.7:0", "[fe80::1%3]:0"];
        assert_eq!(chosen(&all).as_deref(), Some(best[0]));
        assert_eq!(chosen(&all[..5]).as_deref(), Some(best[1]), "a host without IPv4");
        assert_eq!(chosen(&all[..4]).as_deref(), Some(best[2]));
        assert_eq!(chosen(&all[..3]).as_deref(), Some(best[3]));
        assert_eq!(chosen(&all[..2]), None);
    }

    #[cfg(not(miri))]
    #[test]
    fn a_host_knows_its_own_addresses() {
        let own = own();
        let loopback = own.iter().filter(|address| address.ip().is_loopback());
        assert!(loopback.count() > 0 && own.iter().all(|address| address.port() == 0), "{own:?}");
        let scopes = own.iter().filter_map(|address| match address {
            SocketAddr::V6(address) => Some((address.ip().is_unicast_link_local(), address.scope_id() != 0)),
            SocketAddr::V4(_) => None,
        });
        scopes.for_each(|(is_link_local, has_scope)| assert_eq!(is_link_local, has_scope, "{own:?}"));
    }
}
