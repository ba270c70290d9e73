//! The pending work of an engine, as data: every operation and message that has not completed, over any transport. `Engine::dump` makes
//! a dump, [`std::fmt::Display`] prints it as text, and serde writes it as JSON.

/// Operations, and likewise messages, that a dump lists at most: the oldest ones. The others are only counted.
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

use crate::words::clean_json;

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
        /// This process's rank in the world.
        pub rank: u32,
        /// Ranks in the world.
        pub size: u32,
        /// The process id.
        pub pid: u32,
        /// The number of this host, if the launcher tells hosts.
        #[serde(default)]
        pub host: Option<u32>,
        /// Ranks on other hosts, as runs of (first rank, how many, host).
        #[serde(default)]
        pub elsewhere: Vec<(u32, u32, u32)>,
        /// Ticks so far, including the polls of a wait.
        pub tick: u64,
        /// The engine's clock, ns since it was built.
        pub now_ns: u64,
        /// What the application does with the engine.
        pub activity: Activity,
        /// Operations that are not done.
        pub active: u32,
        /// Submissions of other threads that the engine has not taken yet.
        pub submissions: u64,
        /// Communicators, by context id: those below [`SHOWN_MAX`], and those of operations and messages that are listed.
        pub communicators: Vec<CommunicatorDump>,
        /// Procs that were contacted.
        pub peers: Vec<PeerDump>,
        /// Operations, oldest first.
        pub operations: Vec<OperationDump>,
        /// Unexpected messages, oldest first.
        pub unexpected: Vec<MessageDump>,
        /// Operations that are not in the list.
        pub operations_left_out: u64,
        /// Unexpected messages that are not in the list.
        pub unexpected_left_out: u64,
        /// Windows.
        #[serde(default)]
        pub windows: Vec<WindowDump>,
        /// Memory regions that this engine exposes.
        #[serde(default)]
        pub regions: Vec<RegionDump>,
        /// Regions that are not in the list.
        #[serde(default)]
        pub regions_left_out: u64,
        /// A transport that may hold messages which the dump cannot see; `None` if there is none.
        #[serde(default)]
        pub hidden: Option<HiddenDump>,
        /// Bytes by queue, table and system.
        pub accounting: Accounting,
    }

    /// A transport with its own matching. It may hold unexpected messages that the dump cannot see.
    pub struct HiddenDump {
        /// The transport.
        pub transport: String,
        /// Communicators of which it may hold further messages.
        pub communicators: u64,
    }

    /// What the application does with its engine.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Activity {
        /// It calls the engine from time to time.
        #[default]
        Ticking,
        /// It is in a call that waits, and has had nothing to do for a long time.
        Waiting,
        /// The engine is finalized or poisoned.
        Closed,
    }

    /// An age. It may be too large by the time between two readings of the engine's clock.
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
        /// The context word of its messages: the same on all members, and different from that of every other communicator.
        pub context: u32,
        /// The own rank.
        pub rank: u32,
        /// Number of members.
        pub size: u32,
        /// Whether the application has freed it.
        pub closing: bool,
        /// The procs by rank; `None` if rank and proc are the same, or there are many.
        pub members: Option<Vec<u32>>,
        /// Collective operations that were called on it so far, without persistent ones.
        pub collectives: u32,
        /// Persistent collective operations that were made on it so far.
        #[serde(default)]
        pub persistent_made: u32,
        /// Persistent collective operations on it that have not been freed. There may be more if they are [`SHOWN_MAX`].
        #[serde(default)]
        pub persistent: Vec<StartDump>,
    }

    /// How often a persistent collective operation was started.
    #[derive(Copy, Default)]
    pub struct StartDump {
        /// Its number among the persistent collective operations of the communicator, from 0.
        pub made: u32,
        /// How often it was started so far.
        pub starts: u32,
    }

    /// A contacted proc.
    #[derive(Default)]
    pub struct PeerDump {
        /// Its number.
        pub proc: u32,
        /// The transport.
        pub transport: String,
        /// The state of its connection.
        pub state: Connection,
        /// Why the connection has failed.
        pub reason: Option<String>,
        /// The transport that each class of traffic uses, or would use.
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
        /// Unexpected messages from it.
        pub unexpected: QueueBytes,
        /// What the connection has carried, if its transport counts.
        pub traffic: Option<TrafficDump>,
        /// The credit of the connection, while it is open.
        pub credit: Option<CreditDump>,
    }

    /// Credit of a connection: in bytes that messages cost, and in offers of messages whose data stays with the sender.
    #[derive(Copy, Default)]
    pub struct CreditDump {
        /// Bytes that this side may send.
        pub bytes: u64,
        /// Offers that this side may send.
        pub offers: u64,
        /// Bytes that the peer may send, including those that are on their way.
        pub granted_bytes: u64,
        /// Offers that the peer may send, including those that are on their way.
        pub granted_offers: u64,
        /// The peer's whole credit here, bytes: what it may send, what is kept of its messages, and what is to be granted again.
        pub window_bytes: u64,
        /// Offers that are granted to the peer at most while no receive waits.
        pub window_offers: u64,
    }

    /// The state of a connection.
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

    /// The plane of an operation or message: whose traffic it is.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Plane {
        /// The application's.
        #[default]
        User,
        /// The engine's own, in an agreement of all members of a communicator.
        Agreement,
        /// The engine's own, in an agreement of a group of its members.
        Group,
        /// Of a collective operation.
        Collective,
    }

    /// The kind of an operation.
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

    /// What an envelope in a send queue waits for.
    #[derive(Copy, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Obstacle {
        /// Nothing: the next tick tries to send it.
        #[default]
        None,
        /// The connection.
        Connection,
        /// Credit: the peer has to receive messages that it keeps. Either this envelope needs the credit, or the first one of the queue
        /// does.
        Credit,
        /// Room in the connection.
        Room,
    }

    /// The stage of an operation.
    #[derive(Copy, PartialOrd, Ord, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum Stage {
        /// A new receive, which has yet to be compared with the unexpected messages.
        New,
        /// A receive that is posted and not matched.
        #[default]
        Posted,
        /// In the peer's send queue. See [`Obstacle`].
        Queued,
        /// A send whose envelope has left. It waits for its receive.
        Offered,
        /// A send whose pieces are leaving.
        Sending,
        /// A receive that is matched with a message.
        Matched,
        /// A receive whose pieces are arriving.
        Receiving,
        /// A receive that reads its message out of the sender's memory.
        Reading,
        /// All bytes have been moved. Its request is about to be completed.
        Finished,
        /// Its request is done, and the application has not taken it yet.
        Done,
    }

    /// An operation that is pending, or that is done and not taken yet.
    #[derive(Default)]
    pub struct OperationDump {
        /// Its row.
        pub row: u32,
        /// What it is.
        pub kind: Kind,
        /// Where it stands.
        pub stage: Stage,
        /// What a queued send waits for.
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
        /// Bytes of the message; for a receive that is not matched, the size of its buffer.
        pub bytes: u64,
        /// Bytes of the message that have been moved.
        pub done: u64,
        /// Time since it was posted, if that is known.
        pub age: Option<Age>,
        /// Whether a call waits for it.
        pub awaited: bool,
        /// Whether another thread waits for it.
        pub submitted: bool,
        /// Whether its handle was dropped, so that nobody waits for it.
        pub detached: bool,
        /// The collective operation that its message belongs to.
        pub collective: Option<CollectiveDump>,
    }

    /// A collective operation.
    #[derive(Default)]
    pub struct CollectiveDump {
        /// Its name.
        pub name: String,
        /// Its number among the collective operations of the communicator, from 0; `None` for a persistent one.
        pub number: Option<u32>,
        /// Of a persistent operation: its number among those of the communicator, and how many times it was started.
        #[serde(default)]
        pub start: Option<StartDump>,
    }

    /// An unexpected message.
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
        /// Whether only its envelope is here. The sender still has the data.
        pub offered: bool,
        /// Time since it arrived, if that is known.
        pub age: Option<Age>,
    }
}

impl OperationDump {
    /// Whether it is still pending.
    pub fn is_pending(&self) -> bool {
        !matches!(self.stage, Stage::Done | Stage::Finished)
    }

    /// Whether it is an unmatched receive that would match a message.
    pub fn takes(&self, context: u32, plane: Plane, peer: u32, tag: u32) -> bool {
        self.kind == Kind::Receive
            && matches!(self.stage, Stage::Posted | Stage::New)
            && (self.context, self.plane) == (context, plane)
            && self.peer.is_none_or(|own| own == peer)
            && self.tag.is_none_or(|own| own == tag)
    }
}

impl Dump {
    /// Decodes a dump that was written as JSON. It replaces control characters in text by spaces.
    ///
    /// # Errors
    /// The bytes are no dump.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
        serde_json::from_str(&clean_json(text)).map_err(|error| error.to_string())
    }

    /// The name of a communicator.
    pub fn comm_name(&self, id: u32) -> String {
        match id {
            0 => "world".to_owned(),
            1 => "self".to_owned(),
            _ if self.windows.iter().any(|window| window.comm == id) => format!("window {id}"),
            _ => format!("communicator {id}"),
        }
    }
}
