//! `tickwire whowaits --hosts`: the command is itself a job with one process on each host. Each process asks its host, and rank 0
//! collects the answers through the launcher. So hosts need not accept any other connection.

use super::WhoWaitsArgs;
use crate::fault::Fault;
use crate::jobs::select;
use tickwire::Bootstrap;
use tickwire::bootstrap::{Exchange, VALUE_BYTES_MAX};
use tickwire::internals::traces::whowaits::RankReport;
use tickwire::jobs::{report, together};

/// Most values that a rank puts between two fences. They stay below the 1 MiB that a rank may put.
const VALUES_MAX: usize = 48;
/// Longest report that is passed on, bytes. A longer one is replaced by an empty one: such a job must be asked host by host.
const REPORT_BYTES_MAX: usize = 64 << 20;

/// The reports of all hosts, on rank 0 of this command's job. `None` on the other ranks.
///
/// # Errors
/// The launcher cannot be used, no host has a process of the job, or the hosts run different jobs.
pub(super) fn reports(args: &WhoWaitsArgs) -> Result<Option<Vec<RankReport>>, Fault> {
    let mut exchange = Bootstrap::from_env()?.into_exchange();
    // A host without a rank of the job reports nothing. If no host has one, rank 0 tells why its own host has none.
    let here = select(args.job.as_deref());
    let (found, reason) = match &here {
        Ok(processes) => (report(processes, args.asking.patience()), None),
        Err(fault) => (Vec::new(), Some(fault)),
    };
    let job = here.as_ref().ok().and_then(|processes| Some(processes.first()?.job.clone())).unwrap_or_default();
    let all = gather(&mut *exchange, serde_json::to_vec(&(job, found))?)?;
    exchange.finish();
    if exchange.rank() != 0 {
        return Ok(None);
    }
    let mut hosts: Vec<(String, Vec<RankReport>)> = Vec::new();
    for bytes in all {
        hosts.push(serde_json::from_slice(&bytes)?);
    }
    hosts.retain(|(job, _)| !job.is_empty());
    let Some((name, _)) = hosts.first() else {
        let why = reason.map_or("there is none", Fault::words);
        return Err(Fault::failure(format!("no host has a process of the job: {why}")));
    };
    if hosts.iter().any(|(job, _)| job != name) {
        return Err(Fault::wrong_use("the hosts run different jobs: name one"));
    }
    Ok(Some(together(hosts.into_iter().map(|(_, reports)| reports).collect())))
}

/// Exchanges bytes: every rank gets those of all ranks.
fn gather(exchange: &mut dyn Exchange, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Fault> {
    let own = if own.len() > REPORT_BYTES_MAX { b"[\"\",[]]".to_vec() } else { own };
    exchange.put("length", &(own.len() as u64).to_le_bytes())?;
    exchange.fence()?;
    let lengths = exchange.get_all("length")?.into_iter().map(|length| {
        let length = length.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?) as usize));
        length.filter(|&length| length <= REPORT_BYTES_MAX).ok_or_else(|| Fault::failure("a host says nothing"))
    });
    let lengths = lengths.collect::<Result<Vec<_>, _>>()?;
    let parts = lengths.iter().max().copied().unwrap_or_default().div_ceil(VALUE_BYTES_MAX);
    let mut all = vec![Vec::new(); lengths.len()];
    for round in 0..parts.div_ceil(VALUES_MAX) {
        let mine = own.chunks(VALUE_BYTES_MAX).enumerate().skip(round * VALUES_MAX).take(VALUES_MAX);
        for (part, bytes) in mine {
            exchange.put(&format!("part-{part}"), bytes)?;
        }
        exchange.fence()?;
        for part in (round * VALUES_MAX..parts).take(VALUES_MAX) {
            for (to, bytes) in all.iter_mut().zip(exchange.get_all(&format!("part-{part}"))?) {
                to.extend(bytes.unwrap_or_default());
            }
        }
    }
    match all.iter().map(Vec::len).eq(lengths) {
        true => Ok(all),
        false => Err(Fault::failure("what a host has said is cut off")),
    }
}
