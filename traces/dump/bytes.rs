//! Counts of rows and bytes: of queues and tables, of connections and transports, and of the systems that move bytes.

data! {
    /// Number of rows of a queue, and bytes of their messages.
    #[derive(Copy, Default)]
    pub struct QueueBytes {
        /// Number of rows.
        pub rows: u64,
        /// Bytes of their messages that have not been moved; for posted receives, the sizes of their buffers.
        pub bytes: u64,
    }

    /// Bytes that a connection has carried since it was opened. Frames count with their headers, as in a ring.
    #[derive(Copy, Default)]
    pub struct TrafficDump {
        /// Bytes of frames written.
        pub sent: u64,
        /// Bytes of frames read.
        pub received: u64,
        /// Bytes of messages read out of the peer's memory. The peer does not count them.
        pub read: u64,
        /// Whether a frame waits for room.
        pub full: bool,
        /// Size of the ring to the peer, bytes; 0 if there is none.
        pub ring_sent: u64,
        /// Size of the ring from the peer, bytes; 0 if there is none.
        pub ring_received: u64,
    }

    /// Bytes by queue, table and system.
    #[derive(Default)]
    pub struct Accounting {
        /// Queues: rows, and bytes of their messages.
        pub queues: Vec<(String, QueueBytes)>,
        /// Tables: rows, and bytes of memory that they take.
        pub tables: Vec<(String, QueueBytes)>,
        /// Transports: open connections, and what they have carried.
        pub transports: Vec<TransportBytes>,
        /// Systems, and Deliver, which does the work of four of them: how many times each has run, and the bytes of messages that it
        /// has moved. The bytes of Post include those that calls sent at once. Messages that Deliver reads out of memory of peers count
        /// for Transfer.
        pub systems: Vec<(String, SystemBytes)>,
    }

    /// Counts of a system.
    #[derive(Default, Copy)]
    pub struct SystemBytes {
        /// How many times it has run.
        pub runs: u64,
        /// Bytes of messages that it has moved, without headers.
        pub bytes: u64,
    }

    /// The open connections of a transport.
    #[derive(Default)]
    pub struct TransportBytes {
        /// The transport.
        pub name: String,
        /// Open connections.
        pub connections: u64,
        /// The sums over these connections.
        pub traffic: TrafficDump,
        /// Bytes of memory, in whole pages, that this rank has created and shares with peers. The sum over all ranks of a host is what
        /// the transport takes there.
        pub shared_bytes: u64,
    }
}

impl std::ops::AddAssign for TrafficDump {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.read += other.read;
        self.full |= other.full;
        self.ring_sent += other.ring_sent;
        self.ring_received += other.ring_received;
    }
}

impl QueueBytes {
    /// Counts one more row.
    pub fn add(&mut self, bytes: u64) {
        self.rows += 1;
        self.bytes += bytes;
    }
}
