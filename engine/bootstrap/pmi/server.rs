//! A launcher that speaks PMI-1, for tests. It has one thread for each rank, and keeps the values between them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How the launcher behaves.
#[derive(Clone)]
pub(crate) struct Manner {
    /// The mapping of ranks to hosts, if there is one.
    pub(crate) mapping: Option<String>,
    /// Longest value, bytes.
    pub(crate) value_max: usize,
    /// Answers to give instead of the right ones, by the name of the request.
    pub(crate) instead: Vec<(&'static str, Vec<u8>)>,
}

impl Default for Manner {
    fn default() -> Self {
        Self { mapping: Some("(vector,(0,1,4096))".into()), value_max: 1024, instead: Vec::new() }
    }
}

/// What the launcher has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) values: HashMap<String, String>,
    pub(crate) counts: HashMap<String, usize>,
    pub(crate) aborted: Option<String>,
    at_barrier: usize,
    barriers: usize,
}

/// The launcher of one job.
pub(crate) struct Server {
    size: usize,
    manner: Manner,
    state: Arc<(Mutex<Seen>, Condvar)>,
}

impl Server {
    pub(crate) fn new(size: usize, manner: Manner) -> Self {
        Self { size, manner, state: Arc::default() }
    }

    /// The socket of a new rank, and the thread that serves it. The thread ends when the socket is closed.
    pub(crate) fn rank(&self) -> (UnixStream, JoinHandle<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (size, manner, state) = (self.size, self.manner.clone(), self.state.clone());
        (theirs, std::thread::spawn(move || serve(size, &manner, &state, &ours)))
    }

    /// What the launcher has seen so far.
    pub(crate) fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.state.0.lock().unwrap())
    }
}

fn word<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

fn serve(size: usize, manner: &Manner, state: &(Mutex<Seen>, Condvar), socket: &UnixStream) {
    for line in BufReader::new(socket).lines() {
        let Ok(line) = line else { return };
        let name = word(&line, "cmd");
        *state.0.lock().unwrap().counts.entry(name.to_owned()).or_default() += 1;
        let instead = manner.instead.iter().find(|(of, _)| *of == name);
        let answer = match instead {
            Some((_, answer)) => answer.clone(),
            None => answer(size, manner, state, &line).into_bytes(),
        };
        let mut socket = socket;
        if socket.write_all(&answer).is_err() {
            return;
        }
    }
}

fn answer(size: usize, manner: &Manner, state: &(Mutex<Seen>, Condvar), line: &str) -> String {
    let mut seen = state.0.lock().unwrap();
    match word(line, "cmd") {
        "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".into(),
        "get_maxes" => format!("cmd=maxes kvsname_max=64 keylen_max=64 vallen_max={}\n", manner.value_max),
        "get_my_kvsname" => format!("cmd=my_kvsname kvsname=kvs_{}_{:p}\n", std::process::id(), state),
        "put" => {
            assert!(line.len() < 1024, "a line of {} bytes", line.len());
            assert!(word(line, "value").len() < manner.value_max, "a value of {}", word(line, "value").len());
            let old = seen.values.insert(word(line, "key").into(), word(line, "value").into());
            assert_eq!(old, None, "a key is put once");
            "cmd=put_result rc=0\n".into()
        }
        "get" if word(line, "key") == "PMI_process_mapping" => match &manner.mapping {
            Some(mapping) => format!("cmd=get_result rc=0 value={mapping}\n"),
            None => "cmd=get_result rc=-1 msg=key_PMI_process_mapping_not_found\n".into(),
        },
        "get" => match seen.values.get(word(line, "key")) {
            Some(value) => format!("cmd=get_result rc=0 value={value}\n"),
            None => "cmd=get_result rc=-1\n".into(),
        },
        "barrier_in" => {
            let mine = seen.barriers;
            seen.at_barrier += 1;
            if seen.at_barrier == size {
                (seen.at_barrier, seen.barriers) = (0, mine + 1);
                state.1.notify_all();
            }
            let came = state.1.wait_timeout_while(seen, Duration::from_secs(30), |seen| seen.barriers == mine).unwrap();
            assert!(!came.1.timed_out(), "a rank did not come to a barrier");
            "cmd=barrier_out rc=0\n".into()
        }
        "finalize" => "cmd=finalize_ack rc=0\n".into(),
        "abort" => {
            seen.aborted = Some(word(line, "exitcode").into());
            String::new()
        }
        other => panic!("an unknown request: {other}"),
    }
}
