//! Conservation of credit in a cluster. For each ordered pair of procs, the sum of these is what the receiver allows: the credit that the
//! sender still has, the credit in flight, the credit of messages that the receiver keeps, and the credit that it owes. Likewise, the
//! receiver expects each offer that the sender may make.

use super::inspect::{rows, walk};
use crate::Engine;
use std::collections::BTreeMap;
use tickwire_components::credit::{Credit, cost};
use tickwire_components::wire::Kind;
use tickwire_components::{ArrivalState, CarKind, CarState, Control, NIL, VcState, Way};
use tickwire_systems::steps::credit::collect;
use tickwire_transports::sim::{Corruption, SimNet};

/// One engine's account of its credit with a proc.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Credit that the engine may still spend.
    pub may_send: Credit,
    /// Credit paid for envelopes that have not left.
    pub promised: Credit,
    /// Credit in grants that have not left.
    pub granting: Credit,
    /// Credit paid for messages and offers that have arrived, but that Match has not seen.
    pub arriving: Credit,
    /// Credit in grants that have arrived, but that Match has not seen.
    pub bringing: Credit,
    /// Credit paid for messages that the engine keeps, lines.
    pub kept: u32,
    /// Credit that the engine owes, lines.
    pub owed: u32,
    /// Offers that the proc may still make.
    pub expected: u32,
}

fn add(to: &mut Credit, lines: u32, envelopes: u32) {
    to.lines += lines;
    to.envelopes += envelopes;
}

/// The accounts of an engine, by proc. Only for connected VCs.
///
/// # Errors
/// What is wrong with a list, as text.
pub fn accounts(engine: &mut Engine) -> Result<BTreeMap<u32, Account>, String> {
    let all = rows(engine);
    let progress = &*all.progress;
    let mut of_vc: Vec<Account> = vec![Account::default(); all.vcs.len()];
    for (account, vc) in of_vc.iter_mut().zip(all.vcs.iter()) {
        account.may_send = Credit { lines: vc.lines, envelopes: vc.envelopes.into() };
        (account.owed, account.expected) = (vc.lines_owed, vc.envelopes_left.into());
    }
    for (car, large) in all.cars.iter().zip(all.large.iter()).filter(|(car, _)| car.state == CarState::Queued) {
        let account = &mut of_vc[car.vc as usize];
        match (car.kind, large.way) {
            (CarKind::Send, Way::Eager) => add(&mut account.promised, cost(large.length), 0),
            // The first part pays for all parts.
            (CarKind::Send, Way::Parts) if car.done == 0 => add(&mut account.promised, cost(large.length), 0),
            (CarKind::Send, Way::Offered) => add(&mut account.promised, 0, 1),
            _ => {}
        }
    }
    for frame in &progress.control.frames {
        if let Control::Credit(credit) = frame.what {
            add(&mut of_vc[frame.vc as usize].granting, credit.lines, credit.envelopes);
        }
    }
    let unseen = all.arrivals[..progress.arrivals as usize].iter().filter(|a| a.state == ArrivalState::New);
    for arrival in unseen {
        let Some(account) = of_vc.get_mut(arrival.vc as usize) else { continue };
        let credit = arrival.header.credit();
        add(&mut account.bringing, credit.lines, credit.envelopes);
        match arrival.header.kind() {
            Some(Kind::Eager | Kind::Head) => add(&mut account.arriving, cost(arrival.header.length), 0),
            Some(Kind::Rts) => add(&mut account.arriving, 0, 1),
            _ => {}
        }
    }
    for entry in super::inspect::waiting_messages(&progress.unexpected)?.iter().filter(|entry| entry.message() == NIL) {
        of_vc[entry.vc as usize].kept += cost(entry.length);
    }
    let ended: Vec<_> = progress.ended.iter().map(|(row, _)| *row).collect();
    let copies = progress.copies.head;
    for row in walk(all.cars, copies, "copies")? {
        let car = &all.cars[row as usize];
        // While the rest of a message is still to arrive, `done` counts only what has arrived.
        let length = if car.state == CarState::Receiving { all.large[row as usize].length } else { car.done };
        of_vc[car.vc as usize].kept += cost(length);
    }
    let open = |row: u32, state| state == VcState::Connected && !ended.contains(&row);
    let vcs = (0..).zip(all.vcs.iter()).filter(|(row, vc)| open(*row, vc.state));
    Ok(vcs.map(|(row, vc)| (vc.proc, of_vc[row as usize])).collect())
}

/// Checks that credit is conserved between engines. They are on a simulated network, or else at rest over transports with windows.
///
/// # Errors
/// The pair for which credit is not conserved, and everything that was counted.
pub fn check_credit(engines: &mut [Engine], net: Option<&SimNet>) -> Result<(), String> {
    let mut windows = BTreeMap::new();
    let mut all = BTreeMap::new();
    for engine in &mut *engines {
        if net.is_none() && !take_over(engine) {
            return Ok(());
        }
        windows.insert(engine.rank().0, rows(engine).progress.window);
        all.insert(engine.rank().0, accounts(engine)?);
    }
    for (&from, accounts) in &all {
        for (&to, sender) in accounts {
            let Some(receiver) = all.get(&to).and_then(|accounts| accounts.get(&from)) else { continue };
            if net.is_some_and(|net| is_changed(net, from, to)) {
                continue;
            }
            let flight = |from, to| net.map(|net| net.flight(from, to)).unwrap_or_default();
            let (there, back) = (flight(from, to), flight(to, from));
            let credit = [sender.may_send, sender.promised, there.spent, receiver.arriving];
            let credit = [&credit[..], &[receiver.granting, back.granted, sender.bringing]].concat();
            let lines: u32 = credit.iter().map(|credit| credit.lines).sum();
            let envelopes: u32 = credit.iter().map(|credit| credit.envelopes).sum();
            let found = (lines + receiver.kept + receiver.owed, envelopes);
            let window = windows.get(&to).map_or(0, |window| window.lines);
            if found != (window, receiver.expected) {
                let expected = (window, receiver.expected);
                return Err(format!(
                    "credit of proc {from} at proc {to}, (lines, envelopes): {found:?} and not {expected:?}\n\
                     sender {sender:?}\nreceiver {receiver:?}\nthere {there:?}\nback {back:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Whether the network has corrupted something that the accounts of a pair count.
fn is_changed(net: &SimNet, from: u32, to: u32) -> bool {
    net.config().corruption != Corruption::Payload && net.corrupted(from, to) + net.corrupted(to, from) > 0
}

/// Collects credit that peers have written into this engine's memory. Returns `false` if not all of its credit comes that way, or if
/// something has arrived that was not read.
fn take_over(engine: &mut Engine) -> bool {
    let all = rows(engine);
    if all.endpoints.iter_mut().any(|endpoint| !endpoint.windows || endpoint.transport.get().ready()) {
        return false;
    }
    for vc in all.vcs.iter_mut().filter(|vc| vc.state == VcState::Connected) {
        collect(vc, &mut all.endpoints[vc.endpoint as usize]);
    }
    true
}
