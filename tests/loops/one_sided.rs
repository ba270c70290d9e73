//! Operations on other ranks' memory: on exposed memory, and on the window of a case that has one.

use crate::ends::{Open, counted, sum};
use tickwire::{
    Engine, Pieces, PostedUpdate, Rank, RegionAccess, RegionKey, Window, WindowError, WindowReach, bytemuck, op,
};
use tickwire_tests::cases::content;

/// Words of a part. As many take several requests to the target's engine.
pub(crate) const WORDS: usize = 10_000;

/// An operation on memory of another rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OneSided {
    Put,
    Get,
    FetchAndOp,
    CompareAndSwap,
    /// A get with the key of a region that was withdrawn. It must fail.
    Stale,
    WindowPut,
    WindowGet,
    Accumulate,
    GetAccumulate,
}

impl OneSided {
    /// Operations on exposed memory.
    pub(crate) const REGIONS: [OneSided; 5] =
        [OneSided::Put, OneSided::Get, OneSided::FetchAndOp, OneSided::CompareAndSwap, OneSided::Stale];
    /// Operations on a window.
    pub(crate) const WINDOWS: [OneSided; 4] =
        [OneSided::WindowPut, OneSided::WindowGet, OneSided::Accumulate, OneSided::GetAccumulate];

    /// The name in a log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OneSided::Put => "region_rput",
            OneSided::Get => "region_rget",
            OneSided::FetchAndOp => "region_rfetch_and_op",
            OneSided::CompareAndSwap => "region_rcompare_and_swap",
            OneSided::Stale => "region_rget with a stale key",
            OneSided::WindowPut => "rput",
            OneSided::WindowGet => "rget",
            OneSided::Accumulate => "raccumulate",
            OneSided::GetAccumulate => "rget_accumulate",
        }
    }

    /// Whether the operation is on a window.
    fn is_of_window(self) -> bool {
        Self::WINDOWS.contains(&self)
    }
}

/// Some elements of a rank's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The rank.
    pub(crate) target: usize,
    /// The first element.
    pub(crate) at: usize,
    /// The number of elements.
    pub(crate) count: usize,
}

/// The memory that every rank exposes.
pub(crate) struct Memory {
    /// By rank: the key of its memory, and the key of memory that it has withdrawn.
    keys: Vec<[RegionKey; 2]>,
    /// The window, if there is one. All ranks have locked all its parts.
    window: Option<Window<u64>>,
}

/// An operation that has begun, or the error if it has not.
fn begun<B: Pieces + 'static>(
    of: OneSided,
    site: (usize, usize),
    posted: PostedUpdate<B>,
    bytes: fn(&B) -> Vec<u8>,
) -> Result<Open, WindowError> {
    Ok(counted(of.name(), site, posted.map_err(|rejected| rejected.error)?, bytes))
}

/// Elements as bytes.
fn words(elements: &[u64]) -> Vec<u8> {
    bytemuck::cast_slice(elements).to_vec()
}

impl Memory {
    /// No exposed memory yet, only the window, if there is one.
    pub(crate) fn none(window: Option<Window<u64>>) -> Self {
        Memory { keys: Vec::new(), window }
    }

    /// Every rank exposes memory.
    pub(crate) fn expose(&mut self, engines: &mut [Engine]) {
        let expose = |engine: &mut Engine| {
            let mut expose = || engine.expose(vec![0u64; WORDS], RegionAccess::ALL).unwrap();
            let (kept, other) = (expose().key(), expose());
            let stale = other.key();
            engine.withdraw(other).unwrap();
            [kept, stale]
        };
        self.keys = engines.iter_mut().map(expose).collect();
        // The first call for a key looks for the way to the memory, and may wait. Work that is done in this wait is
        // missing in what the ticks count, so it is done before any counting.
        for engine in engines {
            for [key, _] in &self.keys {
                let _ = engine.region_reach(key);
            }
        }
    }

    /// Whether the target's engine does the operation.
    pub(crate) fn is_served(&self, engine: &mut Engine, of: OneSided, target: usize) -> bool {
        let reach = match self.window.filter(|_| of.is_of_window()) {
            Some(window) => engine.win_reach(Rank(target as u32), window),
            None => engine.region_reach(&self.keys[target][0]),
        };
        reach == Ok(WindowReach::Engine)
    }

    /// Begins an operation for a call of a rank.
    pub(crate) fn post(
        &self,
        engine: &mut Engine,
        of: OneSided,
        site: (usize, usize),
        Place { target, at, count }: Place,
    ) -> Result<Open, WindowError> {
        let own: Vec<u64> = bytemuck::pod_collect_to_vec(&content((site.0 as u64) << 8, count * size_of::<u64>()));
        let ([key, stale], offset, rank) = (&self.keys[target], at * size_of::<u64>(), Rank(target as u32));
        // The operand of updates of a single element. It differs from call to call.
        let value = site.0 as u64;
        match (of, self.window) {
            (OneSided::FetchAndOp, _) => {
                begun(of, site, engine.region_rfetch_and_op(value, op::Sum, key, offset), |both| words(&both.1))
            }
            (OneSided::CompareAndSwap, _) => {
                let swapped = engine.region_rcompare_and_swap(0u64, value, key, offset);
                begun(of, site, swapped, |both| words(&both.1))
            }
            (OneSided::Put, _) => begun(of, site, engine.region_rput(own, key, offset), |_| Vec::new()),
            (OneSided::Stale, _) => begun(of, site, engine.region_rget(own, stale, offset), |own| words(own)),
            (OneSided::WindowPut, Some(window)) => begun(of, site, engine.rput(own, rank, at, window), |_| Vec::new()),
            (OneSided::WindowGet, Some(window)) => {
                begun(of, site, engine.rget(vec![0; count], rank, at, window), |got| words(got))
            }
            (OneSided::Accumulate, Some(window)) => {
                begun(of, site, engine.raccumulate(own, op::Sum, rank, at, window), |_| Vec::new())
            }
            (OneSided::GetAccumulate, Some(window)) => {
                let both = engine.rget_accumulate(own, vec![0; count], op::Sum, rank, at, window);
                begun(of, site, both, |both| words(&both.1))
            }
            _ => begun(of, site, engine.region_rget(vec![0; count], key, offset), |got| words(got)),
        }
    }

    /// The content of each rank's memory, one line each.
    pub(crate) fn show(&self, engines: &mut [Engine]) -> Vec<String> {
        let show = |(rank, engine): (usize, &mut Engine)| {
            let mut own = vec![0u64; WORDS];
            let read = engine.region_get(&mut own, &self.keys[rank][0], 0);
            let exposed = sum(bytemuck::cast_slice(&own));
            let window = self.window.map(|window| (engine.win_read(&mut own, 0, window), sum(&words(&own))));
            format!("memory of rank {rank}: {read:?} {exposed:x}, {window:x?}")
        };
        engines.iter_mut().enumerate().map(show).collect()
    }
}
