//! A model of datatypes: how a type is described, and its type map as the standard defines it, byte by byte.

use crate::datatype::*;
use proptest::prelude::*;

/// How a type is described, for the model and for the constructors alike.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Basic(usize),
    Vector { count: usize, block: usize, stride: isize, bytes: bool, of: Box<Plan> },
    Indexed { blocks: Vec<(usize, isize)>, bytes: bool, of: Box<Plan> },
    IndexedBlock { block: usize, places: Vec<isize>, bytes: bool, of: Box<Plan> },
    Structure(Vec<(usize, isize, Plan)>),
    Subarray { dimensions: Vec<(usize, usize, usize)>, order: Order, of: Box<Plan> },
    Resized { lower: isize, extent: isize, of: Box<Plan> },
}

fn number(which: usize) -> Datatype {
    [u8::datatype(), u16::datatype(), f32::datatype(), f64::datatype(), u128::datatype()][which].clone()
}

impl Plan {
    /// The type, made by the constructors.
    pub(super) fn make(&self) -> Result<Datatype, DatatypeError> {
        match self {
            Plan::Basic(which) => Ok(number(*which)),
            Plan::Vector { count, block, stride, bytes: false, of } => {
                Datatype::vector(*count, *block, *stride, &of.make()?)
            }
            Plan::Vector { count, block, stride, of, .. } => Datatype::hvector(*count, *block, *stride, &of.make()?),
            Plan::Indexed { blocks, bytes: false, of } => Datatype::indexed(blocks, &of.make()?),
            Plan::Indexed { blocks, of, .. } => Datatype::hindexed(blocks, &of.make()?),
            Plan::IndexedBlock { block, places, bytes: false, of } => {
                Datatype::indexed_block(*block, places, &of.make()?)
            }
            Plan::IndexedBlock { block, places, of, .. } => Datatype::hindexed_block(*block, places, &of.make()?),
            Plan::Structure(fields) => {
                let types = fields.iter().map(|field| field.2.make()).collect::<Result<Vec<_>, _>>()?;
                let fields = fields.iter().zip(&types).map(|(field, of)| (field.0, field.1, of));
                Datatype::structure(&fields.collect::<Vec<_>>())
            }
            Plan::Subarray { dimensions, order, of } => {
                let list =
                    |which: fn(&(usize, usize, usize)) -> usize| dimensions.iter().map(which).collect::<Vec<_>>();
                Datatype::subarray(&list(|d| d.0), &list(|d| d.1), &list(|d| d.2), *order, &of.make()?)
            }
            Plan::Resized { lower, extent, of } => of.make()?.resized(*lower, *extent),
        }
    }
}

/// The type map of the standard: every byte's displacement, and the markers among them.
#[derive(Clone, Default)]
pub(super) struct Map {
    pub(super) bytes: Vec<isize>,
    marks: Vec<(isize, isize)>,
    pub(super) alignment: usize,
}

impl Map {
    pub(super) fn lower(&self) -> isize {
        let marks = self.marks.iter().map(|mark| mark.0).min();
        marks.or_else(|| self.bytes.iter().copied().min()).unwrap_or(0)
    }

    pub(super) fn extent(&self) -> isize {
        if let Some(upper) = self.marks.iter().map(|mark| mark.1).max() {
            return upper - self.lower();
        }
        let Some(last) = self.bytes.iter().max() else { return 0 };
        let mut extent = last + 1 - self.lower();
        while extent % self.alignment as isize != 0 {
            extent += 1;
        }
        extent
    }

    pub(super) fn put(&mut self, count: usize, place: isize, of: &Map) {
        for index in 0..count as isize {
            let at = place + index * of.extent();
            self.bytes.extend(of.bytes.iter().map(|byte| byte + at));
            self.marks.extend(of.marks.iter().map(|mark| (mark.0 + at, mark.1 + at)));
            self.alignment = self.alignment.max(of.alignment);
        }
    }

    pub(super) fn of(plan: &Plan) -> Map {
        let mut map = Map::default();
        match plan {
            Plan::Basic(which) => {
                let (size, alignment) =
                    [(1, 1), (2, 2), (4, 4), (8, align_of::<f64>()), (16, align_of::<u128>())][*which];
                map = Map { bytes: (0..size).collect(), marks: Vec::new(), alignment };
            }
            Plan::Vector { count, block, stride, bytes, of } => {
                let of = Map::of(of);
                let unit = if *bytes { 1 } else { of.extent() };
                (0..*count as isize).for_each(|index| map.put(*block, index * stride * unit, &of));
            }
            Plan::Indexed { blocks, bytes, of } => {
                let of = Map::of(of);
                let unit = if *bytes { 1 } else { of.extent() };
                blocks.iter().for_each(|&(count, place)| map.put(count, place * unit, &of));
            }
            Plan::IndexedBlock { block, places, bytes, of } => {
                let of = Map::of(of);
                let unit = if *bytes { 1 } else { of.extent() };
                places.iter().for_each(|place| map.put(*block, place * unit, &of));
            }
            Plan::Structure(fields) => {
                fields.iter().for_each(|(count, place, of)| map.put(*count, *place, &Map::of(of)))
            }
            Plan::Subarray { dimensions, order, of } => {
                let (of, all) = (Map::of(of), dimensions.iter().map(|d| d.0).product::<usize>() as isize);
                map.put_array(dimensions, *order, &of, 0, 0);
                map.marks = vec![(0, all * of.extent())];
            }
            Plan::Resized { lower, extent, of } => {
                map = Map::of(of);
                map.marks = vec![(*lower, lower + extent)];
            }
        }
        map
    }

    /// The elements of an array's part, slowest dimension first: `element` is the number of the one so far.
    fn put_array(
        &mut self,
        dimensions: &[(usize, usize, usize)],
        order: Order,
        of: &Map,
        level: usize,
        element: isize,
    ) {
        if level == dimensions.len() {
            return self.put(1, element * of.extent(), of);
        }
        let place = if order == Order::C { level } else { dimensions.len() - 1 - level };
        let (size, subsize, start) = dimensions[place];
        for index in start..start + subsize {
            self.put_array(dimensions, order, of, level + 1, element * size as isize + index as isize);
        }
    }
}

pub(super) fn plan() -> impl Strategy<Value = Plan> {
    let basic = (0usize..5).prop_map(Plan::Basic);
    basic.prop_recursive(4, 24, 3, |inner| {
        let of = inner.clone().prop_map(Box::new);
        let blocks = prop::collection::vec((0usize..4, -12isize..24), 0..5);
        let apart = prop::collection::vec((0usize..3, 0isize..3), 1..6).prop_map(|steps| {
            let mut at = 0;
            let mut step = |(count, gap): (usize, isize)| {
                at += count as isize + gap;
                (count, at - count as isize - gap)
            };
            steps.into_iter().map(&mut step).collect::<Vec<_>>()
        });
        let places = prop_oneof![
            prop::collection::vec(-12isize..24, 0..5),
            (1isize..5, 1isize..6).prop_map(|(step, count)| (0..count).map(|index| index * step).collect()),
        ];
        let dimensions = prop::collection::vec((1usize..4, 0usize..3, 0usize..3), 1..4).prop_map(|all| {
            let fit = |(size, more, start)| (size + more + start, size, start);
            all.into_iter().map(fit).collect::<Vec<_>>()
        });
        let fields = prop::collection::vec((0usize..3, 0isize..60, inner), 0..4).prop_map(|mut fields| {
            // Half of them in order, so that many do not overlap.
            let mut at = 0;
            for (index, field) in fields.iter_mut().enumerate().filter(|(index, _)| index % 2 == 0 || *index < 3) {
                let map = Map::of(&field.2);
                field.1 = at - map.lower() + index as isize;
                at += map.extent().abs() * field.0 as isize + 2;
            }
            Plan::Structure(fields)
        });
        let order = any::<bool>().prop_map(|c| if c { Order::C } else { Order::Fortran });
        prop_oneof![
            (0usize..5, 0usize..4, prop_oneof![-9isize..9, 4isize..9], of.clone())
                .prop_map(|(count, block, stride, of)| Plan::Vector { count, block, stride, bytes: false, of }),
            (1usize..5, 1usize..3, prop_oneof![-99isize..99, 100isize..300], of.clone())
                .prop_map(|(count, block, stride, of)| Plan::Vector { count, block, stride, bytes: true, of }),
            (prop_oneof![blocks, apart], any::<bool>(), of.clone()).prop_map(|(blocks, bytes, of)| Plan::Indexed {
                blocks,
                bytes,
                of
            }),
            (0usize..3, places, any::<bool>(), of.clone()).prop_map(|(block, places, bytes, of)| Plan::IndexedBlock {
                block,
                places,
                bytes,
                of
            }),
            fields,
            (dimensions, order, of.clone()).prop_map(|(dimensions, order, of)| Plan::Subarray {
                dimensions,
                order,
                of
            }),
            (-9isize..9, 0isize..120, of).prop_map(|(lower, extent, of)| Plan::Resized { lower, extent, of }),
        ]
    })
}

/// Whether no byte is there twice.
pub(super) fn apart(map: &Map) -> bool {
    let mut sorted = map.bytes.clone();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}
