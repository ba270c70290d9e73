//! The answer to `tickwire dump`: who connects to an engine's socket is given a dump as JSON, whoever sends the chosen signal
//! gets one on stderr. At a second socket a command learns where ranks on other hosts are asked, and what they have to be shown.
//!
//! The sockets have abstract names, so that nothing is left of them when the process ends, however it ends. They belong to
//! the same user and root, who could read the same out of the process's memory: others are turned away by their credentials. The engine answers from its own thread between two
//! ticks; a signal handler does nothing but set a flag.

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The variable that names the signal on which an engine writes a dump to stderr, such as `USR1`.
pub const ENV_DUMP_SIGNAL: &str = "TICKWIRE_DUMP_SIGNAL";

/// Visitors that are served at a time.
const VISITORS_MAX: usize = 8;

/// How long a visitor may take to read its dump, ns.
const VISIT_NS_MAX: u64 = 5_000_000_000;

/// Where dumps are given, and where it is said how other hosts are asked.
pub(crate) const DUMPS: &str = "dump";
pub(crate) const HOSTS: &str = "hosts";

/// The name of one of an engine's sockets.
pub(crate) fn address(kind: &str, pid: u64, engine: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("tickwire-{kind}-{pid}-{engine}"))
}

/// Where an engine is asked for dumps.
pub(crate) struct Door {
    pub(crate) listener: UnixListener,
    /// Where it is said how other hosts are asked; `None` if there are none.
    pub(crate) hosts: Option<UnixListener>,
    pub(super) visitors: Vec<Visitor>,
    pub(super) signal: Option<(Arc<AtomicBool>, signal_hook::SigId)>,
}

/// Somebody who has not read all of its dump.
pub(super) struct Visitor {
    pub(super) stream: UnixStream,
    pub(super) answer: Vec<u8>,
    pub(super) written: usize,
    pub(super) since_ns: u64,
}

impl Door {
    /// Opens the door of engine number `engine` of this process; `None` where the system has no such sockets.
    pub(crate) fn open(engine: u64) -> Option<Self> {
        Some(Door { listener: listen(DUMPS, engine)?, hosts: None, visitors: Vec::new(), signal: None })
    }

    /// Says from now on how other hosts are asked.
    pub(crate) fn open_hosts(&mut self, engine: u64) {
        self.hosts = listen(HOSTS, engine);
    }

    /// Answers a signal too.
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

    /// Somebody new at one of the sockets, if it is somebody who may know.
    pub(super) fn accept(&self, listener: &UnixListener) -> Option<UnixStream> {
        while self.visitors.len() < VISITORS_MAX {
            let (stream, _) = listener.accept().ok()?;
            let who = socket_peercred(&stream).ok()?;
            if (who.uid == geteuid() || who.uid.is_root()) && stream.set_nonblocking(true).is_ok() {
                return Some(stream);
            }
        }
        None
    }

    /// Goes on with the visitors; those who have all, or are too slow, leave.
    pub(super) fn serve(&mut self, now_ns: u64) {
        self.visitors.retain_mut(|visitor| {
            while visitor.written < visitor.answer.len() {
                match visitor.stream.write(&visitor.answer[visitor.written..]) {
                    Ok(written) => visitor.written += written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return now_ns.wrapping_sub(visitor.since_ns) < VISIT_NS_MAX;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            }
            false
        });
    }
}

/// Listens under a name of this process.
fn listen(kind: &str, engine: u64) -> Option<UnixListener> {
    let listener = UnixListener::bind_addr(&address(kind, std::process::id().into(), engine).ok()?).ok()?;
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
