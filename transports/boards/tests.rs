use super::words::COUNT_BITS;
use super::*;

/// A board and the view that another member has of it.
fn board() -> (OwnBoard, PeerBoard) {
    let mut memory: Box<[u128]> = vec![0; BOARD_BYTES / 16 + 8].into();
    let start = memory.as_mut_ptr().cast::<u8>();
    let base = NonNull::new(start.wrapping_add(start.align_offset(128))).expect("not null");
    // SAFETY: zeroed memory of the length, aligned, and kept.
    #[expect(unsafe_code, reason = "a view of memory")]
    let run = unsafe { SharedRun::new(base, BOARD_BYTES, Arc::new(memory)) };
    let boards = OwnBoard::new(run.clone()).zip(PeerBoard::new(run, None));
    boards.expect("it is as long")
}

fn fill(span: Span, bytes: &[u8]) {
    assert_eq!(span.len(), bytes.len());
    // SAFETY: a part of the board.
    #[expect(unsafe_code, reason = "a view of memory")]
    unsafe {
        span.start().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
}

fn bytes(span: Span) -> Vec<u8> {
    let mut bytes = vec![0; span.len()];
    // SAFETY: a part of the board.
    #[expect(unsafe_code, reason = "a view of memory")]
    unsafe {
        bytes.as_mut_ptr().copy_from_nonoverlapping(span.start(), span.len());
    }
    bytes
}

#[test]
fn an_operand_is_read_once_its_operation_has_begun() {
    let (own, peer) = board();
    for (operation, length) in [(1u64, 8usize), (2, INLINE_MAX), (3, INLINE_MAX + 1), (8, SHORT_MAX), (9, 0)] {
        assert_eq!(peer.begun(operation), Stage::Before);
        let operand: Vec<u8> = (0..length).map(|byte| byte as u8 ^ operation as u8).collect();
        fill(own.short(operation, length), &operand);
        let called = Called { what: 77 + operation, length: length as u64, ..Called::default() };
        own.begin(operation, called);
        assert_eq!((peer.begun(operation), peer.called(operation)), (Stage::At(0), called));
        assert_eq!(bytes(peer.short(operation, length)), operand);
    }
    assert_eq!(peer.begun(1), Stage::Before, "its slot is another one's now");
}

#[test]
fn who_leaves_gives_up_what_it_has_begun_and_nothing_that_it_has_done() {
    let (own, peer) = board();
    own.begin(1, Called::default());
    own.finish(1, 0);
    own.close();
    assert_eq!((peer.begun(1), peer.finished(), peer.is_closed()), (Stage::At(0), 1, true));
    let (own, peer) = board();
    own.finish(4, 0);
    own.begin_long(5, Called { length: 1 << 20, ..Called::default() });
    own.set(5, Count::Written, 3);
    own.close();
    assert_eq!((peer.begun(5), peer.count(5, Count::Written)), (Stage::Abandoned, Stage::Abandoned));
    assert!(peer.is_closed() && peer.begun(6) == Stage::Before);
    // A short operand is in its slot as a whole. Others may still take it.
    let (own, peer) = board();
    own.begin_long(1, Called { length: 1 << 20, ..Called::default() });
    own.finish(1, 0);
    own.begin(2, Called { length: 8, ..Called::default() });
    own.close();
    assert!(peer.is_closed() && peer.begun(2) == Stage::At(0));
}

#[test]
fn counts_are_those_of_one_operation_and_end_with_it() {
    let (own, peer) = board();
    let called = Called { length: 1 << 20, address: 0x1000, result: 0x2000, ..Called::default() };
    own.begin(5, called);
    assert_eq!(peer.called(5), called);
    assert_eq!(peer.count(5, Count::Written), Stage::Before);
    own.set(5, Count::Written, 3);
    own.set(5, Count::Reduced, 2);
    own.set(5, Count::Consumed, 1);
    let counts = [Count::Written, Count::Reduced, Count::Consumed];
    assert_eq!(counts.map(|count| peer.count(5, count)), [Stage::At(3), Stage::At(2), Stage::At(1)]);
    assert_eq!(peer.count(13, Count::Written), Stage::Before);
    own.abandon(5);
    assert_eq!(counts.map(|count| peer.count(5, count)), [Stage::Abandoned; 3]);
    assert_eq!(peer.begun(5), Stage::Abandoned);
    own.begin(13, called);
    assert_eq!((peer.begun(5), peer.begun(13)), (Stage::Before, Stage::At(0)));
}

#[test]
fn numbers_go_on_past_the_bits_of_a_word() {
    let (own, peer) = board();
    let last = u64::MAX >> COUNT_BITS;
    (last - 17..last - 8).for_each(|operation| own.begin(operation, Called::default()));
    for operation in last - 8..last + 20 {
        assert_eq!(peer.begun(operation), Stage::Before);
        own.begin(operation, Called::default());
        own.set(operation, Count::Written, CHUNKS_MAX + 9);
        assert_eq!(peer.begun(operation), Stage::At(0));
        assert_eq!(peer.count(operation, Count::Written), Stage::At(CHUNKS_MAX));
    }
}

#[test]
fn cells_and_words_of_the_head_are_told() {
    let (own, peer) = board();
    fill(own.cells(BOARD_CELL_BYTES - 4, 99), &[1, 2, 3, 4]);
    assert_eq!(bytes(peer.cells(BOARD_CELL_BYTES - 4, 4)), [1, 2, 3, 4]);
    assert!(own.cells(BOARD_CELL_BYTES, 1).is_empty());
    assert_eq!((peer.finished(), peer.is_closed()), (0, false));
    own.finish(12, 0);
    own.close();
    assert_eq!((peer.finished(), peer.is_closed()), (12, true));
    assert!(peer.find(0x1000, 1).is_none(), "it has no shared heap");
}

#[test]
fn members_that_are_left_behind_stay_so() {
    let (own, peer) = board();
    let left = |peer: &PeerBoard| (0..32).filter(|&rank| peer.has_left_behind(rank)).collect::<Vec<_>>();
    assert_eq!(left(&peer), []);
    own.leave_behind(1 << 3 | 1 << 31);
    own.leave_behind(1 << 0);
    assert_eq!(left(&peer), [0, 3, 31]);
    assert_eq!((peer.finished(), peer.is_closed()), (0, false));
}
