//! Exchanges for worlds that no launcher has started: engines side by side in this process, and procs that only exist
//! as an entry in the address table.

use std::os::fd::BorrowedFd;

use tickwire::bootstrap::{BootstrapError, BootstrapEvent, Exchange};

/// A rank of a world on one host. It takes its own card for the card of every rank.
///
/// That is right for shared memory, whose card names the host. Fences do nothing, so that engines can be built one after
/// another: a real fence would never end.
pub(crate) struct OneHost {
    rank: u32,
    size: u32,
    job: String,
    values: Vec<(String, Vec<u8>)>,
}

impl OneHost {
    /// A rank of a job whose name starts with `kind`.
    pub(crate) fn new(kind: &str, rank: u32, size: u32) -> Self {
        OneHost { rank, size, job: format!("{kind}-{}", std::process::id()), values: Vec::new() }
    }
}

impl Exchange for OneHost {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job(&self) -> &str {
        &self.job
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.values.retain(|(known, _)| known != key);
        self.values.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn get(&mut self, _: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        Ok(self.values.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone()))
    }
}

/// A real job, with further procs at its end that nobody ever contacts. This rank's card stands for theirs.
pub(crate) struct Extended {
    inner: Box<dyn Exchange>,
    more: u32,
}

impl Extended {
    /// Adds `more` procs.
    pub(crate) fn new(inner: Box<dyn Exchange>, more: u32) -> Self {
        Extended { inner, more }
    }
}

impl Exchange for Extended {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size() + self.more
    }

    fn job(&self) -> &str {
        self.inner.job()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.inner.put(key, value)
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        self.inner.fence()
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        let rank = if rank < self.inner.size() { rank } else { self.inner.rank() };
        self.inner.get(rank, key)
    }

    fn get_all(&mut self, key: &str) -> Result<Vec<Option<Vec<u8>>>, BootstrapError> {
        let mut all = self.inner.get_all(key)?;
        let own = all.get(self.inner.rank() as usize).cloned().flatten();
        all.resize(all.len() + self.more as usize, own);
        Ok(all)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.event_fd()
    }

    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        self.inner.poll_event()
    }

    fn one_host(&self) -> bool {
        self.inner.one_host()
    }

    fn tells_ends(&self) -> bool {
        self.inner.tells_ends()
    }

    fn hosts(&self) -> Option<u32> {
        self.inner.hosts()
    }

    fn host_of(&self, rank: u32) -> Option<u32> {
        self.inner.host_of(rank.min(self.inner.size() - 1))
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn abort(&self, code: i32) {
        self.inner.abort(code);
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn finish(&mut self) {
        self.inner.finish();
    }
}
