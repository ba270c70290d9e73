//! The parts of making and ending connections that are specific to a fabric and its control connections.

use super::Ofi;
use super::card::Card;
use super::config::OfiConfig;
use super::control::{self, Message, Proof, Socket};
use super::ending::{Counts, Partner, Unread};
use super::frame::LINKS_MAX;
use super::own::random;
use super::rma::Introduction;
use super::transport::Call;
use crate::connections::{self, Accepted, Heard, Medium, NoRoom, Parts};
use crate::handshake::{Greeting, Packet};
use crate::processes::{self, Process};

/// The parameters for opening a lane.
pub(crate) struct Ends {
    /// The peer's number for the link.
    slot: u32,
    /// The token that frames to the peer must carry.
    token: u64,
    /// The peer's fabric address.
    address: Vec<u8>,
}

impl connections::Socket for Socket {
    type Extra = Proof;
    type Goodbye = Counts;
    type Word = Message;

    fn receive(&mut self) -> Heard<Self> {
        self.flush();
        let message = match self.hear() {
            control::Heard::Message(Ok(message)) => message,
            control::Heard::Message(Err(mismatch)) => return Heard::Wrong(mismatch),
            control::Heard::Nothing => return Heard::Nothing,
            control::Heard::Ended(why) => return Heard::Ended(why),
        };
        Heard::Message(match message {
            Message::Hello(theirs, proof) => connections::Message::Hello(theirs, proof),
            Message::Welcome(theirs, proof) => connections::Message::Welcome(theirs, proof),
            Message::Refused(reason) => connections::Message::Refused(reason),
            Message::Later(_) => connections::Message::Later,
            Message::Closed { sent, received } => connections::Message::Closed(Counts { sent, received }),
            Message::Sent(_)
            | Message::AskSent
            | Message::Direct(_)
            | Message::OneSided(_)
            | Message::Ask(_)
            | Message::Answer => connections::Message::Other(message),
        })
    }

    fn send_packet(&mut self, packet: &Packet) {
        self.send(&Message::frame(&packet.encode(), &[]));
    }

    fn say_goodbye(&mut self, goodbye: &Counts) {
        self.tell(&goodbye.message());
    }

    fn has_news(&self) -> bool {
        Socket::has_news(self)
    }

    fn hang_up(&self) {
        Socket::hang_up(self);
    }
}

impl Parts for Ofi {
    const LINKS_MAX: usize = LINKS_MAX;
    const ANSWERS_GOODBYES: bool = true;

    type Socket = Socket;
    type Card = Card;
    type Request = Card;
    type Line = Partner;
    type Ends = Ends;
    type Ending = Unread;
}

impl Medium for Ofi {
    connections::medium_fields!();

    fn reserve(&mut self, link: u32, _is_new: bool) -> Result<(), String> {
        let token = random().map_err(|error| format!("no random numbers ({error})"))?;
        self.port.get_mut().reserve(link, token);
        Ok(())
    }

    fn reuses_links(&self) -> bool {
        self.port.borrow().reuses_links()
    }

    fn open_link(&mut self, link: u32, Ends { slot, token, address }: Ends) -> Result<(), String> {
        self.port.get_mut().open_lane(link, slot, token, &address)?;
        self.count_open();
        Ok(())
    }

    fn shut_link(&mut self, link: u32) {
        self.port.get_mut().close_lane(link);
        self.count_open();
    }

    fn find_process(&self, card: &Card) -> Result<Option<Process>, String> {
        let (pid, start_time) = card.process;
        (card.host == self.own.host).then(|| Process::find(pid, start_time)).transpose()
    }

    fn prepare_call(&mut self, link: u32, card: Card) -> Result<Card, String> {
        self.port.get_mut().expect_peer(link, &card.address)?;
        Ok(card)
    }

    fn greet(&mut self, link: u32, proc: u32, call: &mut Call, now_ns: u64) -> Result<bool, String> {
        self.greet_listener(link, proc, call, now_ns)
    }

    fn silent(&self, proc: u32, waited_ms: u64, card: &Card) -> String {
        let to = card.control;
        format!(
            "proc {proc} at {to} did not answer within {waited_ms} ms: have it call tick, let TCP through between the \
             hosts, choose another interface (TICKWIRE_OFI_INTERFACE), or raise connect_ms_max"
        )
    }

    fn accept(&mut self) -> Option<Accepted<Socket>> {
        let OfiConfig { me, dead_link_ms_max, .. } = self.own.config;
        let refuse = |mut socket: Socket| {
            socket.tell(&Message::Refused(NoRoom.words(me)));
            socket.hang_up();
        };
        let listener = self.connections.listener.as_ref()?;
        self.spare.accept(listener, |descriptor| Socket::new(descriptor, dead_link_ms_max), refuse)
    }

    fn admits(&self, proof: &Proof) -> Result<(), String> {
        if proof.secret != self.own.secret {
            return Err("the peer does not know this proc's card: start all procs by one launcher".into());
        }
        Ok(())
    }

    fn meet_stranger(&mut self, socket: Socket, word: Message) -> Option<(Socket, Packet)> {
        self.meet_watcher(socket, word)
    }

    fn identify(&self, _: &Socket, theirs: &Greeting, _: Option<Process>) -> Result<Option<Process>, String> {
        let Greeting { pid, start_time, boot_id, .. } = *theirs;
        // If the peer's process is not found by its number, it runs in another pid namespace or has ended. In the latter case the socket
        // tells.
        let known = boot_id == self.own.greeting.boot_id && processes::start_time(pid) == Some(start_time);
        Ok(known.then(|| Process::find(pid, start_time).ok()).flatten())
    }

    fn meet(
        &mut self,
        theirs: &Greeting,
        proof: Proof,
        _process: Option<&Process>,
        called: Option<Card>,
    ) -> Result<(Partner, Ends), String> {
        if proof.token == 0 {
            return Err("the peer has no token for frames: use one build of tickwire for all procs".into());
        }
        let address = called.map_or(proof.address, |card| card.address);
        Ok((Partner::new(theirs.boot_id), Ends { slot: theirs.slot, token: proof.token, address }))
    }

    fn welcome(&mut self, link: u32, socket: &mut Socket) -> bool {
        let proof = Proof { secret: 0, token: self.port.get_mut().token(link), address: Vec::new() };
        // If the peer has gone, its socket tells later.
        socket.tell(&Message::Welcome(self.introduction(link), proof));
        true
    }

    fn hear_word(&mut self, link: u32, word: Message) -> Result<(), String> {
        let proc = self.connections.proc(link);
        let Some(line) = self.connections.line_mut(link) else { return Ok(()) };
        match word {
            Message::Sent(count) => {
                line.more.tally.hear(count);
                self.port.get_mut().rma().into_iter().for_each(|rma| rma.hear_answer(link));
            }
            Message::AskSent => line.socket.tell(&Message::Sent(self.port.get_mut().counts(link).0)),
            Message::Direct(address) => {
                let met = self.port.get_mut().meet_direct(link, &address);
                let own = met.map_err(|why| format!("proc {proc}: {why}"))?;
                own.into_iter().for_each(|own| line.socket.tell(&Message::Direct(own)));
            }
            Message::OneSided(Introduction::Ring { key, base }) => {
                let met = self.port.get_mut().meet_ring(link, key, base);
                met.map_err(|why| format!("proc {proc}: {why}"))?;
                self.pace.hurry();
            }
            Message::OneSided(Introduction::Withdrawn(number)) => match self.port.get_mut().rma() {
                Some(rma) => rma.owe_answer(link, number).map_err(|why| format!("proc {proc}: {why}"))?,
                None => line.socket.tell(&Message::OneSided(Introduction::Settled { number, lost: false })),
            },
            Message::OneSided(Introduction::Settled { number, lost }) => {
                self.port.get_mut().rma().into_iter().for_each(|rma| rma.hear_settled(link, number, lost));
            }
            Message::OneSided(theirs) => {
                let met = self.port.get_mut().meet_rma(link, theirs);
                let own = met.map_err(|why| format!("proc {proc}: {why}"))?;
                own.into_iter().for_each(|own| line.socket.tell(&Message::OneSided(own)));
                self.pace.hurry();
            }
            _ => return Err(connections::out_of_turn(proc)),
        }
        Ok(())
    }

    fn gone(&self, proc: u32, pid: u32, why: Option<String>) -> String {
        let dead_ms_max = self.own.config.dead_link_ms_max;
        match why {
            None => format!("process {pid} of proc {proc} has ended"),
            Some(why) => {
                format!("proc {proc} has not answered for {dead_ms_max} ms ({why}): check the network and its host")
            }
        }
    }

    fn start_ending(&mut self, link: u32, goodbye: Option<Counts>, now_ns: u64) -> Unread {
        self.unread(link, goodbye, now_ns)
    }

    fn is_over(&mut self, link: u32, unread: &mut Unread, now_ns: u64) -> bool {
        self.is_read(link, unread, now_ns)
    }

    fn goodbye(&mut self, link: u32) -> Counts {
        let port = self.port.get_mut();
        port.go_through();
        let (sent, received) = port.counts(link);
        Counts { sent, received }
    }

    fn say_goodbye(&mut self, link: u32) {
        let closed = self.farewell(link);
        self.connections.line_mut(link).into_iter().for_each(|line| line.tell(&closed));
    }

    fn say_goodbyes(&mut self) {
        self.see_off_all();
    }
}
