//! What ranks wait for on windows: locks that others hold, and engines that have yet to do their operations.

use super::report::{RankReport, Wait};
use crate::dump::{Activity, Dump, HolderDump, Kind, LockDump, OperationDump, PendingDump, Plane, WindowDump};
use crate::words::count;
use tickwire_components::epoch;

/// What one engine waits for on its windows.
pub(super) fn waits_of(ranks: &[RankReport], rank: u32, dump: &Dump, waits: &mut Vec<Wait>) {
    let blocking = dump.activity == Activity::Waiting;
    for window in &dump.windows {
        let WindowDump { comm, context, awaited, pending, by_fabric, .. } = window;
        let name = window.name();
        if let Some(LockDump { proc, holders, .. }) = awaited {
            // The target's own report, for ranks that cannot read the lock.
            let told = held_at(ranks, *proc, *context);
            let holders = if holders.is_empty() { told } else { holders };
            let what = |holder: u32| format!("rank {holder} to unlock rank {proc}'s part of window {comm}");
            waits.extend(holders.iter().map(|holder| {
                let because = vec![format!("rank {} holds it {}", holder.proc, how(holder))];
                Wait { rank, on: Some(holder.proc), what: what(holder.proc), because, blocking }
            }));
            if holders.is_empty() {
                let what = format!("rank {proc} to give the lock of its part of window {comm}");
                waits.push(Wait { rank, on: Some(*proc), what, because: Vec::new(), blocking });
            }
        }
        for PendingDump { proc, operations, .. } in pending.iter().filter(|_| awaited.is_none()) {
            let operations = count(*operations, "one-sided operation", "one-sided operations");
            let what = format!("rank {proc} to tick, which does {operations} on {name}");
            waits.push(Wait { rank, on: Some(*proc), what, because: Vec::new(), blocking });
        }
        // Most fabrics make progress at a target only while the target polls. Operations on this rank's own memory wait for no other
        // rank.
        for PendingDump { proc, operations, .. } in by_fabric.iter().filter(|of| awaited.is_none() && of.proc != rank) {
            let operations = count(*operations, "one-sided operation", "one-sided operations");
            let what = format!("the fabric, which does {operations} on {name} as rank {proc} ticks");
            waits.push(Wait { rank, on: Some(*proc), what, because: Vec::new(), blocking });
        }
    }
}

/// The window whose epoch a receive waits for, and whether for its beginning: a window's own messages say that epochs are posted and
/// completed.
fn epoch_of<'a>(dump: &'a Dump, operation: &OperationDump) -> Option<(&'a WindowDump, bool)> {
    let is_of_window = operation.kind == Kind::Receive && operation.plane == Plane::User;
    let is_posted = match operation.tag {
        Some(tag) if tag == epoch::POSTED.0 => true,
        Some(tag) if tag == epoch::COMPLETED.0 => false,
        _ => return None,
    };
    // The window of exposed memory has the world's communicator, and no epochs.
    let mut windows = dump.windows.iter().filter(|window| is_of_window && window.comm != 0);
    Some((windows.find(|window| window.context == operation.context)?, is_posted))
}

/// What a receive for a window's epoch waits for, as text.
pub(super) fn epoch_awaited(dump: &Dump, operation: &OperationDump, peer: &str) -> Option<String> {
    let (window, is_posted) = epoch_of(dump, operation)?;
    let what = if is_posted { "post an epoch (win_post)" } else { "complete its epoch (win_complete)" };
    Some(format!("{peer} to {what} of {}", window.name()))
}

/// Why the epoch that a receive waits for does not come, if the reason is that the peer has not begun it.
pub(super) fn epoch_missing(ranks: &[RankReport], dump: &Dump, operation: &OperationDump) -> Option<Vec<String>> {
    let (window, is_posted) = epoch_of(dump, operation)?;
    let peer = operation.peer?;
    let dumps = ranks.get(peer as usize).map_or(&[][..], RankReport::dumps);
    let theirs = dumps.iter().flat_map(|dump| &dump.windows).find(|of| of.context == window.context)?;
    let (is_open, what) = match is_posted {
        true => (theirs.has_epoch(WindowDump::EXPOSURE), "has posted none"),
        // One that has ended leaves a message that is on its way.
        false => (theirs.has_epoch(WindowDump::ACCESS), "has no epoch open"),
    };
    (!is_open).then(|| vec![format!("rank {peer} {what}")])
}

const fn how(holder: &HolderDump) -> &'static str {
    if holder.exclusive { "alone" } else { "with others" }
}

/// The holders of the lock of a rank's part, according to that rank's own report.
fn held_at(ranks: &[RankReport], proc: u32, context: u32) -> &[HolderDump] {
    let dumps = ranks.get(proc as usize).map_or(&[][..], RankReport::dumps);
    let window = dumps.iter().flat_map(|dump| &dump.windows).find(|window| window.context == context);
    window.map_or(&[], |window| &window.holders)
}

#[cfg(test)]
mod tests {
    use super::super::who_waits;
    use super::*;

    /// A rank that waits for the lock of rank 0's part of window 5.
    fn waiting(rank: u32, holders: Vec<HolderDump>) -> Dump {
        let awaited = Some(LockDump { rank: 0, proc: 0, holders });
        let window = WindowDump { comm: 5, context: 5, awaited, ..WindowDump::default() };
        Dump { rank, activity: Activity::Waiting, windows: vec![window], ..Dump::default() }
    }

    #[test]
    fn the_holder_of_a_lock_is_named_whoever_sees_it() {
        let holder = HolderDump { rank: 2, proc: 2, exclusive: true };
        let own = WindowDump { comm: 5, context: 5, holders: vec![holder], ..WindowDump::default() };
        let target = Dump { rank: 0, windows: vec![own], ..Dump::default() };
        let ranks = [target, waiting(1, vec![]), Dump { rank: 2, ..Dump::default() }];
        let near = [Dump::default(), waiting(1, vec![holder]), Dump { rank: 2, ..Dump::default() }];
        for ranks in [ranks, near].map(|ranks| ranks.map(|dump| RankReport::Dumped(vec![dump]))) {
            let findings = who_waits(&ranks);
            let [wait] = &findings.waits[..] else { panic!("{findings:?}") };
            assert_eq!((wait.rank, wait.on, wait.blocking), (1, Some(2), true));
            assert_eq!(wait.what, "rank 2 to unlock rank 0's part of window 5");
            assert_eq!(wait.because, ["rank 2 holds it alone"]);
            assert_eq!(findings.culprits[0].rank, 2);
        }
    }

    #[test]
    fn an_engine_that_does_not_tick_is_named_with_what_it_is_to_do() {
        let pending = vec![PendingDump { rank: 0, proc: 0, operations: 3 }];
        let window = WindowDump { comm: 5, context: 5, pending, ..WindowDump::default() };
        let origin = Dump { rank: 1, activity: Activity::Waiting, windows: vec![window], ..Dump::default() };
        let ranks = [RankReport::Silent { ns: 7 }, RankReport::Dumped(vec![origin])];
        let findings = who_waits(&ranks);
        assert_eq!(findings.waits[0].what, "rank 0 to tick, which does 3 one-sided operations on window 5");
        assert_eq!(findings.culprits[0].rank, 0);
    }

    #[test]
    fn a_fabric_that_waits_for_its_target_is_named() {
        let of = |proc| PendingDump { rank: proc, proc, operations: 1 };
        let window = WindowDump { by_fabric: vec![of(0), of(1)], ..WindowDump::default() };
        let origin = Dump { rank: 1, activity: Activity::Waiting, windows: vec![window], ..Dump::default() };
        let ranks = [RankReport::Silent { ns: 7 }, RankReport::Dumped(vec![origin])];
        let findings = who_waits(&ranks);
        let [wait] = &findings.waits[..] else { panic!("the own memory waits for nobody: {findings:?}") };
        assert_eq!(wait.what, "the fabric, which does 1 one-sided operation on exposed memory as rank 0 ticks");
        assert_eq!((wait.on, findings.culprits[0].rank), (Some(0), 0));
    }

    #[test]
    fn who_has_not_begun_the_epoch_that_another_rank_waits_for_is_named() {
        let waits = |tag: u32, epochs: &[&str]| {
            let window = WindowDump { comm: 5, context: 9, ..WindowDump::default() };
            let (kind, stage) = (Kind::Receive, crate::dump::Stage::Posted);
            let (peer, context) = (Some(0), 9);
            let receive =
                OperationDump { kind, stage, peer, context, comm: 5, tag: Some(tag), ..OperationDump::default() };
            let waiting = Dump { rank: 1, windows: vec![window.clone()], operations: vec![receive], ..Dump::default() };
            let epochs = epochs.iter().map(|words| (*words).to_owned()).collect();
            let target = Dump { windows: vec![WindowDump { epochs, ..window }], ..Dump::default() };
            let findings = who_waits(&[target, waiting].map(|dump| RankReport::Dumped(vec![dump])));
            let [wait] = &findings.waits[..] else { panic!("{findings:?}") };
            (wait.what.clone(), wait.because.clone())
        };
        let post = "rank 0 to post an epoch (win_post) of window 5".to_owned();
        assert_eq!(waits(epoch::POSTED.0, &[]), (post.clone(), vec!["rank 0 has posted none".into()]));
        assert_eq!(waits(epoch::POSTED.0, &[WindowDump::EXPOSURE]), (post, vec![]));
        let complete = "rank 0 to complete its epoch (win_complete) of window 5".to_owned();
        assert_eq!(waits(epoch::COMPLETED.0, &[]), (complete.clone(), vec!["rank 0 has no epoch open".into()]));
        assert_eq!(waits(epoch::COMPLETED.0, &[WindowDump::ACCESS]), (complete, vec![]));
    }
}
