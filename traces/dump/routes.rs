//! Routes in a dump: the transport that each class of traffic with a proc uses, and transports that could not connect.

use std::fmt;

data! {
    /// The route of a class of traffic.
    #[derive(Default)]
    pub struct RouteDump {
        /// The class: "messages", "one-sided" or "atomics".
        pub class: String,
        /// The transport that it uses, or would use; `None` if there is none.
        pub transport: Option<String>,
    }

    /// A transport that was tried, and could not connect.
    #[derive(Default)]
    pub struct FailedRouteDump {
        /// The transport.
        pub transport: String,
        /// Why.
        pub reason: String,
    }
}

/// Prints the routes of a proc: which classes use which transport, and which transports could not connect.
pub(super) fn write(routes: &[RouteDump], failed: &[FailedRouteDump], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for RouteDump { class, transport } in routes {
        let over = transport.as_deref().unwrap_or("nothing");
        match groups.iter_mut().find(|(transport, _)| *transport == over) {
            Some((_, classes)) => classes.push(class),
            None => groups.push((over, vec![class])),
        }
    }
    for (number, (transport, classes)) in groups.iter().enumerate() {
        let start = if number == 0 { "; " } else { ", " };
        match &classes[..] {
            all if all.len() == routes.len() => write!(f, "{start}all traffic over {transport}")?,
            classes => write!(f, "{start}{} over {transport}", classes.join(" and "))?,
        }
    }
    failed.iter().try_for_each(|FailedRouteDump { transport, reason }| write!(f, "; {transport}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words([&'static str; 3], &'static [&'static str]);

    impl fmt::Display for Words {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let classes = ["messages", "one-sided", "atomics"].into_iter().zip(self.0);
            let of = |(class, over): (&str, &str)| {
                let transport = Some(over.to_owned()).filter(|over| !over.is_empty());
                RouteDump { class: class.to_owned(), transport }
            };
            let failed = |name: &&str| FailedRouteDump {
                transport: (*name).to_owned(),
                reason: "it could not connect: no answer".to_owned(),
            };
            write(&classes.map(of).collect::<Vec<_>>(), &self.1.iter().map(failed).collect::<Vec<_>>(), f)
        }
    }

    #[test]
    fn classes_of_one_transport_are_named_together() {
        let words = |chosen, failed| Words(chosen, failed).to_string();
        assert_eq!(words(["shm", "shm", "shm"], &[]), "; all traffic over shm");
        assert_eq!(words(["net", "shm", "shm"], &[]), "; messages over net, one-sided and atomics over shm");
        assert_eq!(words(["shm", "net", "shm"], &[]), "; messages and atomics over shm, one-sided over net");
        let failed = "; messages and atomics over shm, one-sided over nothing; net: it could not connect: no answer";
        assert_eq!(words(["shm", "", "shm"], &["net"]), failed);
        assert_eq!(words(["", "", ""], &[]), "; all traffic over nothing");
    }
}
