//! Closed links, over which the memory of other procs was reached.

use super::{Failure, Reach, Windows};
use tickwire_components::NIL;

impl Windows {
    /// Stops the use of a link that has closed, since another proc may get its number. Where the owner's engine can do all operations, it
    /// does them from now on. Operations that only the kernel can do become errors.
    pub(crate) fn forget_link(&mut self, endpoint: u8, closed: u32) {
        if closed == NIL {
            return;
        }
        let mut has_lost = false;
        for target in self.list.iter_mut().flatten().flat_map(|window| &mut window.targets) {
            match &mut target.reach {
                Reach::Kernel { endpoint: of, link, .. } | Reach::Listed { endpoint: of, link, .. } => {
                    if (*of, *link) == (endpoint, closed) {
                        *link = NIL;
                    }
                }
                Reach::Fabric { endpoint: of, channel, .. } if (*of, channel.link) == (endpoint, closed) => {
                    target.reach = Reach::Engine;
                    let [lost, puts] = target.end_by_fabric();
                    if lost > 0 {
                        target.failure = target.failure.or(Some(Failure::Fabric));
                        target.has_lost_put |= puts > 0;
                        has_lost = true;
                    }
                }
                Reach::Fabric { .. } | Reach::Memory(_) | Reach::Engine => {}
            }
        }
        if has_lost {
            self.fabric_reason = "its connection has ended".to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procs::windows::number_of_target;
    use crate::procs::windows::{Epochs, FabricKind, OwnMemory, Target, WindowRow};
    use std::collections::VecDeque;
    use tickwire_components::AtomicsDomain;
    use tickwire_transports::shared::SharedRun;
    use tickwire_transports::windows::{Memory, Part, control_bytes};
    use tickwire_transports::{Channel, FailedOperation, RemoteAccess, RemoteKey};

    const BYTES: usize = 64;
    const PUT: FabricKind = FabricKind::Put;
    const GET: FabricKind = FabricKind::Get;

    fn part() -> Part {
        let run = SharedRun::private(control_bytes(1)).unwrap();
        Part::new(run, Memory::Elsewhere(BYTES), 1, 0, false).unwrap()
    }

    fn by_fabric(link: u32) -> Reach {
        let key = RemoteKey { key: 7, base: 0, length: BYTES as u64, access: RemoteAccess::READ };
        Reach::Fabric { endpoint: 1, channel: Channel { link, context: 0 }, key }
    }

    /// A window whose targets are reached so.
    fn windows(reaches: impl IntoIterator<Item = Reach>) -> Windows {
        let targets = reaches.into_iter().map(|reach| Target::new(0, BYTES as u64, reach)).collect();
        let mut windows = Windows::default();
        windows.add(WindowRow {
            handle: 4,
            context: 4,
            rank: 0,
            targets,
            domain: AtomicsDomain::Engine,
            own: OwnMemory::Allocated,
            fabric_key: None,
            has_fabric: false,
            has_puts_in_flight: false,
            epochs: Epochs::default(),
            served: VecDeque::new(),
            is_retired: false,
        });
        windows
    }

    #[test]
    fn nothing_goes_over_a_link_that_has_closed() {
        let by_kernel = |endpoint, link| Reach::Kernel { part: part(), endpoint, link, address: 4096 };
        let listed = |endpoint, link| Reach::Listed { part: part(), endpoint, link };
        let mut windows = windows([by_kernel(1, 3), listed(1, 3), by_fabric(3), by_kernel(1, 4), listed(2, 3)]);
        let targets = |windows: &mut Windows| {
            let link = |reach: &Reach| match *reach {
                Reach::Kernel { link, .. } | Reach::Listed { link, .. } => Some(link),
                Reach::Fabric { channel, .. } => Some(channel.link),
                Reach::Memory(_) | Reach::Engine => None,
            };
            windows.get(4).unwrap().targets.iter().map(|target| link(&target.reach)).collect::<Vec<_>>()
        };
        windows.forget_link(1, NIL);
        assert_eq!(targets(&mut windows), [Some(3), Some(3), Some(3), Some(4), Some(3)]);
        windows.forget_link(1, 3);
        assert_eq!(targets(&mut windows), [Some(NIL), Some(NIL), None, Some(4), Some(3)]);
        let target = &windows.get(4).unwrap().targets[2];
        assert_eq!((target.failure, target.completed), (None, 0), "nothing was under way");
    }

    #[test]
    fn what_a_fabric_had_to_do_over_a_closed_link_has_failed_and_nobody_waits_for_it() {
        let mut windows = windows([by_fabric(3), by_fabric(4), by_fabric(3)]);
        for (target, kinds) in windows.get(4).unwrap().targets.iter_mut().zip([[PUT, GET], [PUT, PUT], [GET, GET]]) {
            (target.issued, target.completed) = (3, 3);
            (0..).zip(kinds).for_each(|(turn, kind)| target.taken_by_fabric(kind, turn));
        }
        windows.forget_link(1, 3);
        let targets = &windows.get(4).unwrap().targets;
        let ends = |target: &Target| (target.completed, target.by_fabric, target.failure, target.has_lost_put);
        assert_eq!(ends(&targets[0]), (5, 0, Some(Failure::Fabric), true));
        assert_eq!(ends(&targets[1]), (3, 2, None, false));
        assert_eq!(ends(&targets[2]), (5, 0, Some(Failure::Fabric), false), "no get writes there");
        assert_eq!(windows.fabric_reason, "its connection has ended");
    }

    #[test]
    fn a_failure_is_that_of_the_target_it_names_if_that_has_operations_under_way() {
        let mut windows = windows([(); 4].map(|()| by_fabric(3)));
        let targets = &mut windows.get(4).unwrap().targets;
        targets[1..].iter_mut().for_each(|target| target.taken_by_fabric(PUT, 1));
        let channel = Channel { link: 3, context: 0 };
        for (target, kind) in [(0, PUT), (1, PUT), (2, GET)] {
            let number = number_of_target(4, target, kind);
            windows.note_failure(FailedOperation { channel, number, reason: "stale".into() }, 0);
        }
        let told = |target: &Target| (target.failure, target.has_lost_put);
        let told = windows.get(4).unwrap().targets.iter().map(told).collect::<Vec<_>>();
        let failed = Some(Failure::Fabric);
        assert_eq!(told, [(None, false), (failed, true), (failed, false), (None, false)]);
    }
}
