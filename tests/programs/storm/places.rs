//! How the ranks of a job reach each other.

use std::str::FromStr;
use tickwire::bootstrap::{ENV_RANK, ENV_SIZE};
use tickwire::internals::systems::procs::boards::Boards;
use tickwire::{Builder, Engine, Limits};

/// The fabric of ranks that share no memory.
const FABRIC: &str = "ofi:tcp;ofi_rxm";

/// Where the ranks are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// They share memory, and have boards.
    Boards,
    /// As `Boards`, with operands in a shared heap.
    Heap,
    /// They share memory, and have no boards.
    Messages,
    /// All are reached over a fabric.
    Fabric,
    /// The first half of the ranks share memory. All others are reached over a fabric.
    Mixed,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "boards" => Ok(Place::Boards),
            "heap" => Ok(Place::Heap),
            "messages" => Ok(Place::Messages),
            "fabric" => Ok(Place::Fabric),
            "mixed" => Ok(Place::Mixed),
            _ => Err(format!("{word} is none of boards, heap, messages, fabric and mixed")),
        }
    }
}

impl Place {
    /// An engine in this place.
    pub(crate) fn builder(self) -> Builder {
        let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
        let is_near = number(ENV_RANK) < number(ENV_SIZE).map(|size| size.div_ceil(2));
        match self {
            Place::Boards => Engine::builder(),
            Place::Heap => Engine::builder().shared_heap(true),
            Place::Messages => Engine::builder().limits(Limits { boards: false, ..Limits::default() }),
            Place::Mixed if is_near => Engine::builder().include(["loopback", "shm", FABRIC]),
            Place::Fabric | Place::Mixed => Engine::builder().include(["loopback", FABRIC]),
        }
    }

    /// Panics if the world has boards where it should have none, or the reverse.
    pub(crate) fn check(self, engine: &Engine) {
        let query = engine.world().try_query::<&Boards>();
        let open = query.map_or(0, |mut all| all.iter(engine.world()).map(Boards::count).sum());
        let expected = usize::from(matches!(self, Place::Boards | Place::Heap));
        assert_eq!(open, expected, "communicators with boards");
    }
}
