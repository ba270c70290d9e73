use super::*;
use crate::read::error::ReadError;

/// Records in memory.
impl Words for Vec<u64> {
    fn put(&mut self, words: &[u64]) {
        self.extend_from_slice(words);
    }
}

/// An endless sequence of pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 27
    }

    /// A number of any size, with equally many of each number of bits.
    fn any(&mut self) -> u64 {
        let bits = self.next() % 65;
        self.next().checked_shr(bits as u32).unwrap_or(0)
    }

    fn word(&mut self) -> u32 {
        self.any() as u32
    }

    fn text(&mut self) -> Cow<'static, str> {
        let letters = ['a', '"', '\n', 'ä', '→'];
        (0..self.next() % 40).map(|_| letters[self.next() as usize % 5]).collect::<String>().into()
    }

    fn work(&mut self) -> Work {
        let [posted, matched, sent, received, completed] = [(); 5].map(|()| self.word());
        Work { posted, matched, sent, received, completed }
    }

    /// A random event, at about `now_ns`.
    fn event(&mut self, now_ns: &mut u64) -> Event<'static> {
        // Most times follow each other closely. Some go back.
        let past = *now_ns;
        *now_ns = if self.next().is_multiple_of(10) { self.any() } else { now_ns.wrapping_add(self.next() % 100_000) };
        let at_ns = *now_ns;
        match self.next() % 16 {
            0 => Event::Engine { rank: self.word(), size: self.word() },
            1 => Event::System { system: self.any() as u16, name: self.text() },
            2 => Event::TickBegan { at_ns },
            3 => Event::SystemRan { system: self.any() as u16, rows: self.any(), begin_ns: past, end_ns: at_ns },
            4 => {
                let work = self.work();
                let depths = of_values([(); DEPTHS].map(|()| self.any()));
                Event::TickEnded { at_ns, work, passes: self.word(), depths }
            }
            kind @ (5 | 6) => {
                let (proc, context, tag) = (self.word(), self.word(), self.word());
                let (bytes, number) = (self.any(), self.any());
                let message = Message { proc, context, tag, bytes, number, begin_ns: past, end_ns: at_ns };
                if kind == 5 { Event::Sent(message) } else { Event::Received(message) }
            }
            9 => {
                let (read_ns, work) = (past.midpoint(at_ns), self.work());
                Event::Delivered { begin_ns: past, read_ns, end_ns: at_ns, work }
            }
            10 => Event::Waiting { depths: of_values([(); DEPTHS].map(|()| self.any())), at_ns },
            7 => {
                let states = [VcState::Unconnected, VcState::Connecting, VcState::Connected, VcState::Failed];
                let state = states[self.next() as usize % 4];
                Event::VcChanged { proc: self.word(), state, reason: self.text(), at_ns }
            }
            8 => {
                let transport = format!("t{}", self.next() % 400).into();
                Event::Moved { transport, sent_bytes: self.any(), received_bytes: self.any(), at_ns }
            }
            11 => {
                let name = format!("c{}", self.next() % 30).into();
                Event::Called { name, context: self.word(), begin_ns: past, end_ns: at_ns }
            }
            12 => {
                let name = format!("a{}", self.next() % 30).into();
                Event::Accessed { name, access: self.access(), begin_ns: past, end_ns: at_ns }
            }
            13 => {
                let name = format!("o{}", self.next() % 30).into();
                let is_collective = self.next().is_multiple_of(2);
                let about = if is_collective { About::Comm(self.word()) } else { About::Memory(self.access()) };
                Event::Started { operation: self.any(), name, about, at_ns }
            }
            14 => Event::Ended { operation: self.any(), name: format!("o{}", self.next() % 30).into(), at_ns },
            _ => Event::Error { words: self.text(), at_ns },
        }
    }

    fn access(&mut self) -> Access {
        Access { window: self.word(), target: self.word(), bytes: self.any() }
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A file of records: the page is full, as many words again are in the buffer, and the rest is behind the buffer.
fn file(records: &[u64]) -> Vec<u8> {
    let (page, rest) = records.split_at(records.len().min(PAGE_WORDS - BEGIN_WORDS));
    let (behind, buffered) = rest.split_at(rest.len() - rest.len().min(PAGE_WORDS));
    let state = State { behind: behind.len() as u64, buffered: buffered.len() as u16 }.word();
    let mut words = [&[MAGIC, VERSION, page.len() as u64, state], page].concat();
    if !rest.is_empty() {
        words.extend(buffered);
        words.resize(PAGE_WORDS + BUFFER_WORDS, u64::MAX);
        words.extend(behind);
    }
    bytes(&words)
}

/// The file of some events.
fn recorded(events: &[Event<'_>]) -> Vec<u8> {
    let (mut recorder, mut words) = (Recorder::default(), Vec::new());
    events.iter().for_each(|event| recorder.record(event, &mut words));
    file(&words)
}

/// All events, and the offset of an incomplete last record.
fn read(input: &[u8]) -> Result<(Vec<Event<'static>>, Option<u64>), ReadError> {
    let mut reader = Reader::new(input)?;
    let mut events = Vec::new();
    while let Some(event) = reader.next()? {
        events.push(event.into_owned());
    }
    assert!(reader.next()?.is_none(), "the end stays the end");
    Ok((events, reader.cut()))
}

fn any_events(seed: u64, count: usize) -> Vec<Event<'static>> {
    let (mut numbers, mut now_ns) = (Numbers(seed), 40_000_000_000_000);
    (0..count).map(|_| numbers.event(&mut now_ns)).collect()
}

#[test]
fn any_event_is_read_as_it_was_recorded() {
    for seed in 0..20 {
        let events = any_events(seed, 2000);
        assert_eq!(read(&recorded(&events)).unwrap(), (events, None), "seed {seed}");
    }
}

#[test]
fn a_file_that_is_cut_has_the_events_before_and_says_where() {
    for events in [any_events(1, 60), any_events(1, 600)] {
        let whole = recorded(&events);
        let mut most = 0;
        for end in (0..whole.len()).step_by(if events.len() < 100 { 1 } else { 29 }) {
            let (read, cut) = read(&whole[..end]).unwrap();
            assert!(read.len() < events.len() && read == events[..read.len()] && read.len() >= most, "{end}");
            // Without a count, there are no records.
            assert_eq!(cut.is_some(), end >= 8 * (IN_PAGE + 1), "{end}");
            assert!(cut.is_none_or(|at| at <= whole.len() as u64), "{end}: {cut:?}");
            most = read.len();
        }
        assert_eq!(read(&whole).unwrap(), (events, None));
    }
}

#[test]
fn a_file_that_was_only_just_created_has_no_events() {
    assert_eq!(read(&[0; 4096]).unwrap(), (Vec::new(), None));
    assert_eq!(read(&MAGIC.to_ne_bytes()).unwrap(), (Vec::new(), None));
}

#[test]
fn what_is_no_file_of_records_is_one_clear_line() {
    let head = |kind: u8, small: u8, words: u16| Head { kind, small, words, since_ns: 0 }.word();
    let of = |record: &[u64]| file(record);
    // In order it comes just after the page; in the file it is behind the buffer.
    let behind = |record: u64| {
        let mut records = vec![head(TICK_BEGAN, 0, 1); 2 * PAGE_WORDS - BEGIN_WORDS + 1];
        records[PAGE_WORDS - BEGIN_WORDS] = record;
        file(&records)
    };
    for (input, expected) in [
        (bytes(&[MAGIC + 1, VERSION, 0, 0]), "byte 0: this is no trace"),
        (bytes(&[MAGIC.swap_bytes(), VERSION, 0, 0]), "byte 0: a machine of the other byte order"),
        (bytes(&[MAGIC, 1, 0, 0]), "byte 8: the trace has version 1 of its form, not 4"),
        (bytes(&[MAGIC, VERSION, 509, 0]), "byte 16: it is said to have more records"),
        (bytes(&[MAGIC, VERSION, u64::MAX, 0]), "byte 16: it is said to have more records"),
        (bytes(&[MAGIC, VERSION, 508, u64::MAX]), "byte 16: it is said to have more records"),
        (of(&[0]), "byte 32: there is no record of kind 0 and 0"),
        (behind(head(99, 0, 1)), "byte 69632: there is no record of kind 99 and 0"),
        (
            file(&[&vec![head(TICK_BEGAN, 0, 1); PAGE_WORDS][..], &[99]].concat()),
            "byte 4128: there is no record of kind 99",
        ),
        (of(&[head(77, 0, 1)]), "byte 32: there is no record of kind 77"),
        (of(&[head(TICK_BEGAN, 0, 1), head(TICK_ENDED, 0x40, 3)]), "byte 40: there is no record of kind 8 and 64"),
        (of(&[head(WAITING, 0x40, 2), 0]), "byte 32: there is no record of kind 19 and 64"),
        (of(&[head(DELIVERED, 0, 2), 0]), "byte 32: a record of kind 17 has not 2 words"),
        (of(&[head(TICK_BEGAN, 0, 0)]), "byte 32: a record of kind 5 has not 0 words"),
        (of(&[head(ERROR, 0, u16::MAX)]), "byte 32: a record of kind 16 has not 65535 words"),
        (of(&[head(ERROR, 0, 2), pair(0, u32::MAX)]), "byte 32: text of 4294967295 bytes in a record of 2 words"),
        (of(&[head(ERROR, 0, 3), pair(0, 1), 0xFF]), "byte 32: text that is no UTF-8"),
        (of(&[head(MOVED, 3, 3), 0, 0]), "byte 32: a transport that has no name"),
        (of(&[head(CALLED, 3, 2), 0]), "byte 32: a call that has no name"),
        (of(&[head(ACCESSED, 3, 3), 0, 0]), "byte 32: a call that has no name"),
        (of(&[head(ACCESSED_WIDE, 0, 3), 0, 0]), "byte 32: a record of kind 23 has not 3 words"),
        (of(&[head(STARTED, 3, 3), 0, 0]), "byte 32: an operation that has no name"),
        (of(&[head(STARTED_ACCESS, 0, 3), 0, 0]), "byte 32: a record of kind 25 has not 3 words"),
        (of(&[head(ENDED, 0, 2), 0]), "byte 32: an operation that has no name"),
        (of(&[head(NAME, 0, 2), 0, head(STARTED, 0, 3), 0, 1 << 32]), "byte 48: a communicator that there is not"),
        (of(&[head(VC_CHANGED, 4, 2), 0]), "byte 32: a connection in a state"),
        (of(&[head(SYSTEM_RAN_WIDE, 0, 4), 1 << 16, 0, 0]), "byte 32: a system of a number"),
    ] {
        let words = read(&input).unwrap_err().to_string();
        assert!(words.starts_with(expected) && words.lines().count() == 1, "{words}");
    }
}

#[test]
fn nothing_that_is_read_ends_the_reader() {
    let mut numbers = Numbers(7);
    let whole = recorded(&any_events(3, 100));
    let mut sound = 0;
    for _ in 0..20_000 {
        let mut input = whole.clone();
        for _ in 0..1 + numbers.next() % 4 {
            let at = 8 * BEGIN_WORDS + numbers.next() as usize % (input.len() - 8 * BEGIN_WORDS);
            input[at] = numbers.any() as u8;
        }
        sound += u32::from(read(&input).is_ok());
        let noise: Vec<u64> = (0..8).map(|_| numbers.any()).collect();
        let _ = read(&file(&noise));
        let _ = read(&bytes(&[&[MAGIC, VERSION][..], &noise].concat()));
        let _ = read(&bytes(&noise));
    }
    assert!((100..19_900).contains(&sound), "some changes are noticed and some are not: {sound}");
}

#[test]
fn long_text_is_cut_between_letters() {
    let long = "ä".repeat(TEXT_MAX);
    let (events, _) = read(&recorded(&[Event::Error { words: long.as_str().into(), at_ns: 1 }])).unwrap();
    assert_eq!(events, [Event::Error { words: "ä".repeat(TEXT_MAX / 2).into(), at_ns: 1 }]);
}
