//! PMI-1: lines of text over the descriptor `PMI_FD`. hydra, `srun --mpi=pmi2` and Flux speak it.
//!
//! A request is `cmd=NAME key=value …`, and gets one answer of the same form. If the answer has `rc`, 0 means success. Values must not have
//! blanks, so bytes are sent as base64. Servers read lines of at most 1024 bytes, and say how long a value may be.

use super::error::{BootstrapError, shorten};
use super::hosts::HostMap;
use super::inherit::{receive_some, send_all, take_socket};
use super::kvs::Kvs;
use super::wait::Wait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The variable with the descriptor's number.
pub(super) const ENV_FD: &str = "PMI_FD";
/// The variable with the number of this rank.
pub(super) const ENV_RANK: &str = "PMI_RANK";
/// The variable with the number of ranks.
pub(super) const ENV_SIZE: &str = "PMI_SIZE";

/// Longest line that every server reads, with its end, bytes.
const REQUEST_BYTES_MAX: usize = 1024;
/// Longest line that is accepted as an answer, bytes. A mapping of many hosts is longer than a request.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Bytes of one read.
const READ_BYTES: usize = 4096;
/// Longest key: `tw.`, a fence, a word, a part, and a rank.
const KEY_BYTES: usize = 48;
/// Shortest limit of values with which this works, bytes: a card would need too many values otherwise.
const VALUE_BYTES_MIN: usize = 16;

/// The values of the launcher's variables.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PmiPlace {
    pub(super) fd: RawFd,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) patience: Duration,
}

/// A connection to the launcher.
pub(super) struct Pmi {
    place: PmiPlace,
    socket: OwnedFd,
    input: Vec<u8>,
    /// The launcher's name of the job.
    kvsname: String,
    /// Most characters of a value.
    text_max: usize,
    /// Whether a request failed half-way: then a later answer could be taken for that of another request.
    broken: bool,
    finalized: bool,
    keeps: bool,
}

/// A checked answer: it is of the expected kind, and reports success.
struct Answer(String);

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        field(&self.0, name)
    }
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let pairs = line.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

fn fault(reason: String) -> BootstrapError {
    BootstrapError::Launcher { launcher: "PMI-1", reason }
}

impl Pmi {
    /// Takes the descriptor that the launcher passed to this process, and introduces this rank.
    ///
    /// # Errors
    /// The launcher does not answer, or its answer is wrong.
    pub(super) fn inherit(place: PmiPlace) -> Result<Self, BootstrapError> {
        let socket = take_socket(place.fd, ENV_FD)?;
        Self::connect(place, socket)
    }

    pub(super) fn connect(place: PmiPlace, socket: OwnedFd) -> Result<Self, BootstrapError> {
        Self::introduce(place, socket, true)
    }

    /// Introduces this rank. With `keeps`, the connection stays open until this rank has finalized, or the process ends.
    pub(super) fn introduce(place: PmiPlace, socket: OwnedFd, keeps: bool) -> Result<Self, BootstrapError> {
        let mut pmi = Self {
            place,
            socket,
            input: Vec::new(),
            kvsname: String::new(),
            text_max: 0,
            broken: false,
            finalized: false,
            keeps,
        };
        pmi.call("the launcher's greeting", "init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let maxes = pmi.call("the launcher's limits", "get_maxes", "maxes")?;
        let number = |name: &str| {
            let found = maxes.field(name).unwrap_or_default();
            found.parse::<usize>().map_err(|_| fault(format!("it says {name}={}, which is no number", shorten(found))))
        };
        let (key_max, value_max) = (number("keylen_max")?, number("vallen_max")?);
        let name = pmi.call("the launcher's name of the job", "get_my_kvsname", "my_kvsname")?;
        name.field("kvsname").unwrap_or_default().clone_into(&mut pmi.kvsname);
        let rest = REQUEST_BYTES_MAX.saturating_sub(pmi.put_line(&"k".repeat(KEY_BYTES), "").len() + "cmd=\n".len());
        pmi.text_max = rest.min(value_max.saturating_sub(1));
        if pmi.kvsname.is_empty() || key_max <= KEY_BYTES || pmi.text_max / 4 * 3 < VALUE_BYTES_MIN {
            let words = format!("keys of {KEY_BYTES} and values of some 24 bytes are needed");
            let name = shorten(&pmi.kvsname);
            return Err(fault(format!(
                "it names the job `{name}` and takes keys of {key_max} and values of {value_max} bytes: {words}"
            )));
        }
        Ok(pmi)
    }

    fn put_line(&self, key: &str, value: &str) -> String {
        format!("put kvsname={} key={key} value={value}", self.kvsname)
    }

    fn key(&self, rank: u32, key: &str) -> String {
        format!("tw.{key}-{rank}")
    }

    /// Sends a request and reads its answer. If anything goes wrong in between, the connection can no longer be used.
    fn call(&mut self, operation: &'static str, request: &str, kind: &str) -> Result<Answer, BootstrapError> {
        let line = self.ask(operation, request, kind)?;
        match field(&line, "rc") {
            None | Some("0") => Ok(Answer(line)),
            Some(_) => {
                let asked = request.split(' ').next().unwrap_or_default();
                Err(fault(format!("the launcher refuses `{asked}`: {}", shorten(&line))))
            }
        }
    }

    /// As `call`, but the answer may report a failure.
    fn ask(&mut self, operation: &'static str, request: &str, kind: &str) -> Result<String, BootstrapError> {
        if self.broken {
            return Err(BootstrapError::Broken);
        }
        let line = self.exchange(operation, request);
        self.broken = line.is_err();
        let line = line?;
        if field(&line, "cmd") != Some(kind) {
            self.broken = true;
            let words = format!("`cmd={kind}` was expected, and this came: {}", shorten(&line));
            return Err(fault(format!("{words}; is {ENV_FD} the launcher's descriptor?")));
        }
        Ok(line)
    }

    fn exchange(&mut self, operation: &'static str, request: &str) -> Result<String, BootstrapError> {
        let wait = Wait::new(operation, self.place.patience);
        if !send_all(&self.socket, format!("cmd={request}\n").as_bytes(), &wait)? {
            return Err(BootstrapError::LauncherEnded);
        }
        let mut searched = 0;
        loop {
            let end = self.input[searched..].iter().position(|&byte| byte == b'\n');
            if let Some(end) = end {
                let mut line: Vec<u8> = self.input.drain(..=searched + end).collect();
                line.pop();
                return String::from_utf8(line).map_err(|_| fault("an answer is not text".to_owned()));
            }
            searched = self.input.len();
            if searched > ANSWER_BYTES_MAX {
                return Err(fault(format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
            }
            if !receive_some(&self.socket, &mut self.input, READ_BYTES, &wait)? {
                return Err(BootstrapError::LauncherEnded);
            }
        }
    }

    /// A value under a key, whichever rank has put it. `None` if there is none.
    fn look_up(&mut self, key: &str) -> Result<Option<String>, BootstrapError> {
        let request = format!("get kvsname={} key={key}", self.kvsname);
        let line = self.ask("a get", &request, "get_result")?;
        match field(&line, "rc") {
            None | Some("0") => match field(&line, "value") {
                Some(value) => Ok(Some(value.to_owned())),
                None => Err(fault(format!("an answer to get has no value: {}", shorten(&line)))),
            },
            Some(_) => Ok(None),
        }
    }
}

impl Kvs for Pmi {
    fn name(&self) -> String {
        format!("PMI-1 over {ENV_FD}")
    }

    fn rank(&self) -> u32 {
        self.place.rank
    }

    fn size(&self) -> u32 {
        self.place.size
    }

    fn id(&self) -> &str {
        &self.kvsname
    }

    fn hosts(&mut self) -> Result<Option<HostMap>, BootstrapError> {
        let Some(text) = self.look_up("PMI_process_mapping")? else { return Ok(None) };
        // A mapping that cannot be read counts as none: then the ranks tell each other their hosts.
        Ok(HostMap::parse_vector(&text, self.place.size).ok())
    }

    fn value_max(&self) -> usize {
        self.text_max / 4 * 3
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        let line = self.put_line(&self.key(self.place.rank, key), &STANDARD_NO_PAD.encode(value));
        self.call("a put", &line, "put_result").map(drop)
    }

    fn fence(&mut self, _values: bool) -> Result<(), BootstrapError> {
        self.call("a fence", "barrier_in", "barrier_out").map(drop)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        let Some(text) = self.look_up(&self.key(rank, key))? else { return Ok(None) };
        let value = STANDARD_NO_PAD.decode(&text);
        value
            .map(Some)
            .map_err(|_| fault(format!("the value of rank {rank} is `{}`: it is not base64", shorten(&text))))
    }

    fn abort(&self, code: i32) {
        let wait = Wait::new("an abort", self.place.patience);
        // There is no answer. A launcher that is gone needs no request.
        let _ = send_all(&self.socket, format!("cmd=abort exitcode={code}\n").as_bytes(), &wait);
    }

    fn finalize(&mut self) {
        // A launcher that cannot be told is gone, or will see the exit.
        self.finalized = self.call("the farewell", "finalize", "finalize_ack").is_ok();
    }
}

impl Drop for Pmi {
    /// Unless this rank has finalized, leaves the connection open for the rest of the process: hydra kills a process at once that closes it
    /// earlier, and the last output of that process is lost.
    fn drop(&mut self) {
        if self.keeps
            && !self.finalized
            && let Ok(kept) = self.socket.try_clone()
        {
            let _ = kept.into_raw_fd();
        }
    }
}

#[cfg(test)]
pub(super) mod server;
#[cfg(test)]
mod tests;
