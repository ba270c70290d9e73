//! The rows of a rank, and the matrix: four times a point minus its four neighbours. Outside of the plate, points are 0.

use std::ops::Range;

/// Values of the own rows, with a row of each neighbour.
pub(crate) struct Band {
    width: usize,
    values: Vec<f64>,
}

/// The rows that neighbours exchange.
pub(crate) struct Rows<'a> {
    /// The row of the neighbour above, to be received.
    pub(crate) above: &'a mut [f64],
    /// The own first row, to be sent.
    pub(crate) first: &'a [f64],
    /// The own last row, to be sent.
    pub(crate) last: &'a [f64],
    /// The row of the neighbour below, to be received.
    pub(crate) below: &'a mut [f64],
}

impl Band {
    /// A band of whole rows.
    pub(crate) fn new(width: usize, own: &[f64]) -> Self {
        let mut values = vec![0.0; own.len() + 2 * width];
        values[width..width + own.len()].copy_from_slice(own);
        Band { width, values }
    }

    /// The own values.
    pub(crate) fn cells(&self) -> &[f64] {
        &self.values[self.width..self.values.len() - self.width]
    }

    /// The own values, to be changed.
    pub(crate) fn cells_mut(&mut self) -> &mut [f64] {
        let end = self.values.len() - self.width;
        &mut self.values[self.width..end]
    }

    /// The rows that are exchanged with the neighbours.
    pub(crate) fn rows(&mut self) -> Rows<'_> {
        let width = self.width;
        let (above, rest) = self.values.split_at_mut(width);
        let (own, below) = rest.split_at_mut(rest.len() - width);
        Rows { above, first: &own[..width], last: &own[own.len() - width..], below }
    }

    /// The matrix times the values.
    pub(crate) fn multiply(&self, product: &mut [f64]) {
        let width = self.width;
        for (row, product) in product.chunks_exact_mut(width).enumerate() {
            let above = &self.values[row * width..][..width];
            let here = &self.values[(row + 1) * width..][..width];
            let below = &self.values[(row + 2) * width..][..width];
            for (at, product) in product.iter_mut().enumerate() {
                let left = if at > 0 { here[at - 1] } else { 0.0 };
                let right = if at + 1 < width { here[at + 1] } else { 0.0 };
                *product = 4.0 * here[at] - left - right - above[at] - below[at];
            }
        }
    }
}

/// A scalar product.
pub(crate) fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// The points that each rank has. The ranks' numbers of rows differ by one at most.
pub(crate) fn places(width: usize, height: usize, ranks: u32) -> Vec<Range<usize>> {
    let row = |rank: u32| height * rank as usize / ranks as usize;
    (0..ranks).map(|rank| row(rank) * width..row(rank + 1) * width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_one_rank() {
        for (width, height, ranks) in [(1, 1, 1), (5, 7, 3), (10, 9, 9), (3, 100, 7)] {
            let places = places(width, height, ranks);
            assert!(places.windows(2).all(|pair| pair[0].end == pair[1].start && !pair[0].is_empty()));
            assert_eq!((places[0].start, places[ranks as usize - 1].end), (0, width * height));
        }
    }

    #[test]
    fn bands_together_multiply_as_the_whole_does() {
        let (width, height) = (4, 5);
        let values: Vec<f64> = (0..width * height).map(|at| (at * at % 17) as f64).collect();
        let mut expected = vec![0.0; values.len()];
        Band::new(width, &values).multiply(&mut expected);
        let mut product = Vec::new();
        for place in places(width, height, 3) {
            let mut band = Band::new(width, &values[place.clone()]);
            let rows = band.rows();
            if place.start > 0 {
                rows.above.copy_from_slice(&values[place.start - width..place.start]);
            }
            if place.end < values.len() {
                rows.below.copy_from_slice(&values[place.end..place.end + width]);
            }
            let mut part = vec![0.0; place.len()];
            band.multiply(&mut part);
            product.extend(part);
        }
        assert_eq!(product, expected);
        assert_eq!(expected[0], 4.0 * values[0] - values[1] - values[width]);
    }
}
