//! Puts and gets of regions with datatypes on both sides: bytes of the origin's buffer that one says, and bytes of the region that another
//! one says. How they go: [`Engine::put_typed`] and its like of windows.

use super::{length_of_region, place_in_key};
use crate::api::windows::{Placed, PostedUpdate, runs_within};
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use tickwire_components::{Datatype, Elements, ElementsMut, Rank, RegionAccess, RegionKey, Typed, WindowError};
use tickwire_systems::procs::windows::regions::{REGIONS, displacement};

impl Engine {
    /// As [`Engine::region_put`], with datatypes: the message of `from` goes to the bytes of `count` elements of `of`, displacement 0 of
    /// which is byte `offset` of the region. If the datatype has a byte of the region twice, either value may stay there.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Datatype, Engine, RegionAccess, Typed};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// let region = engine.expose(vec![0u32; 6], RegionAccess::ALL)?;
    /// // The last number comes first.
    /// let number = Datatype::of::<u32>();
    /// let backwards = Datatype::vector(3, 1, -2, &number)?;
    /// let from = Typed::new(vec![1u32, 2, 3], &number, 3)?;
    /// engine.region_put_typed(&from, &region.key(), 20, (&backwards, 1))?;
    /// assert_eq!(engine.withdraw(region)?, [0, 3, 0, 2, 0, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::region_put`], the datatype is not within the region, or the two have different numbers of bytes. If the key shows that,
    /// nothing is moved.
    pub fn region_put_typed<B: Elements>(
        &mut self,
        from: &Typed<B>,
        key: &RegionKey,
        offset: usize,
        of: (&Datatype, usize),
    ) -> Result<(), WindowError> {
        let target = Rank(key.proc);
        self.told(OneSidedCall::moving("region_put_typed", from.size(), target, REGIONS), |engine| {
            let runs = engine.region_runs(key, RegionAccess::WRITE, offset, of, from.size())?;
            engine.put_placed(from, &runs, target, REGIONS)
        })
    }

    /// As [`Engine::region_get`], with datatypes. See [`Engine::region_put_typed`].
    ///
    /// # Errors
    /// As [`Engine::region_put_typed`] and [`Engine::region_get`].
    pub fn region_get_typed<B: ElementsMut>(
        &mut self,
        into: &mut Typed<B>,
        key: &RegionKey,
        offset: usize,
        of: (&Datatype, usize),
    ) -> Result<(), WindowError> {
        let target = Rank(key.proc);
        self.told(OneSidedCall::moving("region_get_typed", into.size(), target, REGIONS), |engine| {
            let runs = engine.region_runs(key, RegionAccess::READ, offset, of, into.size())?;
            engine.get_placed(into, &runs, target, REGIONS)
        })
    }

    /// As [`Engine::region_put_typed`], with a request: one for all runs. It is done when all bytes are in the region.
    ///
    /// # Errors
    /// As [`Engine::region_put_typed`], or no row is free. The error gives the buffer back.
    pub fn region_rput_typed<B: Elements + Send + 'static>(
        &mut self,
        from: Typed<B>,
        key: &RegionKey,
        offset: usize,
        of: (&Datatype, usize),
    ) -> PostedUpdate<Typed<B>> {
        let target = Rank(key.proc);
        self.told_post(OneSidedCall::moving("region_rput_typed", from.size(), target, REGIONS), |engine| {
            let runs = engine.region_runs(key, RegionAccess::WRITE, offset, of, from.size());
            engine.rput_placed(from, runs, target, REGIONS)
        })
    }

    /// As [`Engine::region_get_typed`], with a request: one for all runs. It is done when all bytes are in the buffer.
    ///
    /// # Errors
    /// As [`Engine::region_get_typed`], or no row is free. The error gives the buffer back.
    pub fn region_rget_typed<B: ElementsMut + Send + 'static>(
        &mut self,
        into: Typed<B>,
        key: &RegionKey,
        offset: usize,
        of: (&Datatype, usize),
    ) -> PostedUpdate<Typed<B>> {
        let target = Rank(key.proc);
        self.told_post(OneSidedCall::moving("region_rget_typed", into.size(), target, REGIONS), |engine| {
            let runs = engine.region_runs(key, RegionAccess::READ, offset, of, into.size());
            engine.rget_placed(into, runs, target, REGIONS)
        })
    }

    /// Where elements of a datatype are in a region, as displacements; they must be so many bytes. All that the key says is checked before
    /// the key's proc is connected to.
    fn region_runs(
        &mut self,
        key: &RegionKey,
        access: RegionAccess,
        offset: usize,
        of: (&Datatype, usize),
        needed: usize,
    ) -> Result<Vec<Placed>, WindowError> {
        self.closed.check_post()?;
        place_in_key(key, access, offset, 0)?;
        let mut runs = runs_within(offset, of, length_of_region(key), needed)?;
        self.region_place(key, access, offset, 0)?;
        runs.iter_mut().for_each(|run| run.at = displacement(key.number, run.at as u64) as usize);
        Ok(runs)
    }
}
