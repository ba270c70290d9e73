//! Rows and bytes: of queues and tables, of connections and transports, and of the systems that move them.

data! {
    /// Rows of a queue and the bytes that they are about.
    #[derive(Copy, Default)]
    pub struct QueueBytes {
        /// Rows.
        pub rows: u64,
        /// Bytes of their messages that have not been moved; of a posted receive, what it can take.
        pub bytes: u64,
    }

    /// What a connection has carried since it was opened, bytes; frames with their headers, as a ring holds them.
    #[derive(Copy, Default)]
    pub struct TrafficDump {
        /// Frames written.
        pub sent: u64,
        /// Frames read.
        pub received: u64,
        /// Messages read out of the peer's memory. The peer counts nothing for these.
        pub read: u64,
        /// Whether a frame waits for room.
        pub full: bool,
        /// What the ring to the peer holds; 0 where there is none.
        pub ring_sent: u64,
        /// What the ring from the peer holds.
        pub ring_received: u64,
    }

    /// Bytes by queue, table and system.
    #[derive(Default)]
    pub struct Accounting {
        /// Queues: rows and the bytes that they are about.
        pub queues: Vec<(String, QueueBytes)>,
        /// Tables: rows and the bytes of memory that they take.
        pub tables: Vec<(String, QueueBytes)>,
        /// Transports: open connections, and what they have carried.
        pub transports: Vec<TransportBytes>,
        /// Systems, and Deliver, which does the work of four of them: how often each has run, and the bytes of messages that it
        /// has moved. Those of Post include what calls have sent at once; Deliver's reads are Transfer's.
        pub systems: Vec<(String, SystemBytes)>,
    }

    /// What a system has done.
    #[derive(Default, Copy)]
    pub struct SystemBytes {
        /// How often it has run.
        pub runs: u64,
        /// Bytes of messages that it has moved, without headers.
        pub bytes: u64,
    }

    /// What the open connections of a transport have carried.
    #[derive(Default)]
    pub struct TransportBytes {
        /// The transport.
        pub name: String,
        /// Open connections.
        pub connections: u64,
        /// The sum of what they have carried, and of their rings.
        pub traffic: TrafficDump,
        /// Bytes of memory, in whole pages, that this rank has made and shares with peers: the sum of all ranks of a host is what the
        /// transport takes there.
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
