//! Configuration choices: how messages are divided into frames, and how matching finds its entries.

/// How messages are divided into frames: the same for both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Largest eager payload, bytes.
    pub eager_max: usize,
    /// Payload of one frame of such a message, bytes.
    pub part_bytes: usize,
    /// Payload of a piece of a longer message, bytes.
    pub piece_bytes: usize,
}

impl Lengths {
    /// Payload of a frame at most, bytes.
    pub const fn frame_max(&self) -> usize {
        let part = if self.eager_max < self.part_bytes { self.eager_max } else { self.part_bytes };
        if part > self.piece_bytes { part } else { self.piece_bytes }
    }
}

/// How posted receives and unexpected messages are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Matching {
    /// Ordered lists while they are short. Once a look-up or a cancellation has walked past [`WALK_MAX`](crate::limits::WALK_MAX) entries,
    /// an index, until it is empty.
    #[default]
    Auto,
    /// Always ordered lists and the wildcard counter, however long the lists are.
    Lists,
    /// Always an index.
    Index,
}

impl std::str::FromStr for Matching {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Matching::Auto),
            "lists" => Ok(Matching::Lists),
            "index" => Ok(Matching::Index),
            _ => Err(format!("{word} is no way of matching: give auto, lists or index")),
        }
    }
}
