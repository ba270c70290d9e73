//! What a launcher other than ours offers: values under keys, and a fence that all ranks reach.

use super::error::BootstrapError;
use super::hosts::HostMap;

/// A connection to such a launcher. All calls block for a bounded time. Each key is put only once.
pub(super) trait Kvs: Send {
    /// The launcher and its protocol, as text for people.
    fn name(&self) -> String;
    /// The number of this rank.
    fn rank(&self) -> u32;
    /// The number of ranks in the job.
    fn size(&self) -> u32;
    /// The launcher's name of the job. No other job of this launcher has the same name at the same time.
    fn id(&self) -> &str;
    /// Which ranks are on which host. `None` if the launcher does not say so in a readable way.
    ///
    /// # Errors
    /// The launcher does not answer.
    fn hosts(&mut self) -> Result<Option<HostMap>, BootstrapError>;
    /// Longest value that the launcher takes, bytes.
    fn value_max(&self) -> usize;
    /// Publishes a value of this rank.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError>;
    /// Returns when all ranks have called this. With `values`, the values that they put before are visible afterwards. Pass `false` only if
    /// no rank has put any since the last fence.
    fn fence(&mut self, values: bool) -> Result<(), BootstrapError>;
    /// A value of another rank.
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError>;
    /// Asks for the end of the whole job, with this exit status.
    fn abort(&self, code: i32);
    /// Announces that this rank is finished: from then on the end of this process is no failure.
    fn finalize(&mut self);
}

/// Puts bytes of any length, split into values that the launcher takes. The first value starts with the total length.
pub(super) fn put_long(kvs: &mut dyn Kvs, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
    let mut whole = (bytes.len() as u32).to_le_bytes().to_vec();
    whole.extend_from_slice(bytes);
    for (part, value) in whole.chunks(kvs.value_max()).enumerate() {
        kvs.put(&format!("{key}.{part}"), value)?;
    }
    Ok(())
}

/// Gets bytes that [`put_long`] has put. `None` if `rank` has put none. A length above `most` is refused.
pub(super) fn get_long(
    kvs: &mut dyn Kvs,
    rank: u32,
    key: &str,
    most: usize,
) -> Result<Option<Vec<u8>>, BootstrapError> {
    const CUT_OFF: BootstrapError = BootstrapError::Protocol("a value of which parts are missing");
    let Some(first) = kvs.get(rank, &format!("{key}.0"))? else { return Ok(None) };
    let (length, rest) = first.split_first_chunk::<4>().ok_or(CUT_OFF)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > most {
        return Err(BootstrapError::Protocol("a value of impossible length"));
    }
    let mut bytes = rest.to_vec();
    let mut part = 0;
    while bytes.len() < length {
        part += 1;
        let more = kvs.get(rank, &format!("{key}.{part}"))?.filter(|more| !more.is_empty()).ok_or(CUT_OFF)?;
        bytes.extend_from_slice(&more);
    }
    if bytes.len() == length { Ok(Some(bytes)) } else { Err(CUT_OFF) }
}
