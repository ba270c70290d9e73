//! Limits by name: to list them, and to set them by words.

use super::Limits;

/// A limit as it is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedLimit {
    /// Its name, as of the field of [`Limits`].
    pub name: &'static str,
    /// Its value. A flag is 0 or 1, and what has no value is 0.
    pub value: u64,
    /// What it limits.
    pub what: &'static str,
}

/// The value of a limit, as a number.
trait Value: Sized {
    /// The greatest number.
    const MOST: u64;
    fn number(&self) -> u64;
    /// The value of a number that is at most [`Value::MOST`].
    fn of(number: u64) -> Self;
}

impl Value for usize {
    const MOST: u64 = usize::MAX as u64;
    fn number(&self) -> u64 {
        *self as u64
    }
    fn of(number: u64) -> Self {
        number as usize
    }
}

impl Value for u32 {
    const MOST: u64 = u32::MAX as u64;
    fn number(&self) -> u64 {
        u64::from(*self)
    }
    fn of(number: u64) -> Self {
        number as u32
    }
}

impl Value for bool {
    const MOST: u64 = 1;
    fn number(&self) -> u64 {
        u64::from(*self)
    }
    fn of(number: u64) -> Self {
        number == 1
    }
}

impl Value for Option<u32> {
    const MOST: u64 = u32::MAX as u64;
    fn number(&self) -> u64 {
        self.map_or(0, u64::from)
    }
    fn of(number: u64) -> Self {
        (number != 0).then_some(number as u32)
    }
}

/// Sets a value by words: a number, or `never` for the greatest one.
fn set<V: Value>(value: &mut V, name: &str, words: &str) -> Result<(), String> {
    let number = if words == "never" { Some(V::MOST) } else { words.parse().ok() };
    *value = V::of(number.filter(|&number| number <= V::MOST).ok_or_else(|| match V::MOST {
        1 => format!("{name} is a flag: give 0 or 1"),
        most => format!("{name} is a number: give 0 to {most}, or 'never' for the greatest"),
    })?);
    Ok(())
}

/// The list of limits: for each its field, and what it limits.
macro_rules! named {
    ($($field:ident $(. $part:ident)? = $what:literal;)*) => {
        impl Limits {
            /// The limits, but for those of the matching index and those that only tests change.
            pub fn named(&self) -> Vec<NamedLimit> {
                vec![$(NamedLimit {
                    name: concat!(stringify!($field) $(, ".", stringify!($part))?),
                    value: self.$field $(.$part)?.number(),
                    what: $what,
                }),*]
            }

            /// Sets one of the limits that [`Limits::named`] lists. `words` are a number, or `never` for the greatest one.
            ///
            /// ```
            /// # use tickwire_components::limits::Limits;
            /// let mut limits = Limits::default();
            /// limits.set("fabric_lengths.part_bytes", "4096")?;
            /// limits.set("read_min", "never")?;
            /// assert_eq!((limits.fabric_lengths.part_bytes, limits.read_min), (4096, usize::MAX));
            /// # Ok::<(), String>(())
            /// ```
            ///
            /// # Errors
            /// A sentence that says what is possible.
            pub fn set(&mut self, name: &str, words: &str) -> Result<(), String> {
                $(if name == concat!(stringify!($field) $(, ".", stringify!($part))?) {
                    return set(&mut self.$field $(.$part)?, name, words);
                })*
                Err(format!("there is no limit '{name}': `tickwire info` lists them"))
            }
        }
    };
}

named! {
    cars_max = "operations in flight or not yet taken";
    unexpected_bytes_max = "bytes kept of messages before their receives, all peers' shares";
    buffers_max = "unexpected messages with payload";
    contexts_max = "communicators";
    forward_bytes = "B of temporaries of operations that pass bytes on";
    submissions_max = "operations of other threads, and calls";
    registrations_max = "registered ranges that are kept while nobody needs them";
    registered_bytes = "B of such ranges";
    eager_max = "B of a message sent without asking";
    part_bytes = "B of a part of such a message";
    piece_bytes = "B of a piece of a larger message";
    fabric_lengths.eager_max = "B of a message sent without asking over a fabric";
    fabric_lengths.part_bytes = "B of a part of such a message";
    fabric_lengths.piece_bytes = "B of a piece of a larger message";
    read_min = "B from which on a message is read out of the sender's memory";
    mapped_min = "the same for messages out of the shared heap";
    direct_min = "B from which on a message goes straight between the memory of both ends";
    ring_bytes = "B that a ring grows to, one direction of a pair";
    first_ring_bytes = "B of a ring at first";
    grown_bytes_max = "B of all grown rings and staging buffers that one rank writes";
    past_min = "B of a frame over shared memory that is written past the caches";
    window_copy_max = "B of a created window's part that is kept in shared memory";
    own_at_once = "whether messages to oneself go to posted receives at once";
    deliver = "whether messages go row by row where nothing else waits";
    boards = "whether members of one host combine in shared memory";
    check_types = "whether the types of messages are compared";
    tick_budget = "frames that a tick reads";
    passes_max = "passes of a tick";
    control_us = "us between two looks at sockets";
    spins = "empty looks of a wait before it yields";
    yields = "yields of a wait before it sleeps";
    sleep_ms_max = "ms of one sleep";
    failure_ms_max = "ms until a peer's death is told";
    dead_link_ms_max = "ms without an answer until a link is dead";
    progress_event_count = "completions read from a fabric in one call";
    connect_ms_max = "ms that a living peer may take to answer a first contact; 0: as long as it lives";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_set_by_its_name_and_no_other_changes() {
        let before = Limits::default().named();
        for (index, limit) in before.iter().enumerate() {
            let mut limits = Limits::default();
            let value = u64::from(limit.value == 0);
            limits.set(limit.name, &value.to_string()).unwrap();
            let after = limits.named();
            assert_eq!(after[index], NamedLimit { value, ..*limit });
            assert!((0..after.len()).all(|other| other == index || after[other] == before[other]), "{}", limit.name);
        }
    }

    #[test]
    fn words_that_set_nothing_say_what_does() {
        let mut limits = Limits::default();
        let before = limits.named();
        let mut wrong = |name, words| limits.set(name, words).unwrap_err();
        assert_eq!(wrong("eager", "1"), "there is no limit 'eager': `tickwire info` lists them");
        assert_eq!(wrong("boards", "2"), "boards is a flag: give 0 or 1");
        for words in ["", "-1", "8k", "4294967296"] {
            assert_eq!(wrong("spins", words), "spins is a number: give 0 to 4294967295, or 'never' for the greatest");
        }
        assert_eq!(limits.named(), before);
        limits.set("spins", "never").unwrap();
        assert_eq!(limits.spins, u32::MAX);
    }
}
