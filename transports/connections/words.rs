//! What goes wrong with connections, in words.

use rustix::io::Errno;

/// A message that its sender may not send at this point.
pub(crate) fn out_of_turn(proc: u32) -> String {
    format!("proc {proc} sent a packet out of turn: use one build of tickwire for all procs")
}

/// That a visitor has not said who it is.
pub(crate) fn ungreeted() -> String {
    "the peer did not start with a greeting: use one build of tickwire for all procs".into()
}

/// That a socket cannot be watched, and what to do.
pub(crate) fn unwatched(error: Errno) -> String {
    format!(
        "a connection cannot be watched ({error}): raise the limit of open files, or the kernel's fs.epoll.max_user_watches"
    )
}
