//! Parsers of what launchers and other ranks send, for tests and fuzzers, which pass any bytes. These are the parsers that a job uses.

use super::hosts::HostMap;
use super::kvs::Kvs;
use super::pmi::{Pmi, PmiPlace};
use super::{BootstrapError, table as tables};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most bytes of a launcher that are used: what a socket holds.
const HEARD_MAX: usize = 64 << 10;

/// The host of each of `size` ranks, read from a launcher's mapping.
///
/// # Errors
/// What is wrong with the text.
pub fn mapping(text: &str, size: u32) -> Result<Vec<u32>, &'static str> {
    let map = HostMap::parse_vector(text, size)?;
    Ok((0..size).filter_map(|rank| map.host_of(rank)).collect())
}

/// The number of values in a table of values, for a job of `size` ranks.
///
/// # Errors
/// What is wrong with the bytes.
pub fn table(bytes: &[u8], size: u32) -> Result<usize, BootstrapError> {
    let mut count = tables::ranks(bytes, size)?.len();
    tables::each(bytes, size, |_, _, _| count += 1)?;
    Ok(count)
}

/// Runs a whole job of `size` ranks with a launcher that speaks PMI-1 and sends these bytes, whatever it is asked.
///
/// # Errors
/// What is wrong with the bytes, or with the system.
pub fn pmi(said: &[u8], size: u32) -> Result<(), BootstrapError> {
    let wrong = |source| BootstrapError::System { operation: "a launcher's socket", source };
    let (rank, mut launcher) = UnixStream::pair().map_err(wrong)?;
    launcher.set_nonblocking(true).map_err(wrong)?;
    launcher.write_all(&said[..said.len().min(HEARD_MAX)]).map_err(wrong)?;
    launcher.shutdown(Shutdown::Write).map_err(wrong)?;
    let place = PmiPlace { fd: -1, rank: 0, size, patience: Duration::from_secs(1) };
    let mut pmi = Pmi::introduce(place, rank.into(), false)?;
    pmi.hosts()?;
    pmi.put("1.t", b"a value")?;
    pmi.fence(true)?;
    pmi.get(size.saturating_sub(1), "1.t")?;
    pmi.finalize();
    Ok(())
}
