//! A dump as text: a line for the engine, and one for each peer, operation and message.

use super::{
    Activity, Age, Connection, CreditDump, Dump, HiddenDump, Kind, MessageDump, Obstacle, OperationDump, PeerDump,
    Plane, Stage, routes,
};
use crate::words::{Bytes, Nanoseconds, count};
use std::fmt;

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dump { rank, size, job, pid, tick, active, .. } = self;
        let pending = count((*active).into(), "operation pending", "operations pending");
        writeln!(
            f,
            "rank {rank} of {size}, process {pid}, job {job}: {}, {pending}; tick {tick}, after {}",
            self.activity,
            Nanoseconds(self.now_ns)
        )?;
        if self.submissions > 0 {
            writeln!(f, "  {} of other threads wait", count(self.submissions, "submission", "submissions"))?;
        }
        for peer in &self.peers {
            writeln!(f, "  {peer}")?;
        }
        section(f, "operations, oldest first", &self.operations, self.operations_left_out, |operation| {
            self.operation(operation)
        })?;
        section(
            f,
            "messages that no receive has taken, oldest first",
            &self.unexpected,
            self.unexpected_left_out,
            |m| self.message(m),
        )?;
        section(f, "windows", &self.windows, 0, |window| window.in_words())?;
        section(f, "exposed memory", &self.regions, self.regions_left_out, ToString::to_string)?;
        match &self.hidden {
            None => Ok(()),
            Some(HiddenDump { transport, communicators }) => {
                let communicators = count(*communicators, "communicator", "communicators");
                writeln!(f, "  messages that {transport} holds cannot be seen: of {communicators} it has not given all")
            }
        }
    }
}

fn section<T>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    items: &[T],
    left_out: u64,
    line: impl Fn(&T) -> String,
) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(f, "  {title}:")?;
    for item in items {
        writeln!(f, "    {}", line(item))?;
    }
    if left_out > 0 {
        writeln!(f, "    and {left_out} more")?;
    }
    Ok(())
}

impl Dump {
    /// An operation as text.
    fn operation(&self, operation: &OperationDump) -> String {
        let OperationDump { kind, stage, comm, bytes, done, .. } = operation;
        let of = match stage {
            Stage::Posted | Stage::New => format!("up to {}", Bytes(*bytes)),
            _ if *done > 0 && done < bytes => format!("{} of {}", Bytes(*done), Bytes(*bytes)),
            _ => Bytes(*bytes).to_string(),
        };
        let mode = match operation {
            OperationDump { synchronous: true, .. } => "synchronous ",
            OperationDump { ready: true, .. } => "ready ",
            _ => "",
        };
        let (what, preposition) = match kind {
            Kind::Send => ("send", "to"),
            Kind::Receive => ("receive", "from"),
            Kind::Refusal => ("refusal", "to"),
        };
        let who = operation.rank.map_or("any rank".to_owned(), |rank| format!("rank {rank}"));
        let tag = match (operation.tag, &operation.collective) {
            (Some(tag), _) => format!(", tag {tag}"),
            // Operations over boards have no tag.
            (None, Some(_)) => String::new(),
            (None, None) => ", any tag".to_owned(),
        };
        let place = match &operation.collective {
            Some(collective) => format!(" of {} of {}", collective.name, self.comm_name(*comm)),
            None => in_comm(&self.comm_name(*comm), operation.plane),
        };
        let owner = match operation {
            OperationDump { awaited: true, .. } => ", awaited",
            OperationDump { submitted: true, .. } => ", of another thread",
            OperationDump { detached: true, .. } => ", detached",
            _ => "",
        };
        let obstacle = match operation.obstacle {
            Obstacle::None => "",
            Obstacle::Connection => ", waits for the connection",
            Obstacle::Credit => ", waits for credit of its receiver",
            Obstacle::Room => ", waits for room in the connection",
        };
        let age = age(operation.age);
        format!("{age:>32}  {mode}{what} of {of} {preposition} {who}{tag}{place}: {stage}{obstacle}{owner}")
    }

    /// A message as text.
    fn message(&self, message: &MessageDump) -> String {
        let MessageDump { comm, rank, tag, bytes, .. } = message;
        let place = in_comm(&self.comm_name(*comm), message.plane);
        let here = if message.offered { "offered" } else { "here" };
        format!("{:>32}  {} from rank {rank}, tag {tag}{place}: {here}", age(message.age), Bytes(*bytes))
    }
}

fn in_comm(name: &str, plane: Plane) -> String {
    match plane {
        Plane::User => format!(" in {name}"),
        Plane::Agreement => format!(" of an operation of all of {name}"),
        Plane::Group => format!(" of an operation of a group in {name}"),
        Plane::Collective => format!(" of a collective operation of {name}"),
    }
}

fn age(age: Option<Age>) -> String {
    match age {
        Some(Age { ticks, ns }) => format!("{} ({})", Nanoseconds(ns), count(ticks, "tick", "ticks")),
        None => "age unknown".to_owned(),
    }
}

impl fmt::Display for PeerDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}: {}", self.proc, self.state)?;
        if !self.transport.is_empty() {
            write!(f, " over {}", self.transport)?;
        }
        if let Some(reason) = &self.reason {
            write!(f, " ({reason})")?;
        }
        if let Some(traffic) = self.traffic {
            write!(f, ", {} sent, {} received", Bytes(traffic.sent), Bytes(traffic.received))?;
            if traffic.read > 0 {
                write!(f, ", {} read", Bytes(traffic.read))?;
            }
            if traffic.full {
                write!(f, ", no room for the next frame")?;
            }
            if traffic.ring_sent > 0 {
                write!(f, ", rings of {} to and {} from it", Bytes(traffic.ring_sent), Bytes(traffic.ring_received))?;
            }
        }
        let queues =
            [("sends", self.sends), ("in pieces", self.data), ("posted", self.posted), ("unexpected", self.unexpected)];
        for (name, queue) in queues.iter().filter(|(_, queue)| queue.rows > 0) {
            write!(f, "; {name} {} ({})", queue.rows, Bytes(queue.bytes))?;
        }
        if self.state != Connection::Failed {
            routes::write(&self.routes, &self.failed_routes, f)?;
        }
        self.credit.map_or(Ok(()), |credit| write!(f, "; {credit}"))
    }
}

impl fmt::Display for CreditDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CreditDump { bytes, offers, granted_bytes, granted_offers, window_bytes, window_offers } = *self;
        let [bytes, granted, window] = [bytes, granted_bytes, window_bytes].map(Bytes);
        let offers = count(offers, "offer", "offers");
        write!(
            f,
            "credit {bytes} and {offers}; granted {granted} of {window} and {granted_offers} of {window_offers} offers"
        )
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activity::Ticking => "ticking",
            Activity::Waiting => "waiting in a call",
            Activity::Closed => "closed",
        })
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Connection::Unconnected => "not connected",
            Connection::Connecting => "connecting",
            Connection::Connected => "connected",
            Connection::Failed => "failed",
        })
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::New => "new",
            Stage::Posted => "posted",
            Stage::Queued => "queued",
            Stage::Offered => "offered",
            Stage::Sending => "sending",
            Stage::Matched => "matched",
            Stage::Receiving => "receiving",
            Stage::Reading => "reading",
            Stage::Finished => "finished",
            Stage::Done => "done, not taken",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QueueBytes, TrafficDump};
    use super::*;

    /// A peer in which no field is empty.
    fn busy_peer() -> PeerDump {
        PeerDump {
            proc: 1,
            transport: "shm".into(),
            state: Connection::Connected,
            traffic: Some(TrafficDump {
                sent: 64,
                received: 128,
                full: true,
                ring_sent: 8192,
                ring_received: 1 << 18,
                ..Default::default()
            }),
            data: QueueBytes { rows: 1, bytes: 983_040 },
            credit: Some(CreditDump {
                bytes: 640,
                offers: 1,
                granted_bytes: 20_480,
                granted_offers: 7,
                window_bytes: 1 << 20,
                window_offers: 16,
            }),
            ..Default::default()
        }
    }

    /// A dump in which no field is empty.
    fn busy_dump() -> Dump {
        let age = Some(Age { ticks: 1, ns: 12_345_678_901 });
        let posted = OperationDump { rank: Some(0), tag: Some(7), bytes: 64, age, awaited: true, ..Default::default() };
        let send = OperationDump {
            kind: Kind::Send,
            stage: Stage::Sending,
            synchronous: true,
            comm: 5,
            rank: Some(1),
            bytes: 1 << 20,
            done: 65_536,
            plane: Plane::Agreement,
            ..Default::default()
        };
        let starved = OperationDump {
            kind: Kind::Send,
            stage: Stage::Queued,
            obstacle: Obstacle::Credit,
            rank: Some(1),
            tag: Some(5),
            bytes: 9,
            age,
            ..Default::default()
        };
        let message = MessageDump { rank: 0, tag: 8, bytes: 4, age, ..Default::default() };
        Dump {
            job: "job-1".into(),
            rank: 2,
            size: 4,
            pid: 77,
            tick: 9,
            now_ns: 5,
            activity: Activity::Waiting,
            active: 2,
            peers: vec![busy_peer()],
            operations: vec![posted, send, starved],
            operations_left_out: 3,
            unexpected: vec![message],
            hidden: Some(HiddenDump { transport: "ofi:net".into(), communicators: 2 }),
            ..Default::default()
        }
    }

    #[test]
    fn every_part_is_said_in_a_line_of_its_own() {
        let expected = "\
rank 2 of 4, process 77, job job-1: waiting in a call, 2 operations pending; tick 9, after 5 ns
  peer 1: connected over shm, 64 B sent, 128 B received, no room for the next frame, rings of 8192 B to and \
256.0 KiB from it; in pieces 1 (960.0 KiB); \
credit 640 B and 1 offer; granted 20.0 KiB of 1.0 MiB and 7 of 16 offers
  operations, oldest first:
                     12.3 s (1 tick)  receive of up to 64 B from rank 0, tag 7 in world: posted, awaited
                         age unknown  synchronous send of 64.0 KiB of 1.0 MiB to rank 1, any tag of an operation of all \
of communicator 5: sending
                     12.3 s (1 tick)  send of 9 B to rank 1, tag 5 in world: queued, waits for credit of its receiver
    and 3 more
  messages that no receive has taken, oldest first:
                     12.3 s (1 tick)  4 B from rank 0, tag 8 in world: here
  messages that ofi:net holds cannot be seen: of 2 communicators it has not given all
";
        assert_eq!(busy_dump().to_string(), expected);
    }
}
