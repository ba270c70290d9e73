//! The answer to `tickwire dump`. A process that connects to an engine's socket gets a dump as JSON. A process that sends the chosen signal
//! makes the engine write one to stderr. At a second socket a command learns how to ask ranks on other hosts, and which secret to show
//! them.
//!
//! The sockets have abstract names, so nothing is left of them when the process ends, however it ends. They serve only the same user and
//! root, who could read the same data out of the process's memory. Others are turned away by their credentials. The engine answers from its
//! own thread between two ticks. A signal handler only sets a flag.

use rustix::process::geteuid;
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tickwire_components::limits::{DUMP_VISIT_NS_MAX, DUMP_VISITORS_MAX};
use tickwire_transports::peer_of;

/// The socket that gives dumps, and the socket that says how to ask other hosts.
pub(crate) const DUMPS: &str = "dump";
pub(crate) const HOSTS: &str = "hosts";

/// The abstract name of one of an engine's sockets.
pub(crate) fn name_of(kind: &str, pid: u64, engine: u64) -> String {
    format!("tickwire-{kind}-{pid}-{engine}")
}

/// The sockets at which an engine can be asked for dumps.
pub(crate) struct Door {
    pub(crate) listener: UnixListener,
    /// The socket that says how to ask other hosts. `None` if there are no other hosts.
    pub(crate) hosts: Option<UnixListener>,
    pub(super) visitors: Vec<Visitor>,
    pub(super) signal: Option<(Arc<AtomicBool>, signal_hook::SigId)>,
}

/// A visitor: a connected process that has not read all of its answer yet.
pub(super) struct Visitor {
    pub(super) stream: UnixStream,
    pub(super) answer: Vec<u8>,
    pub(super) written: usize,
    pub(super) since_ns: u64,
}

impl Door {
    /// Opens the sockets of engine number `engine` of this process. `None` if the system has no such sockets.
    pub(crate) fn open(engine: u64) -> Option<Self> {
        Some(Door { listener: listen(DUMPS, engine)?, hosts: None, visitors: Vec::new(), signal: None })
    }

    /// Opens the socket that says how to ask other hosts.
    pub(crate) fn open_hosts(&mut self, engine: u64) {
        self.hosts = listen(HOSTS, engine);
    }

    /// Writes a dump also when a signal comes.
    ///
    /// # Errors
    /// If there is no such signal, or it cannot be caught.
    pub(crate) fn listen_to(&mut self, name: &str) -> Result<(), String> {
        let wrong = || "give USR1, USR2 or HUP".to_owned();
        let signal = match name.trim_start_matches("SIG") {
            "USR1" => rustix::process::Signal::USR1,
            "USR2" => rustix::process::Signal::USR2,
            "HUP" => rustix::process::Signal::HUP,
            _ => return Err(wrong()),
        };
        let flag = Arc::new(AtomicBool::new(false));
        let id = signal_hook::flag::register(signal.as_raw(), flag.clone()).map_err(|_| wrong())?;
        self.signal = Some((flag, id));
        Ok(())
    }

    /// Whether the signal has come since the last call.
    pub(super) fn signalled(&self) -> bool {
        self.signal
            .as_ref()
            .is_some_and(|(flag, _)| flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed))
    }

    /// The next new visitor at one of the sockets, if it has the right user.
    pub(super) fn accept(&self, listener: &UnixListener) -> Option<UnixStream> {
        let may_ask = |stream: &UnixStream| {
            peer_of(stream).is_ok_and(|who| who.uid == geteuid().as_raw() || who.uid == 0)
                && stream.set_nonblocking(true).is_ok()
        };
        admit(listener, DUMP_VISITORS_MAX.saturating_sub(self.visitors.len()), may_ask)
    }

    /// Writes more of each visitor's answer. Visitors that have all of it, or are too slow, are disconnected.
    pub(super) fn serve(&mut self, now_ns: u64) {
        self.visitors.retain_mut(|visitor| {
            while visitor.written < visitor.answer.len() {
                match visitor.stream.write(&visitor.answer[visitor.written..]) {
                    Ok(written) => visitor.written += written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return now_ns.wrapping_sub(visitor.since_ns) < DUMP_VISIT_NS_MAX;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            }
            false
        });
    }
}

/// The first of at most `looks` new visitors that may ask. The others are turned away, and may come faster than that.
fn admit(listener: &UnixListener, looks: usize, may_ask: impl FnMut(&UnixStream) -> bool) -> Option<UnixStream> {
    (0..looks).map_while(|_| listener.accept().ok()).map(|(stream, _)| stream).find(may_ask)
}

/// Listens under a name of this process.
fn listen(kind: &str, engine: u64) -> Option<UnixListener> {
    let name = name_of(kind, std::process::id().into(), engine);
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some((_, id)) = &self.signal {
            signal_hook::low_level::unregister(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_that_may_not_ask_are_turned_away_a_few_at_a_time() {
        let name = format!("tickwire-test-door-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let visitors: Vec<_> = (0..7).map(|_| UnixStream::connect_addr(&address).unwrap()).collect();
        assert!(admit(&listener, 5, |_| false).is_none());
        assert!(admit(&listener, 0, |_| true).is_none(), "there is no seat");
        let mut asked = 0;
        let second = |_: &UnixStream| {
            asked += 1;
            asked == 2
        };
        assert!(admit(&listener, 5, second).is_some(), "two have not been looked at");
        assert!(admit(&listener, 5, |_| true).is_none(), "nobody is left");
        drop(visitors);
    }
}
