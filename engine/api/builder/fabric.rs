//! Which endpoints over libfabric an engine opens, if any.

use crate::bootstrap::Exchange;
use tickwire_components::limits::Limits;
use tickwire_transports::ofi::{Choice, Ofi, OfiConfig, OfiError};

/// The name that stands for all transports over libfabric.
pub(crate) const NAME: &str = "ofi";

/// Whether a name in a list means this transport: the transport's own name, or the name of its kind.
pub(crate) fn is_named(transport: &str, name: &str) -> bool {
    transport == name
        || transport.strip_prefix(name).is_some_and(|rest| {
            (name == NAME && rest.starts_with(':')) || (provider(name).is_some() && rest.starts_with('@'))
        })
}

/// The provider in a name such as `ofi:tcp`.
fn provider(name: &str) -> Option<&str> {
    name.strip_prefix("ofi:").filter(|provider| !provider.is_empty())
}

/// Which endpoints to open: those that were asked for, or those that a list names, or one where procs run on several hosts.
pub(crate) fn wanted(asked: Option<Choice>, names: Option<&[String]>, exchange: &dyn Exchange) -> Vec<Choice> {
    if exchange.size() == 1 {
        return Vec::new();
    }
    let Some(names) = names else {
        return asked.or_else(|| (!exchange.one_host()).then(Choice::default)).into_iter().collect();
    };
    let asked = asked.unwrap_or_default();
    let of = |provider: &str| Choice { include: vec![provider.to_owned()], ..asked.clone() };
    let named: Vec<Choice> = names.iter().filter_map(|name| provider(name)).map(of).collect();
    if named.is_empty() && names.iter().any(|name| name == NAME) { vec![asked] } else { named }
}

/// Opens these endpoints, without the providers that a list of transports excludes.
///
/// # Errors
/// What is missing. The error says what to do.
pub(crate) fn open(
    choices: Vec<Choice>,
    excluded: &[String],
    exchange: &dyn Exchange,
    limits: &Limits,
) -> Result<Vec<Ofi>, OfiError> {
    let mut opened = Vec::new();
    if excluded.iter().any(|name| name == NAME) {
        return Ok(opened);
    }
    for mut choice in choices {
        choice.exclude.extend(excluded.iter().filter_map(|name| provider(name)).map(str::to_owned));
        let mut config = OfiConfig::with_limits(exchange.job(), exchange.rank(), exchange.size(), limits);
        config.choice = choice.or_environment()?;
        config.priority = config.priority.saturating_sub(opened.len() as u8);
        opened.extend(Ofi::open(&config)?);
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::fixed::Fixed;

    /// Rank 0 of two ranks, which run on one host or not.
    fn world(one_host: bool) -> Fixed {
        Fixed { rank: 0, size: 2, one_host }
    }

    #[test]
    fn names_stand_for_a_transport_or_its_kind() {
        assert!(is_named("shm", "shm") && !is_named("shm", "ofi"));
        assert!(is_named("ofi:tcp;ofi_rxm", "ofi") && is_named("ofi:tcp;ofi_rxm", "ofi:tcp;ofi_rxm"));
        assert!(is_named("ofi:net@2", "ofi:net") && !is_named("ofi:network", "ofi:net"));
        assert!(!is_named("ofi:tcp;ofi_rxm", "ofi:tcp") && !is_named("official", "ofi"));
    }

    #[test]
    fn a_network_is_opened_where_there_is_need_or_it_is_asked_for() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(wanted(None, None, &world(true)), []);
        assert_eq!(wanted(None, None, &world(false)), [Choice::default()]);
        assert_eq!(wanted(None, Some(&names(&["shm"])), &world(false)), []);
        assert_eq!(wanted(None, Some(&names(&["ofi"])), &world(true)), [Choice::default()]);
        let two = wanted(None, Some(&names(&["ofi:net", "ofi:sockets", "shm"])), &world(true));
        assert_eq!((&two[0].include, &two[1].include, two.len()), (&names(&["net"]), &names(&["sockets"]), 2));
        let asked = Choice { interface: Some("eth1".into()), ..Choice::default() };
        assert_eq!(wanted(Some(asked.clone()), None, &world(true)), [asked]);
    }
}
