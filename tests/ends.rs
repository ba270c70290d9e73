//! A bound on blocking calls of a test, which have none of their own.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Ends the process if it is not dropped in time. A call that waits for ever would hide which test hangs.
pub struct Ends(Arc<(Mutex<bool>, Condvar)>);

impl Ends {
    /// Ends the process after `patience`, with these words.
    pub fn unless_done(patience: Duration, what: &'static str) -> Self {
        let done = Arc::new((Mutex::new(false), Condvar::new()));
        let waits = done.clone();
        std::thread::spawn(move || {
            let (is_done, changed) = &*waits;
            let waited = changed.wait_timeout_while(is_done.lock().unwrap(), patience, |done| !*done).unwrap();
            if waited.1.timed_out() {
                eprintln!("not within {patience:?}: {what}");
                std::process::abort();
            }
        });
        Ends(done)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}
