//! Calling a proc: a control connection to the address in its card, and a greeting with the card's secret.

use super::Ofi;
use super::control::{Message, Proof, Socket};
use super::transport::Call;
use crate::connections::{Medium, unwatched};
use crate::watching::Token;
use rustix::io::Errno;
use std::net::SocketAddr;

impl Ofi {
    /// See [`Medium::greet`].
    pub(super) fn greet_listener(
        &mut self,
        link: u32,
        proc: u32,
        call: &mut Call,
        now_ns: u64,
    ) -> Result<bool, String> {
        let (to, secret) = (call.request.control, call.request.secret);
        let socket = match call.socket.take() {
            Some(socket) => socket,
            None => {
                call.wait(now_ns);
                let dead_ms_max = self.own.config.dead_link_ms_max;
                let socket = Socket::call(to, dead_ms_max).map_err(|error| unreachable(proc, to, error))?;
                self.own.watched.add_connecting(&socket, Token::Call(link)).map_err(unwatched)?;
                socket
            }
        };
        let connected = socket.connected();
        let socket = call.socket.insert(socket);
        if !connected.map_err(|error| unreachable(proc, to, error))? {
            return Ok(false);
        }
        // From here on, the socket is watched only for readability.
        self.own.watched.forget(socket);
        let proof = Proof { secret, token: self.port.get_mut().token(link), address: self.own.address.clone() };
        socket.tell(&Message::Hello(self.introduction(link), proof));
        Ok(true)
    }
}

/// The text for a peer that cannot be called, which says what to do.
fn unreachable(proc: u32, to: SocketAddr, error: Errno) -> String {
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET => {
            format!("proc {proc} is not running any more, or has finalized ({to}: {error})")
        }
        Errno::MFILE | Errno::NFILE => format!("no socket to proc {proc} ({error}): raise the limit of open files"),
        _ => format!(
            "proc {proc} at {to} cannot be reached ({error}): check the network between the hosts, or choose another \
             interface (TICKWIRE_OFI_INTERFACE)"
        ),
    }
}
