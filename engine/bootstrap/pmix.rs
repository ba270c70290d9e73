//! PMIx, as spoken by prterun, mpirun of Open MPI and `srun --mpi=pmix`. It is spoken through a library that is loaded at run time.

use super::error::BootstrapError;
use super::hosts::HostMap;
use super::kvs::Kvs;
use std::time::Duration;
use tickwire_components::limits::PROCS_MAX;
use tickwire_pmix::{ANL_MAP, Client, HOST_NAME, JOB_SIZE, NODE_ID, PmixError, Value};

/// The variable with the path of the library, for a library that is neither beside the launcher nor the system's `libpmix.so.2`.
pub const ENV_PMIX_LIBRARY: &str = "TICKWIRE_PMIX_LIBRARY";

/// The variable with the job's name. It is set if the launcher speaks PMIx.
pub(super) const ENV_NAMESPACE: &str = "PMIX_NAMESPACE";
/// The variable with the directory in which the launcher is installed.
const ENV_PREFIX: &str = "PMIX_PREFIX";
/// Longest value, bytes. Servers take far more, but forward each value as a whole.
const VALUE_BYTES: usize = 64 << 10;

/// A connection to the launcher.
pub(super) struct Pmix {
    client: Client,
    namespace: String,
    size: u32,
    patience: Duration,
    finalized: bool,
}

fn fault(reason: String) -> BootstrapError {
    BootstrapError::Launcher { launcher: "PMIx", reason }
}

fn failed(error: PmixError, patience: Duration) -> BootstrapError {
    match error {
        PmixError::Timeout { call } => BootstrapError::Timeout { operation: call, ms: patience.as_millis() as u64 },
        PmixError::Missing(_) | PmixError::Symbol { .. } => fault(format!(
            "{error}: install it (apt-get install libpmix2, dnf install pmix), name its file in {ENV_PMIX_LIBRARY}, or use a \
             launcher with PMI-1"
        )),
        PmixError::Call { call: "PMIx_Fence", .. } => fault(format!("{error}: a rank has ended, or the launcher has")),
        other => fault(other.to_string()),
    }
}

impl Pmix {
    /// Connects to the launcher's server.
    ///
    /// # Errors
    /// There is no library, or the server's answers are wrong.
    pub(super) fn connect(patience: Duration) -> Result<Self, BootstrapError> {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (asked, prefix) = (read(ENV_PMIX_LIBRARY), read(ENV_PREFIX));
        let client =
            Client::connect(asked.as_deref(), prefix.as_deref(), patience).map_err(|error| failed(error, patience))?;
        let size = client.info(None, JOB_SIZE, patience).map_err(|error| failed(error, patience))?;
        let size = match size {
            Some(Value::Number(size)) if (1..=PROCS_MAX as u64).contains(&size) => size as u32,
            other => return Err(fault(format!("{JOB_SIZE} is {other:?}: expected a number from 1 to {PROCS_MAX}"))),
        };
        if client.rank() >= size {
            return Err(fault(format!("this is rank {} of {size}: expected one below", client.rank())));
        }
        Ok(Self { namespace: client.namespace(), client, size, patience, finalized: false })
    }

    /// The values under one key of all ranks. `None` unless the launcher knows all of them.
    fn of_all(&self, key: &str) -> Option<Vec<Value>> {
        (0..self.size).map(|rank| self.client.info(Some(rank), key, self.patience).ok().flatten()).collect()
    }
}

impl Kvs for Pmix {
    fn name(&self) -> String {
        format!("PMIx ({})", self.client.file())
    }

    fn rank(&self) -> u32 {
        self.client.rank()
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn id(&self) -> &str {
        &self.namespace
    }

    fn hosts(&mut self) -> Result<Option<HostMap>, BootstrapError> {
        let map = self.client.info(None, ANL_MAP, self.patience).map_err(|error| failed(error, self.patience))?;
        if let Some(Value::Text(text)) = map
            && let Ok(map) = HostMap::parse_vector(&text, self.size)
        {
            return Ok(Some(map));
        }
        let found = self.of_all(NODE_ID).or_else(|| self.of_all(HOST_NAME));
        let name = |value: Value| match value {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text,
            other => format!("{other:?}"),
        };
        Ok(found.map(|values| HostMap::of_names(values.into_iter().map(name))))
    }

    fn value_max(&self) -> usize {
        VALUE_BYTES
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.client.put(&format!("tickwire.{key}"), value).map_err(|error| failed(error, self.patience))
    }

    fn fence(&mut self, values: bool) -> Result<(), BootstrapError> {
        self.client.fence(values, self.patience).map_err(|error| failed(error, self.patience))
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        let value = self.client.get(rank, &format!("tickwire.{key}"), self.patience);
        match value.map_err(|error| failed(error, self.patience))? {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(other) => Err(fault(format!("the value of rank {rank} is {other:?}: expected bytes"))),
        }
    }

    fn abort(&self, code: i32) {
        self.client.abort(code, c"a rank has called abort", self.patience);
    }

    fn finalize(&mut self) {
        if !std::mem::replace(&mut self.finalized, true) {
            // A launcher that cannot be told is gone, or will see the exit.
            let _ = self.client.finalize(self.patience);
        }
    }
}
