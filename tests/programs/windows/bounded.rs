//! Windows of processes whose files may not be long. A buffer that is too long for a copy in shared memory is the part
//! itself.

use rustix::process::{Resource, Rlimit, setrlimit};
use tickwire::{Engine, Rank, WindowReach};

/// Bytes that a file may have.
const FILE_BYTES: usize = 1 << 20;

/// Makes windows of both lengths on a rank. Each rank writes into the next rank's part.
pub(crate) fn bounded(engine: &mut Engine) {
    let (world, me, size) = (engine.comm_world(), engine.rank().0, engine.size());
    let (next, from) = (Rank((me + 1) % size), (me + size - 1) % size);
    engine.barrier(world).unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(FILE_BYTES as u64), maximum: None }).unwrap();
    let refused = engine.win_allocate::<u8>(FILE_BYTES, world).unwrap_err().to_string();
    assert!(refused.contains("has no memory"), "{refused}");
    for (length, reach) in [(FILE_BYTES / 2, WindowReach::Memory), (FILE_BYTES, WindowReach::Kernel)] {
        let window = engine.win_create(vec![me as u8; length], world).unwrap();
        assert_eq!(engine.win_reach(next, window), Ok(reach), "{length} B");
        engine.win_lock_all(window).unwrap();
        engine.put(&vec![me as u8 + 100; length - 1], next, 1, window).unwrap();
        engine.win_unlock_all(window).unwrap();
        engine.barrier(world).unwrap();
        let part: Vec<u8> = engine.win_take(window).unwrap().expect("it is a Vec");
        assert_eq!((part.len(), part[0]), (length, me as u8));
        assert!(part[1..].iter().all(|&byte| byte == from as u8 + 100), "{length} B");
    }
}
