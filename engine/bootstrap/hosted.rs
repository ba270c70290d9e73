//! The exchange of a rank that a launcher other than ours has started.
//!
//! Values go through the launcher once per host. The ranks of a host that may share memory are a *group*. Its first rank, the *head*,
//! collects the values that the others put, publishes them as one [table](super::table), reads the tables of the other groups, and hands
//! the whole to its group as a file in memory. If all ranks are one group, nothing goes through the launcher.
//!
//! Groups form once, at the start:
//!
//! 1. The first rank of each host opens a socket. Then all ranks reach a fence of the launcher.
//! 2. The other ranks of the host connect to the socket. A rank that cannot reach it, because it has its own network or process namespaces
//!    as in a container, is a group by itself. Then all ranks reach a fence of the launcher.
//! 3. The head answers the ranks that have connected. From now on it knows its group.
//!
//! A head's table says for which ranks it speaks. From that the others learn which ranks of a host are groups by themselves.

mod local;
mod meeting;
mod rounds;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod tests;

use super::error::BootstrapError;
use super::exchange::{Exchange, check_key, check_value};
use super::hosts::HostMap;
use super::kvs::{Kvs, get_long, put_long};
use super::table::{self, Puts};
use local::{Head, Member, PUT_BYTES_MAX, PUT_EXTRA_BYTES};
use rounds::Round;
use std::time::Duration;

/// This rank's part in its group.
enum Part {
    Head(Head),
    Member(Member),
}

/// The exchange. See the module's documentation.
pub(super) struct Hosted {
    kvs: Box<dyn Kvs>,
    hosts: HostMap,
    part: Part,
    /// Whether there are several groups, so that values go through the launcher.
    spread: bool,
    job: String,
    patience: Duration,
    /// The number of fences so far.
    fences: u32,
    puts: Puts,
    rounds: Vec<Round>,
    finished: bool,
}

impl Hosted {
    fn check_open(&self) -> Result<(), BootstrapError> {
        if self.finished { Err(BootstrapError::Finished) } else { Ok(()) }
    }

    fn fence_as_head(&mut self, own: Puts) -> Result<Round, BootstrapError> {
        let (size, rank) = (self.kvs.size(), self.kvs.rank());
        let Part::Head(head) = &mut self.part else { return Err(BootstrapError::Broken) };
        let ranks = head.gather((rank, own), size, self.patience)?;
        let table = table::encode(&ranks);
        let tables = if self.spread {
            let key = format!("{}.t", self.fences);
            put_long(&mut *self.kvs, &key, &table)?;
            self.kvs.fence(true)?;
            let known: Vec<u32> = ranks.iter().map(|(rank, _)| *rank).collect();
            let mut tables = collect(&mut *self.kvs, &self.hosts, &known, &key)?;
            tables.push(table);
            tables
        } else {
            vec![table]
        };
        let round = Round::of(&tables)?;
        head.scatter(&round, self.patience)?;
        Ok(round)
    }

    fn fence_as_member(&mut self, own: Puts) -> Result<Round, BootstrapError> {
        let rank = self.kvs.rank();
        let Part::Member(member) = &mut self.part else { return Err(BootstrapError::Broken) };
        member.send(&table::encode(&[(rank, own)]), self.patience)?;
        if self.spread {
            self.kvs.fence(true)?;
        }
        member.receive(self.patience)
    }
}

/// Gets the tables of all other groups. `known` are the ranks of the own group.
fn collect(kvs: &mut dyn Kvs, hosts: &HostMap, known: &[u32], key: &str) -> Result<Vec<Vec<u8>>, BootstrapError> {
    let size = hosts.size();
    let mut tables = Vec::new();
    // The first rank of a host speaks for most of the host. The ranks that are left then are groups of one.
    let mut left = vec![true; size as usize];
    known.iter().for_each(|&rank| left[rank as usize] = false);
    for rank in hosts.firsts().iter().copied().chain(0..size) {
        if !left[rank as usize] {
            continue;
        }
        let most = (hosts.size() as usize).saturating_mul(PUT_BYTES_MAX).min(u32::MAX as usize);
        let table = get_long(kvs, rank, key, most)?;
        let table = table.ok_or(BootstrapError::Protocol("no values of a rank that has reached the fence"))?;
        for of in table::ranks(&table, size)? {
            left[of as usize] = false;
        }
        if left[rank as usize] {
            return Err(BootstrapError::Protocol("values of other ranks than the one that put them"));
        }
        tables.push(table);
    }
    Ok(tables)
}

impl Exchange for Hosted {
    fn rank(&self) -> u32 {
        self.kvs.rank()
    }

    fn size(&self) -> u32 {
        self.kvs.size()
    }

    fn job(&self) -> &str {
        &self.job
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.check_open()?;
        check_key(key)?;
        check_value(value)?;
        let bytes_of = |key: &str, value: &[u8]| key.len() + value.len() + PUT_EXTRA_BYTES;
        let others = self.puts.iter().filter(|(of, _)| of != key).map(|(of, value)| bytes_of(of, value));
        if others.sum::<usize>() + bytes_of(key, value) > PUT_BYTES_MAX {
            return Err(BootstrapError::Refused(format!(
                "a rank may put {PUT_BYTES_MAX} bytes between two fences, with keys and {PUT_EXTRA_BYTES} bytes for each"
            )));
        }
        self.puts.retain(|(of, _)| of != key);
        self.puts.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        self.check_open()?;
        self.fences += 1;
        let own = std::mem::take(&mut self.puts);
        let round = match self.part {
            Part::Head(_) => self.fence_as_head(own),
            Part::Member(_) => self.fence_as_member(own),
        };
        self.rounds.push(round?);
        Ok(())
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        check_key(key)?;
        let size = self.size();
        if rank >= size {
            return Err(BootstrapError::Rank { rank, size });
        }
        if rank == self.rank() {
            // A rank's own values are visible to it at once.
            if let Some((_, value)) = self.puts.iter().find(|(of, _)| of == key) {
                return Ok(Some(value.clone()));
            }
        }
        for round in self.rounds.iter().rev() {
            let mut found = None;
            round.values(size, key, |of, value| {
                if of == rank {
                    found = Some(value.to_vec());
                }
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn get_all(&mut self, key: &str) -> Result<Vec<Option<Vec<u8>>>, BootstrapError> {
        check_key(key)?;
        let mut all = vec![None; self.size() as usize];
        for round in &self.rounds {
            round.values(all.len() as u32, key, |of, value| all[of as usize] = Some(value.to_vec()))?;
        }
        if let Some((_, value)) = self.puts.iter().find(|(of, _)| of == key) {
            let me = self.rank() as usize;
            all[me] = Some(value.clone());
        }
        Ok(all)
    }

    fn one_host(&self) -> bool {
        !self.spread
    }

    fn hosts(&self) -> Option<u32> {
        Some(self.hosts.hosts())
    }

    fn host_of(&self, rank: u32) -> Option<u32> {
        self.hosts.host_of(rank)
    }

    fn describe(&self) -> String {
        self.kvs.name()
    }

    fn abort(&self, code: i32) {
        self.kvs.abort(code);
    }

    fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            self.part.close();
            self.kvs.finalize();
        }
    }

    fn abandon(&mut self) {
        // The launcher sees that the process exits without having finalized.
        self.finished = true;
    }
}

impl Part {
    fn close(&mut self) {
        match self {
            Part::Head(head) => head.close(),
            Part::Member(member) => member.close(),
        }
    }
}

impl Drop for Hosted {
    /// Matters only for an exchange that was never given to an engine. It finishes, except during a panic: then the exit of the process
    /// shows the failure.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}
