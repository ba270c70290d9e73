//! A PMI-1 server with the limits and the behaviour of Flux, since Flux itself is not available everywhere. The server
//! starts the ranks as processes.

use super::kit::{RANK, reports, words};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
struct State {
    values: HashMap<String, String>,
    waiting: usize,
    barriers: usize,
    aborted: bool,
}

struct Server {
    size: usize,
    mapping: Option<&'static str>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Server {
    /// Serves a rank until the rank closes its socket.
    fn serve(&self, socket: &UnixStream) {
        let mut to = socket;
        for line in BufReader::new(socket).lines() {
            let Ok(line) = line else { return };
            let word = |name: &str| line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            let answer = self.answer(&word);
            if to.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer<'a>(&self, word: &dyn Fn(&str) -> Option<&'a str>) -> String {
        let mut state = self.state.lock().unwrap();
        match word("cmd").unwrap_or_default() {
            "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".into(),
            "get_maxes" => "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024\n".into(),
            "get_my_kvsname" => format!("cmd=my_kvsname rc=0 kvsname=f{}\n", std::process::id()),
            "put" => {
                state.values.insert(word("key").unwrap().into(), word("value").unwrap().into());
                "cmd=put_result rc=0\n".into()
            }
            "get" => {
                let found = match word("key").unwrap() {
                    "PMI_process_mapping" => self.mapping.map(str::to_owned),
                    key => state.values.get(key).cloned(),
                };
                found.map_or("cmd=get_result rc=-1\n".into(), |value| format!("cmd=get_result rc=0 value={value}\n"))
            }
            "barrier_in" => {
                let mine = state.barriers;
                state.waiting += 1;
                if state.waiting == self.size {
                    (state.waiting, state.barriers) = (0, mine + 1);
                    self.changed.notify_all();
                }
                let patience = Duration::from_secs(30);
                drop(self.changed.wait_timeout_while(state, patience, |state| state.barriers == mine).unwrap());
                "cmd=barrier_out rc=0\n".into()
            }
            "finalize" => "cmd=finalize_ack rc=0\n".into(),
            "abort" => {
                state.aborted = true;
                String::new()
            }
            _ => "cmd=unknown rc=-1\n".into(),
        }
    }
}

/// Runs a job. Returns the outputs of its ranks, and whether a rank has asked to abort.
fn job(size: usize, mapping: Option<&'static str>, what: &str) -> (Vec<Output>, bool) {
    let server = Server { size, mapping, state: Mutex::default(), changed: Condvar::new() };
    let outputs = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (ours, theirs) = UnixStream::pair().unwrap();
                let mut command = Command::new(RANK);
                command.arg(what).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string());
                command.env("FLUX_TASK_RANK", rank.to_string()).env("FLUX_JOB_SIZE", size.to_string());
                command.env("PMI_FD", theirs.as_raw_fd().to_string());
                let passed = theirs.try_clone().unwrap();
                let in_child = move || Ok(rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?);
                #[expect(unsafe_code, reason = "only the new process can pass on its socket")]
                // SAFETY: between fork and exec there is only one system call, on a descriptor that was made before.
                unsafe {
                    command.pre_exec(in_child);
                }
                let child = command.spawn().unwrap();
                drop((command, passed));
                scope.spawn(|| {
                    let socket = ours;
                    server.serve(&socket);
                });
                child
            })
            .collect();
        ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
    });
    (outputs, server.state.into_inner().unwrap().aborted)
}

#[test]
fn its_ranks_know_their_places_with_a_mapping_and_without() {
    for (size, mapping) in [(1, None), (2, Some("(vector,(0,1,2))")), (8, Some("(vector,(0,1,8))")), (3, None)] {
        let (outputs, aborted) = job(size, mapping, "ring");
        assert!(!aborted);
        for (rank, output) in outputs.iter().enumerate() {
            let line = &reports(output)[0];
            assert!(
                line.starts_with(&format!("rank {rank} of {size}, host 0 of 1, {rank} of {size} shared")),
                "{line}"
            );
        }
    }
}

#[test]
fn an_abort_reaches_the_server() {
    // The server ends no rank. Ranks that wait for a missing rank get an error.
    let (outputs, aborted) = job(2, Some("(vector,(0,1,2))"), "abort-alone");
    assert!(aborted, "{}", outputs.iter().map(words).collect::<String>());
    assert_eq!(outputs[1].status.code(), Some(7));
}
