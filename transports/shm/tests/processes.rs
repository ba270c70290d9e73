//! A process of its own as a peer: it is stopped, goes on, and is killed.

use super::kit::{Net, config, send};
use crate::shm::*;
use rustix::fd::OwnedFd;

const CHILD: &str = "TICKWIRE_TEST_SHM_CHILD";

/// Not a test: the process that the next test kills.
#[test]
fn child() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let mut shm = Shm::open(config(&job, 1, 2)).expect("opens");
    if std::env::var_os(STOPS).is_some() {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::STOP).expect("the own process");
    }
    if std::env::var_os(ANSWERS).is_some() {
        return answer_and_end(&mut shm);
    }
    let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero().get() as u32;
    let start_time = crate::processes::start_time(parent).expect("it lives");
    let card = HostCard { pid: parent, start_time, ..shm.own.card };
    shm.connect(0, &card.encode(), 0).expect("starts");
    let started = std::time::Instant::now();
    let mut events = Vec::new();
    let mut sent = 0;
    while started.elapsed().as_secs() < 60 {
        shm.control(started.elapsed().as_nanos() as u64, &mut events);
        let open = events.iter().find_map(|event| match *event {
            LinkEvent::Connected { link } | LinkEvent::Replaced { by: link, .. } => Some(link),
            _ => None,
        });
        if sent < 10 && open.is_some_and(|link| send(&mut shm, link, sent, b"last") == Sent::Done) {
            sent += 1;
        }
        std::thread::yield_now();
    }
}

/// The variable that has the child stop itself once it is open.
const STOPS: &str = "TICKWIRE_TEST_SHM_STOPS";
/// The variable that has the child answer a call, send messages and end.
const ANSWERS: &str = "TICKWIRE_TEST_SHM_ANSWERS";

fn answer_and_end(shm: &mut Shm) {
    let started = std::time::Instant::now();
    let mut events = Vec::new();
    while started.elapsed().as_secs() < 60 {
        shm.control(started.elapsed().as_nanos() as u64, &mut events);
        if let Some(&LinkEvent::Accepted { link, .. }) = events.first() {
            shm.attach(link, 1);
            assert!((0..3).all(|tag| send(shm, link, tag, b"last") == Sent::Done));
            return shm.close();
        }
        std::thread::yield_now();
    }
}

/// Starts [`child`] as proc 1.
fn start_child(net: &Net, stops: bool) -> std::process::Child {
    start(net, stops, false)
}

fn start(net: &Net, stops: bool, answers: bool) -> std::process::Child {
    let mut command = std::process::Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "shm::tests::processes::child", "--nocapture"]).env(CHILD, &net.job);
    if stops {
        command.env(STOPS, "1");
    }
    if answers {
        command.env(ANSWERS, "1");
    }
    command.stdout(std::process::Stdio::null()).spawn().expect("starts")
}

/// The card of a child, once it has stopped itself.
fn card_of_stopped(net: &mut Net, child: &std::process::Child) -> HostCard {
    let stat = format!("/proc/{}/stat", child.id());
    let started = std::time::Instant::now();
    while !std::fs::read_to_string(&stat).expect("it is this test's own").contains(") T ") {
        assert!(started.elapsed().as_secs() < 60, "it never stopped");
        std::thread::yield_now();
    }
    let start_time = crate::processes::start_time(child.id()).expect("it lives");
    HostCard { pid: child.id(), start_time, ..net.shm(0).own.card }
}

#[test]
fn a_process_that_answers_and_ends_before_anybody_looks_is_heard() {
    for told in [true, false] {
        let mut net = Net::with("answers", 1, |config| config.procs = 2);
        let mut child = start(&net, true, true);
        let card = card_of_stopped(&mut net, &child);
        let now_ns = net.now_ns;
        net.shm(0).connect(1, &card.encode(), now_ns).expect("starts");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is this test's own");
        assert!(child.wait().expect("it ends").success());
        if !told {
            // It hears of the end of the process before it looks at the answer.
            let (mut events, now_ns) = (Vec::new(), net.now_ns);
            let shm = net.shm(0);
            let link = *shm.connections.procs.get(&1).expect("it has called");
            crate::connections::process_ended(shm, link, now_ns, &mut events);
            assert_eq!(events, [LinkEvent::Connected { link }]);
            shm.attach(link, link);
        }
        net.until("its end", |net| !net.failures(0).is_empty());
        assert_eq!(net.frames[0].len(), 3);
        assert!(net.frames[0].iter().all(|(_, _, bytes)| bytes == b"last"));
    }
}

#[test]
fn a_stopped_process_is_waited_for_until_it_goes_on_or_dies() {
    for (hold, dies) in [(false, false), (false, true), (true, true)] {
        let mut net = Net::with("stopped", 1, |config| config.procs = 2);
        let mut child = start_child(&net, true);
        let card = card_of_stopped(&mut net, &child);
        let now_ns = net.now_ns;
        net.shm(0).connect(1, &card.encode(), now_ns).expect("starts");
        for _ in 0..3600 {
            net.now_ns += 1_000_000_000;
            net.control(0);
        }
        assert!(net.events[0].is_empty(), "{:?}", net.events);
        let held = if hold { hold_descriptors(child.id()) } else { vec![] };
        let started = std::time::Instant::now();
        if dies {
            child.kill().expect("it is this test's own");
            net.fails_with(0, &format!("process {} has ended before it answered", child.id()));
            assert!(started.elapsed().as_millis() < 1000, "{:?}", started.elapsed());
            assert!(net.shm(0).connect(1, &card.encode(), now_ns).is_err_and(|why| why.contains("has ended")));
        } else {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is this test's own");
            while net.frames[0].len() < 10 && started.elapsed().as_secs() < 60 {
                net.tick();
                std::thread::yield_now();
            }
            assert_eq!(net.frames[0].len(), 10);
            child.kill().expect("it is this test's own");
        }
        child.wait().expect("reaped");
        drop(held);
    }
}

#[test]
fn a_killed_process_is_noticed_though_its_socket_is_held() {
    for (hold, told) in [(false, true), (true, true), (true, false)] {
        let mut net = Net::with("killed", 1, |config| config.procs = 2);
        let mut child = start_child(&net, false);
        let started = std::time::Instant::now();
        while net.frames[0].len() < 10 && started.elapsed().as_secs() < 60 {
            net.tick();
            std::thread::yield_now();
        }
        assert_eq!(net.frames[0].len(), 10);
        let held = if hold { hold_descriptors(child.id()) } else { vec![] };
        if !told {
            // As where the kernel has no descriptors of processes.
            let link = net.link(0, 1).expect("open");
            let Shm { own, connections, .. } = net.shm(0);
            connections.forget_process(link, &own.watched);
        }
        child.kill().expect("killed");
        child.wait().expect("reaped");
        net.fails_with(0, &format!("process {} has ended", child.id()));
        assert_eq!(net.events[0].len(), 2, "{:?}", net.events[0]);
        drop(held);
    }
}

/// Copies of all descriptors of a process, as a child of it would have them; none where that is forbidden.
fn hold_descriptors(pid: u32) -> Vec<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let pid_of = Pid::from_raw(pid as i32).expect("a pid");
    let process = pidfd_open(pid_of, PidfdFlags::empty()).expect("a process");
    let numbers = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("readable").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()).collect()
}
