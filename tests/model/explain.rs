//! Decides whether some order of arrival explains what a proc has seen in a communicator.
//!
//! The events are the proc's calls, in their order, and the arrivals of messages. Messages of one sender arrive in
//! the order of sending. What the proc saw restricts the order further. For a receive `r` that got message `m`:
//!
//! - `m` arrived before any call that found `r` done or came too late to cancel `r`;
//! - an older receive `q` that could take `m` was no longer waiting when `m` and `r` met. If `q` got `n`, then `n`
//!   arrived before `m`: had `m` come first, `q` would have got `m`. If `q` was cancelled, then `m` arrived after the
//!   cancellation. If `q` still waits, the order of receives was not kept;
//! - consider a probe before `r` that could see `m`. If it saw nothing, it came before `m` arrived. If it saw `n`, it
//!   came after `n` arrived, and `n` arrived before `m`. A matched probe is a receive, too.
//!
//! If these demands contradict each other, no order explains the run: a message or a receive has overtaken another. If
//! they do not, any order that obeys them explains the run, by induction over the events. A proof may have errors. So
//! such an order is made and replayed on the reference model, which must answer all calls as the engine did. Whatever
//! passes is therefore explained by the model itself.
//!
//! Messages of one sender with the same tag and length cannot be told apart. No demand depends on telling them apart:
//! each receive takes all of them or none. So the first one to be received is the first one that was sent.

use super::player::{Call, Seen};
use super::program::Sent;
use super::{Key, Matching};
use std::collections::HashMap;

/// A receive, or a matched probe that found something: its entry in the log, its key, the message that it got, and the
/// entry that cancelled it.
struct Taker {
    call: usize,
    key: Key,
    message: Option<usize>,
    cancelled: Option<usize>,
}

/// Checks whether some order of arrival explains the log of a proc in a communicator. `messages` are all messages that
/// were sent to it there, in order for each sender.
///
/// # Errors
/// If there is no such order. The text says which message or call contradicts.
pub fn explain(log: &[Call], messages: &[Sent]) -> Result<(), String> {
    let (takers, taken_by) = assign(log, messages)?;
    let mut order = Order::new(log.len(), messages);
    for (place, taker) in takers.iter().enumerate() {
        let Some(message) = taker.message else { continue };
        for older in takers[..place].iter().filter(|older| older.key.takes(messages[message].envelope)) {
            match (older.message, older.cancelled) {
                (Some(other), _) => order.arrives_before(other, message),
                (None, Some(cancel)) => order.after_call(cancel, message),
                (None, None) => return Err(format!("receive {} was passed over by {}", older.call, taker.call)),
            }
        }
    }
    // By message: the call that took it.
    let left: Vec<usize> = taken_by.iter().map(|&taker| takers[taker].call).collect();
    for (call, entry) in log.iter().enumerate() {
        match *entry {
            Call::Cancel(post, false) | Call::Done(post) => {
                if let Some(message) = left.iter().position(|&taken| taken == post) {
                    order.before_call(message, call);
                }
            }
            Call::Probe(key, found) | Call::Claim(key, found) => {
                let waiting = |message: &usize| left[*message] >= call && key.takes(messages[*message].envelope);
                let first = found.map(|seen| (0..messages.len()).find(|m| waiting(m) && is(&messages[*m], seen)));
                let first = match first {
                    Some(None) => return Err(format!("call {call}: {entry:?} was received before")),
                    first => first.flatten(),
                };
                if let Some(first) = first {
                    order.before_call(first, call);
                }
                for message in (0..messages.len()).filter(waiting).filter(|&message| Some(message) != first) {
                    match first {
                        Some(first) => order.arrives_before(first, message),
                        None => order.after_call(call, message),
                    }
                }
            }
            _ => {}
        }
    }
    replay(log, messages, &takers, &order.sort()?)
}

fn is(message: &Sent, seen: Seen) -> bool {
    (message.envelope, message.length) == (seen.envelope, seen.length)
}

/// Assigns the messages to receives: the list of receives with the message of each, and for each message its receive.
fn assign(log: &[Call], messages: &[Sent]) -> Result<(Vec<Taker>, Vec<usize>), String> {
    let mut takers: Vec<Taker> = Vec::new();
    let mut taken_by = vec![None; messages.len()];
    for (call, entry) in log.iter().enumerate() {
        let (Call::Post(key, got) | Call::Claim(key, got)) = *entry else { continue };
        if got.is_none() && matches!(entry, Call::Claim(..)) {
            continue;
        }
        let found = got.map(|seen| {
            let fits = |message: &usize| taken_by[*message].is_none() && is(&messages[*message], seen);
            (0..messages.len()).find(fits).ok_or(format!("call {call}: {entry:?} was not sent, or received before"))
        });
        let message = found.transpose()?;
        if let Some(message) = message {
            taken_by[message] = Some(takers.len());
        }
        let cancelled = log.iter().position(|other| *other == Call::Cancel(call, true));
        takers.push(Taker { call, key, message, cancelled });
    }
    match taken_by.iter().position(Option::is_none) {
        Some(lost) => Err(format!("{:?} was never received", messages[lost])),
        None => Ok((takers, taken_by.into_iter().flatten().collect())),
    }
}

/// A partial order of events: calls by their number, then messages.
struct Order {
    calls: usize,
    next: Vec<Vec<usize>>,
}

impl Order {
    fn new(calls: usize, messages: &[Sent]) -> Self {
        let mut order = Order { calls, next: vec![Vec::new(); calls + messages.len()] };
        (1..calls).for_each(|call| order.next[call - 1].push(call));
        let mut last = HashMap::new();
        for (message, sent) in messages.iter().enumerate() {
            if let Some(before) = last.insert(sent.from, message) {
                order.arrives_before(before, message);
            }
        }
        order
    }

    fn arrives_before(&mut self, first: usize, second: usize) {
        self.next[self.calls + first].push(self.calls + second);
    }

    fn before_call(&mut self, message: usize, call: usize) {
        self.next[self.calls + message].push(call);
    }

    fn after_call(&mut self, call: usize, message: usize) {
        self.next[call].push(self.calls + message);
    }

    /// All events in an order that obeys the demands.
    fn sort(&self) -> Result<Vec<usize>, String> {
        let mut before = vec![0; self.next.len()];
        self.next.iter().flatten().for_each(|&event| before[event] += 1);
        let mut ready: Vec<usize> = (0..before.len()).filter(|&event| before[event] == 0).collect();
        let mut sorted = Vec::with_capacity(before.len());
        while let Some(event) = ready.pop() {
            sorted.push(event);
            for &next in &self.next[event] {
                before[next] -= 1;
                if before[next] == 0 {
                    ready.push(next);
                }
            }
        }
        let stuck = (0..before.len()).find(|&event| before[event] > 0);
        match stuck.map(|event| event.checked_sub(self.calls).ok_or(event)) {
            None => Ok(sorted),
            Some(Ok(message)) => Err(format!("no order of arrival explains message {message}")),
            Some(Err(call)) => Err(format!("no order of arrival explains call {call}")),
        }
    }
}

/// Replays the events in this order on the model. The model must give the engine's answers.
fn replay(log: &[Call], messages: &[Sent], takers: &[Taker], order: &[usize]) -> Result<(), String> {
    let got: HashMap<usize, usize> = takers.iter().filter_map(|t| Some((t.call, t.message?))).collect();
    let (mut model, mut matched) = (Matching::default(), HashMap::new());
    for &event in order {
        let Some(entry) = log.get(event) else {
            let message = event - log.len();
            if let Some(post) = model.arrive(message, messages[message].envelope) {
                matched.insert(post, message);
            }
            continue;
        };
        let sees = |found: Option<usize>, seen: Option<Seen>| match (found, seen) {
            (Some(message), Some(seen)) => is(&messages[message], seen),
            (found, seen) => found.is_none() && seen.is_none(),
        };
        let good = match *entry {
            Call::Post(key, _) => {
                matched.extend(model.post(event, key).map(|message| (event, message)));
                true
            }
            Call::Cancel(post, cancelled) => model.cancel(post) == cancelled,
            Call::Probe(key, seen) => sees(model.probe(key), seen),
            Call::Claim(key, seen) => {
                let found = model.claim(key);
                matched.extend(found.map(|message| (event, message)));
                sees(found, seen)
            }
            Call::Done(post) => matched.contains_key(&post),
            Call::Withdrawn => true,
        };
        if !good {
            return Err(format!("call {event}: the model does not answer as {entry:?}"));
        }
    }
    match matched == got {
        true => Ok(()),
        false => Err("the model gives messages to other receives".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Envelope;

    const ANY: Key = Key { source: None, tag: None };
    const FIVE: Key = Key { source: Some(1), tag: Some(5) };

    fn sent(source: u32, tag: u32, length: usize) -> Sent {
        Sent { from: (source, 0), to: 0, comm: 0, envelope: Envelope { source, tag }, rank: 0, length }
    }

    fn seen(source: u32, tag: u32, length: usize) -> Option<Seen> {
        Some(Seen { envelope: Envelope { source, tag }, length })
    }

    #[test]
    fn what_some_order_explains_is_accepted_and_what_none_does_is_not() {
        let messages = [sent(1, 5, 10), sent(1, 5, 11), sent(2, 5, 12)];
        let [first, second, other] = [seen(1, 5, 10), seen(1, 5, 11), seen(2, 5, 12)];
        let post = |key, got| Call::Post(key, got);
        let cases = [
            (vec![post(ANY, first), post(FIVE, second), post(ANY, other)], true),
            (vec![post(ANY, other), post(FIVE, first), post(ANY, second)], true),
            (vec![post(ANY, second), post(FIVE, first), post(ANY, other)], false),
            (vec![post(FIVE, second), post(ANY, first), post(ANY, other)], false),
            (vec![post(FIVE, first), post(ANY, other), post(ANY, first)], false),
            (vec![post(FIVE, first), post(ANY, other)], false),
            (vec![post(FIVE, None), post(ANY, first), post(ANY, second), post(ANY, other)], false),
            (
                vec![post(FIVE, None), Call::Cancel(0, true), post(ANY, first), post(ANY, second), post(ANY, other)],
                true,
            ),
            // While the first message waits, a probe cannot see the second one.
            (vec![Call::Probe(FIVE, first), post(ANY, first), post(ANY, other), post(ANY, second)], true),
            (vec![Call::Probe(FIVE, second), post(ANY, first), post(ANY, second), post(ANY, other)], false),
            (vec![Call::Probe(ANY, first), Call::Probe(FIVE, None), post(ANY, first), post(ANY, second)], false),
            (vec![Call::Claim(FIVE, first), post(ANY, other), Call::Probe(FIVE, None), post(ANY, second)], true),
            // The probe shows that the other message came first, so a receive from any source must get it first.
            (vec![Call::Probe(ANY, other), post(ANY, first), post(ANY, second), post(ANY, other)], false),
            (vec![post(ANY, first), Call::Done(0), Call::Probe(ANY, None), post(ANY, other), post(ANY, second)], true),
        ];
        for (number, (log, good)) in cases.iter().enumerate() {
            let outcome = explain(log, &messages);
            assert_eq!(outcome.is_ok(), *good, "case {number}: {outcome:?}");
        }
    }
}
