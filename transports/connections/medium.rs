//! What a medium provides for its connections.

use super::call::Call;
use super::parts::{Extra, Goodbye, Parts};
use super::sockets::{Accepted, Socket};
use super::table::Connections;
use super::words;
use crate::handshake::{Greeting, Packet};
use crate::processes::Process;
use crate::watching::Watched;

/// What an endpoint provides for its connections.
pub(crate) trait Medium: Parts {
    /// All connections.
    fn connections(&self) -> &Connections<Self>;
    /// The same, to change them.
    fn connections_mut(&mut self) -> &mut Connections<Self>;
    /// The set of watched descriptors that the endpoint sleeps on.
    fn watched(&self) -> &Watched;
    /// The greeting of this process, without a slot.
    fn greeting(&self) -> &Greeting;
    /// How long a running process may take to answer a call, in ms; `None` for as long as it runs.
    fn connect_ms_max(&self) -> Option<u32>;

    /// Makes a place for a link. `is_new` tells whether the number was never used before.
    ///
    /// # Errors
    /// Why there is none.
    fn reserve(&mut self, link: u32, is_new: bool) -> Result<(), String>;
    /// Whether the number of a closed link may be used again.
    fn reuses_links(&self) -> bool {
        true
    }
    /// Opens a reserved link for frames.
    ///
    /// # Errors
    /// Why that cannot be, for both sides.
    fn open_link(&mut self, link: u32, ends: Self::Ends) -> Result<(), String>;
    /// Closes a link for frames. It may not have been opened.
    fn shut_link(&mut self, link: u32);

    /// The process that a card names, if this host's kernel knows it.
    ///
    /// # Errors
    /// That it has ended, in words.
    fn find_process(&self, card: &Self::Card) -> Result<Option<Process>, String>;
    /// Prepares a call over a reserved link.
    ///
    /// # Errors
    /// Why the proc cannot be called.
    fn prepare_call(&mut self, link: u32, card: Self::Card) -> Result<Self::Request, String>;
    /// Does the next step towards sending the peer a greeting: `true` once it is sent.
    ///
    /// # Errors
    /// Why the call cannot succeed.
    fn greet(&mut self, link: u32, proc: u32, call: &mut Call<Self>, now_ns: u64) -> Result<bool, String>;
    /// Notes that the peer has hung up before it answered. It is called again.
    fn has_hung_up(&self, _request: &mut Self::Request) {}
    /// The text for a proc that has not answered in time, which says what to do.
    fn silent(&self, proc: u32, waited_ms: u64, request: &Self::Request) -> String;

    /// Accepts the next peer that waits at the listener.
    fn accept(&mut self) -> Option<Accepted<Self::Socket>>;
    /// Checks whether a visitor with such a greeting may ask for a connection.
    ///
    /// # Errors
    /// Why not.
    fn admits(&self, _extra: &Extra<Self>) -> Result<(), String> {
        Ok(())
    }
    /// Takes over the socket of a visitor that has not started with a greeting; or returns it, with the answer to send.
    fn meet_stranger(
        &mut self,
        socket: Self::Socket,
        _word: <Self::Socket as Socket>::Word,
    ) -> Option<(Self::Socket, Packet)> {
        Some((socket, Packet::Refused(words::ungreeted())))
    }
    /// Checks a peer whose greeting fits against what the kernel reports about it. Returns its process, if this host's kernel knows it.
    ///
    /// # Errors
    /// What does not fit.
    fn identify(
        &self,
        socket: &Self::Socket,
        theirs: &Greeting,
        called: Option<Process>,
    ) -> Result<Option<Process>, String>;
    /// Checks a peer's greeting. Returns its process, if this host's kernel knows it. A process that was `called` may have ended after it
    /// answered: what it has sent until then is valid.
    ///
    /// # Errors
    /// What does not fit.
    fn check(
        &self,
        socket: &Self::Socket,
        theirs: &Greeting,
        called: Option<Process>,
    ) -> Result<Option<Process>, String> {
        theirs.fits(self.greeting()).map_err(|mismatch| mismatch.to_string())?;
        self.identify(socket, theirs, called)
    }
    /// Checks what the greeting carries besides. `request` is that of the call that it answers, if any.
    ///
    /// # Errors
    /// What cannot be used.
    fn meet(
        &mut self,
        theirs: &Greeting,
        extra: Extra<Self>,
        process: Option<&Process>,
        request: Option<Self::Request>,
    ) -> Result<(Self::Line, Self::Ends), String>;
    /// Grants a connection to a visitor whose link has been opened. `false` if it has gone meanwhile.
    fn welcome(&mut self, link: u32, socket: &mut Self::Socket) -> bool;

    /// Handles a message that only this medium knows.
    ///
    /// # Errors
    /// Why the connection ends.
    fn hear_word(&mut self, link: u32, word: <Self::Socket as Socket>::Word) -> Result<(), String>;
    /// The text for a peer that has gone without a goodbye; `why` is the reason, if the kernel reports one.
    fn gone(&self, proc: u32, pid: u32, why: Option<String>) -> String;

    /// A connection has ended, with a goodbye or without. Returns what tells whether more frames will arrive.
    fn start_ending(&mut self, link: u32, goodbye: Option<Goodbye<Self>>, now_ns: u64) -> Self::Ending;
    /// Whether everything that an ended connection will still deliver has been read.
    fn is_over(&mut self, link: u32, ending: &mut Self::Ending, now_ns: u64) -> bool;
    /// The goodbye of this process when it closes a link.
    fn goodbye(&mut self, link: u32) -> Goodbye<Self>;
    /// Tells all peers that nothing follows, and waits as long as they need.
    fn say_goodbyes(&mut self) {
        for link in self.connections().links() {
            self.say_goodbye(link);
        }
    }
    /// Tells the peer of an open connection that nothing follows.
    fn say_goodbye(&mut self, link: u32) {
        if self.connections().line(link).is_some() {
            let goodbye = self.goodbye(link);
            if let Some(line) = self.connections_mut().line_mut(link) {
                line.socket.say_goodbye(&goodbye);
            }
        }
    }

    /// Notes that the descriptor which reports messages is ready.
    fn has_rung(&mut self) {}

    /// The greeting of this process, for a link of this number.
    fn introduction(&self, link: u32) -> Greeting {
        Greeting { slot: link, ..self.greeting().clone() }
    }
}

/// The part of [`Medium`] that is the same for all endpoints with the fields `connections` and `own`.
macro_rules! medium_fields {
    () => {
        fn connections(&self) -> &$crate::connections::Connections<Self> {
            &self.connections
        }

        fn connections_mut(&mut self) -> &mut $crate::connections::Connections<Self> {
            &mut self.connections
        }

        fn watched(&self) -> &$crate::watching::Watched {
            &self.own.watched
        }

        fn greeting(&self) -> &$crate::handshake::Greeting {
            &self.own.greeting
        }

        fn connect_ms_max(&self) -> Option<u32> {
            self.own.config.connect_ms_max
        }
    };
}
pub(crate) use medium_fields;
