//! The exchange of a world of one.

use super::error::BootstrapError;
use super::exchange::{Exchange, check_key, check_value};
use super::name::unique_job;
use std::collections::HashMap;

/// A world of one: values are visible at once, and no rank is waited for.
pub(super) struct Solo {
    pub(super) job: String,
    pub(super) values: HashMap<String, Vec<u8>>,
    pub(super) finished: bool,
}

impl Solo {
    pub(super) fn new() -> Self {
        Self { job: unique_job("solo"), values: HashMap::new(), finished: false }
    }
}

impl Exchange for Solo {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn job(&self) -> &str {
        &self.job
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        if self.finished {
            return Err(BootstrapError::Finished);
        }
        check_key(key)?;
        check_value(value)?;
        self.values.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        if self.finished { Err(BootstrapError::Finished) } else { Ok(()) }
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        if rank != 0 {
            return Err(BootstrapError::Rank { rank, size: 1 });
        }
        check_key(key)?;
        Ok(self.values.get(key).cloned())
    }

    fn describe(&self) -> String {
        "alone".to_owned()
    }

    fn finish(&mut self) {
        self.finished = true;
    }
}
