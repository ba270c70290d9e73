//! Connections over a medium that has nothing of its own: what holds for all.

use super::parts::Extra;
use super::*;
use crate::handshake::Packet;
use crate::processes::Process;
use crate::watching::Watched;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::sync::{Arc, Mutex};
use tickwire_components::limits::{VISITOR_SILENCE_NS_MAX, VISITORS_MAX};

/// Where peers of one proc wait.
struct Hall {
    waiting: Mutex<Vec<OwnedFd>>,
    bell: OwnedFd,
}

/// An endpoint.
struct Desk {
    connections: Connections<Desk>,
    watched: Watched,
    greeting: Greeting,
    halls: Arc<[Hall]>,
    /// Links that frames could go through.
    open: Vec<u32>,
    /// Why none can be opened.
    refuses: Option<String>,
    reuses: bool,
    events: Vec<LinkEvent>,
}

impl Parts for Desk {
    const LINKS_MAX: usize = 3;
    const ANSWERS_GOODBYES: bool = false;
    type Socket = OwnedFd;
    type Card = ();
    type Request = ();
    type Line = ();
    type Ends = ();
    /// How often it is looked at before it is over.
    type Ending = u32;
}

impl Medium for Desk {
    fn connections(&self) -> &Connections<Self> {
        &self.connections
    }
    fn connections_mut(&mut self) -> &mut Connections<Self> {
        &mut self.connections
    }
    fn watched(&self) -> &Watched {
        &self.watched
    }
    fn greeting(&self) -> &Greeting {
        &self.greeting
    }
    fn connect_ms_max(&self) -> Option<u32> {
        Some(50)
    }
    fn reserve(&mut self, _link: u32, _is_new: bool) -> Result<(), String> {
        Ok(())
    }
    fn reuses_links(&self) -> bool {
        self.reuses
    }
    fn open_link(&mut self, link: u32, (): ()) -> Result<(), String> {
        self.open.push(link);
        self.refuses.clone().map_or(Ok(()), Err)
    }
    fn shut_link(&mut self, link: u32) {
        self.open.retain(|&other| other != link);
    }
    fn find_process(&self, (): &()) -> Result<Option<Process>, String> {
        Ok(None)
    }
    fn prepare_call(&mut self, _link: u32, (): ()) -> Result<(), String> {
        Ok(())
    }
    fn greet(&mut self, link: u32, proc: u32, call: &mut Call<Self>, _now_ns: u64) -> Result<bool, String> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (mut mine, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
        mine.send_packet(&Packet::Hello(self.introduction(link)));
        call.socket = Some(mine);
        self.halls[proc as usize].waiting.lock().expect("no panic").push(theirs);
        rustix::io::write(&self.halls[proc as usize].bell, &1u64.to_ne_bytes()).expect("rings");
        Ok(true)
    }
    fn silent(&self, proc: u32, waited_ms: u64, (): &()) -> String {
        format!("proc {proc} is silent for {waited_ms} ms")
    }
    fn accept(&mut self) -> Option<Accepted<OwnedFd>> {
        let hall = &self.halls[self.greeting.proc as usize];
        let waiting = hall.waiting.lock().expect("no panic").pop();
        if waiting.is_none() {
            let _ = rustix::io::read(&hall.bell, &mut [0; 8]);
        }
        waiting.map(Accepted::Visitor)
    }
    fn identify(&self, _: &OwnedFd, _: &Greeting, _: Option<Process>) -> Result<Option<Process>, String> {
        Ok(None)
    }
    fn meet(
        &mut self,
        _theirs: &Greeting,
        _extra: Extra<Self>,
        _process: Option<&Process>,
        _request: Option<()>,
    ) -> Result<((), ()), String> {
        Ok(((), ()))
    }
    fn welcome(&mut self, link: u32, socket: &mut OwnedFd) -> bool {
        socket.send_packet(&Packet::Welcome(self.introduction(link)));
        true
    }
    fn hear_word(&mut self, link: u32, _word: <OwnedFd as Socket>::Word) -> Result<(), String> {
        Err(out_of_turn(self.connections.proc(link)))
    }
    fn gone(&self, proc: u32, _pid: u32, _why: Option<String>) -> String {
        format!("proc {proc} is gone")
    }
    fn start_ending(&mut self, _link: u32, _goodbye: Option<()>, _now_ns: u64) -> u32 {
        3
    }
    fn is_over(&mut self, _link: u32, looks: &mut u32, _now_ns: u64) -> bool {
        *looks -= 1;
        *looks == 0
    }
    fn goodbye(&mut self, _link: u32) {}
}

/// Endpoints of one job, under one clock.
struct Job {
    desks: Vec<Desk>,
    now_ns: u64,
}

impl Job {
    fn new(procs: u32) -> Self {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a bell");
        let halls: Arc<[Hall]> = (0..procs).map(|_| Hall { waiting: Mutex::default(), bell: bell() }).collect();
        let desk = |me| {
            let watched = Watched::new().expect("a set");
            let listener = halls[me as usize].bell.try_clone().expect("a descriptor");
            watched.add(&listener, Token::Listener).expect("watched");
            Desk {
                connections: Connections::new(listener),
                watched,
                greeting: greeting("a-job", me, procs, 992, 7),
                halls: halls.clone(),
                open: Vec::new(),
                refuses: None,
                reuses: true,
                events: Vec::new(),
            }
        };
        Job { desks: (0..procs).map(desk).collect(), now_ns: 0 }
    }

    fn call(&mut self, from: usize, to: u32) -> Result<u32, String> {
        call(&mut self.desks[from], to, (), self.now_ns)
    }

    /// As many steps as any exchange takes.
    fn run(&mut self) {
        for _ in 0..20 {
            self.now_ns += 1_000_000;
            for desk in &mut self.desks {
                let mut events = Vec::new();
                desk.connections.report_queued(&mut events);
                look(desk, self.now_ns, &mut events);
                tend(desk, self.now_ns, &mut events);
                desk.events.append(&mut events);
            }
        }
    }

    /// What has been reported since the last time.
    fn events(&mut self, proc: usize) -> Vec<LinkEvent> {
        std::mem::take(&mut self.desks[proc].events)
    }

    fn failure(&mut self, proc: usize) -> String {
        match &self.events(proc)[..] {
            [LinkEvent::Failed { reason, .. }] => reason.clone(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_call_is_answered_and_its_end_is_told_after_what_is_still_to_come() {
    let mut job = Job::new(2);
    assert_eq!(job.call(0, 1), Ok(0));
    job.run();
    assert_eq!(job.events(0), [LinkEvent::Connected { link: 0 }]);
    assert_eq!(job.events(1), [LinkEvent::Accepted { link: 0, proc: 0 }]);
    assert_eq!(job.call(1, 0), Ok(0), "it is connected");
    job.run();
    assert_eq!(job.events(1), [LinkEvent::Connected { link: 0 }]);
    close_link(&mut job.desks[0], 0);
    job.run();
    assert!(job.failure(1).contains("has closed the connection without having finalized"));
    assert!(job.desks.iter().all(|desk| desk.open.is_empty()));
    close(&mut job.desks[0]);
    assert!(job.call(0, 1).is_err_and(|why| why.contains("closed")));
}

#[test]
fn of_two_calls_the_one_of_the_lower_number_wins() {
    for order in [[0, 1], [1, 0]] {
        let mut job = Job::new(2);
        for from in order {
            assert_eq!(job.call(from, 1 - from as u32), Ok(0));
        }
        job.run();
        assert_eq!(job.events(0), [LinkEvent::Connected { link: 0 }]);
        assert_eq!(job.events(1), [LinkEvent::Replaced { link: 0, by: 1 }]);
        assert_eq!((&job.desks[0].open[..], &job.desks[1].open[..]), (&[0][..], &[1][..]));
    }
}

#[test]
fn who_cannot_open_a_link_says_why_to_the_other_side() {
    for refusing in [0, 1] {
        let mut job = Job::new(2);
        job.desks[refusing].refuses = Some("no room".into());
        job.call(0, 1).expect("starts");
        job.run();
        assert!(job.failure(0).contains("no room"));
        match refusing {
            0 => assert!(
                matches!(&job.events(1)[..], [_, LinkEvent::Failed { reason, .. }] if reason.contains("no room"))
            ),
            _ => assert_eq!(job.events(1), []),
        }
        assert!(job.desks.iter().all(|desk| desk.open.is_empty()));
    }
}

#[test]
fn there_are_as_many_links_as_numbers_and_those_that_are_gone_count_if_they_may() {
    let mut job = Job::new(6);
    for from in 1..4 {
        job.call(from, 0).expect("starts");
    }
    job.run();
    assert_eq!(job.events(0).len(), 3);
    assert!(job.call(0, 4).is_err_and(|why| why.contains("there are 3 connections")));
    job.call(4, 0).expect("starts");
    job.run();
    assert!(job.failure(4).contains("proc 0 has 3 connections and can have no more"));
    // One ends, and the engine does not close its link.
    close_link(&mut job.desks[1], 0);
    job.run();
    assert!(job.failure(0).contains("has closed"));
    job.desks[0].reuses = false;
    assert!(job.call(0, 4).is_err());
    job.desks[0].reuses = true;
    assert!(job.call(0, 4).is_ok());
    job.run();
    // Its own failed one is not closed either, and there are others still.
    assert_eq!(job.events(4), [LinkEvent::Accepted { link: 1, proc: 0 }]);
}

#[test]
fn a_call_that_is_given_up_says_so_and_one_without_an_answer_ends() {
    let mut job = Job::new(3);
    job.call(0, 1).expect("starts");
    give_up(&mut job.desks[0], 0, "no time");
    job.run();
    assert_eq!(job.events(0), []);
    assert!(job.events(1).iter().all(|event| !matches!(event, LinkEvent::Connected { .. })));
    // Nobody looks there.
    let silent = job.desks.pop().expect("the last one");
    job.call(0, 2).expect("starts");
    for _ in 0..3 {
        job.run();
    }
    assert!(job.failure(0).contains("proc 2 is silent for 51 ms"));
    drop(silent);
}

#[test]
fn visitors_that_say_nothing_are_bounded_in_number_and_time() {
    let mut job = Job::new(2);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (mut silent, theirs): (Vec<_>, Vec<_>) = (0..VISITORS_MAX + 5)
        .map(|_| socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair"))
        .unzip();
    job.desks[0].halls[0].waiting.lock().expect("no panic").extend(theirs);
    rustix::io::write(&job.desks[0].halls[0].bell, &1u64.to_ne_bytes()).expect("rings");
    job.run();
    let seated = |job: &Job| job.desks[0].connections.visitors.iter().flatten().count();
    assert!(job.desks[0].connections.crowded && seated(&job) == VISITORS_MAX);
    for _ in 0..2 {
        job.now_ns += 2 * VISITOR_SILENCE_NS_MAX;
        job.run();
    }
    assert!(!job.desks[0].connections.crowded && seated(&job) == 0);
    assert!(silent.iter_mut().all(|socket| matches!(socket.receive(), Heard::Ended(_))));
    job.call(1, 0).expect("starts");
    job.run();
    assert_eq!(job.events(0), [LinkEvent::Accepted { link: 0, proc: 1 }]);
}
