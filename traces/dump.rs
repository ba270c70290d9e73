//! What is pending in an engine, as data: every operation and message that has not come to its end, whatever the
//! transport. `Engine::dump` makes it, [`std::fmt::Display`] says it in words, and serde as JSON.

/// Operations, and messages, that a dump has at most: the oldest. More are counted.
pub const SHOWN_MAX: usize = 1000;

/// Declares data that serde can write and read.
macro_rules! data {
    ($($(#[$meta:meta])* pub $kind:ident $name:ident $body:tt)*) => {$(
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[derive(serde::Serialize, serde::Deserialize)]
        $(#[$meta])*
        pub $kind $name $body
    )*};
}

mod bytes;
mod routes;
mod text;
mod windows;

pub use bytes::{Accounting, QueueBytes, SystemBytes, TrafficDump, TransportBytes};
pub use routes::{FailedRouteDump, RouteDump};
pub use windows::{HolderDump, LockDump, PendingDump, RegionDump, WindowDump};

data! {
    /// All that is pending in an engine.
    #[derive(Default)]
    pub struct Dump {
        /// The job.
        pub job: String,
        /// The own rank in the world.
        pub rank: u32,
        /// Ranks in the world.
        pub size: u32,
        /// The process.
        pub pid: u32,
        /// The number of the own host, if the launcher tells hosts.
        #[serde(default)]
        pub host: Option<u32>,
        /// Ranks on other hosts, as runs of (first rank, how many, host).
        #[serde(default)]
        pub elsewhere: Vec<(u32, u32, u32)>,
        /// Ticks so far, the looks of a wait included.
        pub tick: u64,
        /// The engine's clock, ns since it was built.
        pub now_ns: u64,
        /// What its owner does.
        pub activity: Activity,
        /// Operations that are not done.
        pub active: u32,
        /// Submissions of other threads that wait to be taken in.
        pub submissions: u64,
        /// Communicators, by context id: those below [`SHOWN_MAX`], and all that something pending belongs to.
        pub communicators: Vec<CommunicatorDump>,
        /// Procs that were contacted.
        pub peers: Vec<PeerDump>,
        /// Operations, oldest first.
        pub operations: Vec<OperationDump>,
        /// Messages that came before their receive, oldest first.
        pub unexpected: Vec<MessageDump>,
        /// Operations that are not in the list.
        pub operations_left_out: u64,
        /// Unexpected messages that are not in the list.
        pub unexpected_left_out: u64,
        /// Windows.
        #[serde(default)]
        pub windows: Vec<WindowDump>,
        /// What this engine exposes.
        #[serde(default)]
        pub regions: Vec<RegionDump>,
        /// Regions that are not in the list.
        #[serde(default)]
        pub regions_left_out: u64,
        /// Where messages may wait that cannot be seen; `None` if there are none.
        #[serde(default)]
        pub hidden: Option<HiddenDump>,
        /// Bytes by queue, table and system.
        pub accounting: Accounting,
    }

    /// Messages that cannot be seen, if there are any: a transport that matches by itself holds them.
    pub struct HiddenDump {
        /// The transport.
        pub transport: String,
        /// Communicators of which it has not given all.
        pub communicators: u64,
    }

    /// What the owner of an engine does.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Activity {
        /// It calls the engine now and then.
        #[default]
        Ticking,
        /// It is in a call that waits, and has found nothing to do for long.
        Waiting,
        /// The engine is finalized or poisoned.
        Closed,
    }

    /// How old something is: too old by at most what passes between two samples of the clock.
    #[derive(Copy, PartialOrd, Ord, Default)]
    pub struct Age {
        /// Ticks of its engine.
        pub ticks: u64,
        /// ns of its engine's clock.
        pub ns: u64,
    }

    /// A communicator.
    #[derive(Default)]
    pub struct CommunicatorDump {
        /// Its context id.
        pub id: u32,
        /// The context word of its messages: the same on all members, and in no other communicator's messages.
        pub context: u32,
        /// The own rank.
        pub rank: u32,
        /// How many procs it has.
        pub size: u32,
        /// Whether its user has freed it.
        pub closing: bool,
        /// The procs by rank; `None` if rank and proc are the same, or there are many.
        pub members: Option<Vec<u32>>,
        /// Collective operations that were called on it so far, without persistent ones.
        pub collectives: u32,
    }

    /// A contacted proc.
    #[derive(Default)]
    pub struct PeerDump {
        /// Its number.
        pub proc: u32,
        /// The transport.
        pub transport: String,
        /// Where its connection stands.
        pub state: Connection,
        /// Why the connection has failed.
        pub reason: Option<String>,
        /// Which transport each class of traffic goes over, or would.
        #[serde(default)]
        pub routes: Vec<RouteDump>,
        /// Transports that were tried, and could not connect.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub failed_routes: Vec<FailedRouteDump>,
        /// Envelopes and answers that wait for the connection, for credit or for room.
        pub sends: QueueBytes,
        /// Large messages whose pieces are leaving.
        pub data: QueueBytes,
        /// Receives posted for this source.
        pub posted: QueueBytes,
        /// Messages from it that no receive has taken.
        pub unexpected: QueueBytes,
        /// What the connection has carried, if its transport counts.
        pub traffic: Option<TrafficDump>,
        /// What may be sent over the connection before receives are posted, while it is open.
        pub credit: Option<CreditDump>,
    }

    /// Credit of a connection: bytes as messages cost them, and offers of messages that stay with their sender.
    #[derive(Copy, Default)]
    pub struct CreditDump {
        /// Bytes that may be sent.
        pub bytes: u64,
        /// Offers that may be sent.
        pub offers: u64,
        /// Bytes that the peer may send, or has on its way.
        pub granted_bytes: u64,
        /// Offers that the peer may send, or has on its way.
        pub granted_offers: u64,
        /// Bytes that the peer may have outstanding here: what it may send, what is kept of it, and what it is owed.
        pub window_bytes: u64,
        /// Offers that it is granted at most while no receive waits.
        pub window_offers: u64,
    }

    /// Where a connection stands.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Connection {
        /// Never used.
        #[default]
        Unconnected,
        /// The handshake is under way.
        Connecting,
        /// Frames may flow.
        Connected,
        /// It has ended.
        Failed,
    }

    /// Whose traffic something is.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Plane {
        /// The application's.
        #[default]
        User,
        /// The engine's own, in an operation of all members of a communicator.
        Agreement,
        /// The engine's own, in an operation of some of its members.
        Group,
        /// Of a collective operation.
        Collective,
    }

    /// What an operation is.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        /// A send.
        Send,
        /// A receive.
        #[default]
        Receive,
        /// A refusal of an offer in ready mode, on its way to the sender.
        Refusal,
    }

    /// What an envelope waits for in the peer's send queue.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Obstacle {
        /// For nothing: the next tick looks at it.
        #[default]
        None,
        /// For the connection.
        Connection,
        /// For credit of the peer, which has to receive what it keeps, or the first envelope of the queue has.
        Credit,
        /// For room in the connection.
        Room,
    }

    /// Where an operation stands.
    #[derive(Copy, PartialOrd, Ord, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Stage {
        /// A receive that has yet to look at the unexpected messages.
        New,
        /// A receive that no message has been paired with.
        #[default]
        Posted,
        /// In the peer's send queue. See [`Obstacle`].
        Queued,
        /// A send whose envelope has left; its receive is waited for.
        Offered,
        /// A send whose pieces are leaving.
        Sending,
        /// A receive that was paired with a message.
        Matched,
        /// A receive whose pieces are arriving.
        Receiving,
        /// A receive that reads its message out of the sender's memory.
        Reading,
        /// All bytes have been moved; its request is about to be completed.
        Finished,
        /// Its request is done, and nobody has taken it.
        Done,
    }

    /// An operation that is pending, or done and not taken.
    #[derive(Default)]
    pub struct OperationDump {
        /// Its row.
        pub row: u32,
        /// What it is.
        pub kind: Kind,
        /// Where it stands.
        pub stage: Stage,
        /// What it waits for if it is a send that is queued.
        pub obstacle: Obstacle,
        /// Whether it is a send in synchronous mode.
        pub synchronous: bool,
        /// Whether it is a send in ready mode.
        pub ready: bool,
        /// Whose it is.
        pub plane: Plane,
        /// Context id of the communicator.
        pub comm: u32,
        /// Context word of the communicator.
        pub context: u32,
        /// The peer's rank in the communicator; `None` for any source.
        pub rank: Option<u32>,
        /// The peer's rank in the world; `None` for any source.
        pub peer: Option<u32>,
        /// The tag; `None` for any.
        pub tag: Option<u32>,
        /// Bytes of the message; of a receive that is not paired, what it can take.
        pub bytes: u64,
        /// Bytes of it that have been moved.
        pub done: u64,
        /// Since it was posted, if that is known.
        pub age: Option<Age>,
        /// Whether a call waits for it.
        pub awaited: bool,
        /// Whether another thread waits for it.
        pub submitted: bool,
        /// Whether nobody waits for it: its token was dropped.
        pub detached: bool,
        /// The collective operation that it is a message of.
        pub collective: Option<CollectiveDump>,
    }

    /// A collective operation.
    #[derive(Default)]
    pub struct CollectiveDump {
        /// Its name.
        pub name: String,
        /// How many its communicator had before it; `None` of a persistent one.
        pub number: Option<u32>,
    }

    /// A message that came before its receive.
    #[derive(Default)]
    pub struct MessageDump {
        /// Whose it is.
        pub plane: Plane,
        /// Context id of the communicator.
        pub comm: u32,
        /// Context word of the communicator.
        pub context: u32,
        /// The sender's rank in the communicator.
        pub rank: u32,
        /// The sender's rank in the world.
        pub peer: Option<u32>,
        /// The tag.
        pub tag: u32,
        /// Bytes of the message.
        pub bytes: u64,
        /// Whether only its envelope is here: the data is still the sender's.
        pub offered: bool,
        /// Since it came, if that is known.
        pub age: Option<Age>,
    }
}

impl OperationDump {
    /// Whether it waits for something.
    pub fn is_pending(&self) -> bool {
        !matches!(self.stage, Stage::Done | Stage::Finished)
    }

    /// Whether it would take a message, if it is a receive that has none.
    pub fn takes(&self, context: u32, plane: Plane, peer: u32, tag: u32) -> bool {
        self.kind == Kind::Receive
            && matches!(self.stage, Stage::Posted | Stage::New)
            && (self.context, self.plane) == (context, plane)
            && self.peer.is_none_or(|own| own == peer)
            && self.tag.is_none_or(|own| own == tag)
    }
}

impl Dump {
    /// What a communicator is called.
    pub fn comm_name(&self, id: u32) -> String {
        match id {
            0 => "world".to_owned(),
            1 => "self".to_owned(),
            _ => format!("communicator {id}"),
        }
    }
}
