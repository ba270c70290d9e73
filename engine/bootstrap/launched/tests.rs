use rustix::event::{PollFd, Timespec, poll};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{io::Write, thread};

use super::*;

fn place(ms: u64) -> Place {
    Place { rank: 0, size: 2, job: "job-test".into(), fd: -1, patience: Duration::from_millis(ms) }
}

/// A rank whose launcher is the test. `frames` are its answers, sent in advance.
fn rank(ms: u64, frames: &[Message<'_>]) -> (Result<Launched, BootstrapError>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    (&theirs).write_all(&bytes).unwrap();
    (Launched::connect(place(ms), ours.into()), theirs)
}

fn readable(launched: &Launched) -> bool {
    let fd = launched.event_fd().unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
}

#[test]
fn a_silent_launcher_is_an_error_in_bounded_time_and_spoils_the_connection() {
    let (launched, mut theirs) = rank(20, &[Message::Done]);
    let mut launched = launched.unwrap();
    assert!(matches!(launched.fence(), Err(BootstrapError::Timeout { operation: "a fence", ms: 20 })));
    // The answer that comes too late is not taken for that of the next request.
    let mut late = Vec::new();
    Message::Done.encode(&mut late);
    theirs.write_all(&late).unwrap();
    assert!(matches!(launched.put("k", b"v"), Err(BootstrapError::Broken)));
    assert_eq!(launched.poll_event(), None);
    assert!(!readable(&launched));
}

#[test]
fn an_event_before_an_answer_leaves_the_descriptor_readable_until_it_is_taken() {
    let ended = Message::RankEnded { rank: 1, reason: "exited" };
    let (launched, _theirs) = rank(1000, &[ended, Message::Done]);
    let mut launched = launched.unwrap();
    assert!(readable(&launched));
    assert_eq!(launched.poll_event(), Some(BootstrapEvent::RankEnded { rank: 1, reason: "exited".into() }));
    assert!(!readable(&launched));
    assert_eq!(launched.poll_event(), None);
}

#[test]
fn the_end_of_the_launcher_is_reported_once_and_fails_what_follows() {
    let (launched, theirs) = rank(1000, &[Message::Done]);
    let mut launched = launched.unwrap();
    drop(theirs);
    assert!(readable(&launched));
    assert_eq!(launched.poll_event(), Some(BootstrapEvent::LauncherEnded));
    assert_eq!(launched.poll_event(), None);
    assert!(!readable(&launched));
    assert!(matches!(launched.fence(), Err(BootstrapError::LauncherEnded)));
}

#[test]
fn a_launcher_that_ends_during_a_request_does_not_let_it_hang() {
    let (launched, theirs) = rank(60_000, &[Message::Done]);
    let mut launched = launched.unwrap();
    let waiting = thread::spawn(move || {
        let error = launched.fence().unwrap_err();
        (error, launched.poll_event())
    });
    drop(theirs);
    let (error, event) = waiting.join().unwrap();
    assert!(matches!(error, BootstrapError::LauncherEnded));
    assert_eq!(event, Some(BootstrapEvent::LauncherEnded));
}

#[test]
fn what_is_not_of_the_protocol_is_refused() {
    for frames in [
        [Message::Fence],
        [Message::Value { rank: 0, value: None }],
        [Message::RankEnded { rank: 2, reason: "no such rank" }],
    ] {
        let (launched, _theirs) = rank(1000, &frames);
        assert!(matches!(launched.err().unwrap(), BootstrapError::Protocol(_)));
    }
    let (launched, _theirs) = rank(1000, &[Message::Refused { reason: "another job" }]);
    assert_eq!(launched.err().unwrap().to_string(), "the launcher refused: another job");
    let (launched, mut theirs) = rank(1000, &[Message::Done]);
    let mut launched = launched.unwrap();
    theirs.write_all(&[0xff; 64]).unwrap();
    assert_eq!(launched.poll_event(), Some(BootstrapEvent::LauncherEnded));
}

#[test]
fn a_descriptor_that_is_no_socket_is_refused_and_left_alone() {
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap()).into_raw_fd();
    let error = take_socket(file, ENV_FD).unwrap_err();
    assert!(error.to_string().contains("that descriptor is /dev/null"), "{error}");
    assert!(std::fs::read_link(format!("/proc/self/fd/{file}")).is_ok());
    let error = take_socket(i32::MAX, ENV_FD).unwrap_err();
    assert!(error.to_string().contains("is not open"), "{error}");
}
