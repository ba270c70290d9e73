//! The plate, its division into blocks, and what happens to a block in one time step.

/// In a step a cell takes over this fraction of its difference to each of the four neighbours. Up to a quarter that is stable.
const RATE: f64 = 0.2;
/// Rows that are computed between two ticks: a few µs.
const STRIP: usize = 16;

/// Temperatures, row by row.
pub(crate) struct Field {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) cells: Vec<f64>,
}

/// A part of the plate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    left: usize,
    top: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Width and height of the whole plate.
    plate: (usize, usize),
}

impl Field {
    pub(crate) fn new(width: usize, height: usize) -> Self {
        Field { width, height, cells: vec![0.0; width * height] }
    }

    /// Lowest and highest temperature.
    pub(crate) fn range(&self) -> (f64, f64) {
        let cells = self.cells.iter();
        cells.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &cell| (low.min(cell), high.max(cell)))
    }

    pub(crate) fn cut(&self, place: &Place) -> Vec<f64> {
        let rows = self.cells.chunks_exact(self.width).skip(place.top).take(place.height);
        rows.flat_map(|row| &row[place.left..place.left + place.width]).copied().collect()
    }

    pub(crate) fn paste(&mut self, place: &Place, cells: &[f64]) {
        let rows = self.cells.chunks_exact_mut(self.width).skip(place.top);
        for (row, from) in rows.zip(cells.chunks_exact(place.width)) {
            row[place.left..place.left + place.width].copy_from_slice(from);
        }
    }
}

/// How a plate is divided: columns × rows of blocks, rank after rank along the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grid {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Grid {
    /// The division with the shortest cuts in which every rank has a cell.
    ///
    /// # Errors
    /// No division gives every rank a cell.
    pub(crate) fn divide(width: usize, height: usize, ranks: u32) -> Result<Self, String> {
        let ranks = ranks as usize;
        let divisions = (1..=ranks).filter(|columns| ranks.is_multiple_of(*columns));
        let fitting = divisions.map(|columns| Grid { columns, rows: ranks / columns, width, height });
        fitting
            .filter(|grid| grid.columns <= width && grid.rows <= height)
            .min_by_key(|grid| (grid.columns - 1) * height + (grid.rows - 1) * width)
            .ok_or_else(|| format!("{ranks} ranks cannot share {width} x {height} cells: use fewer, or a larger plate"))
    }

    /// The block of a rank. Sizes differ by one cell at most.
    pub(crate) fn place(&self, rank: u32) -> Place {
        let (column, row) = (rank as usize % self.columns, rank as usize / self.columns);
        let (left, right) = (self.width * column / self.columns, self.width * (column + 1) / self.columns);
        let (top, bottom) = (self.height * row / self.rows, self.height * (row + 1) / self.rows);
        Place { left, top, width: right - left, height: bottom - top, plate: (self.width, self.height) }
    }

    /// The ranks above, below, to the left and to the right, where there are any.
    pub(crate) fn neighbours(&self, rank: u32) -> [Option<u32>; 4] {
        let (column, row) = (rank as usize % self.columns, rank as usize / self.columns);
        let columns = self.columns as u32;
        [
            (row > 0).then(|| rank - columns),
            (row + 1 < self.rows).then(|| rank + columns),
            (column > 0).then(|| rank - 1),
            (column + 1 < self.columns).then(|| rank + 1),
        ]
    }
}

/// One rank's cells, with one row or column of its neighbours on every side.
pub(crate) struct Block {
    place: Place,
    /// Cells of a row, the neighbours' included.
    stride: usize,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Block {
    pub(crate) fn new(place: &Place, cells: &[f64]) -> Self {
        let stride = place.width + 2;
        let mut now = vec![0.0; stride * (place.height + 2)];
        for (row, from) in now.chunks_exact_mut(stride).skip(1).zip(cells.chunks_exact(place.width)) {
            row[1..=place.width].copy_from_slice(from);
        }
        Block { place: *place, stride, next: now.clone(), now }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The own cells.
    pub(crate) fn cells(&self) -> Vec<f64> {
        let rows = self.now.chunks_exact(self.stride).skip(1).take(self.place.height);
        rows.flat_map(|row| &row[1..=self.place.width]).copied().collect()
    }

    /// The cells that a neighbour needs, by its direction: above, below, left, right.
    pub(crate) fn edge(&self, direction: usize) -> impl Iterator<Item = f64> {
        self.line(direction, 1).map(|place| self.now[place])
    }

    /// Takes in what a neighbour has sent.
    pub(crate) fn set_halo(&mut self, direction: usize, values: impl Iterator<Item = f64>) {
        for (place, value) in self.line(direction, 0).zip(values) {
            self.now[place] = value;
        }
    }

    /// Places of a line of cells along a side. At depth 0 these are the neighbour's cells, at depth 1 the outermost own cells.
    fn line(&self, direction: usize, depth: usize) -> impl Iterator<Item = usize> + use<> {
        let Place { width, height, .. } = self.place;
        let (first, step, count) = match direction {
            0 => (depth * self.stride + 1, 1, width),
            1 => ((height + 1 - depth) * self.stride + 1, 1, width),
            2 => (self.stride + depth, self.stride, height),
            _ => (self.stride + width + 1 - depth, self.stride, height),
        };
        (0..count).map(move |index| first + index * step)
    }

    /// Computes all cells that need nothing from a neighbour, in strips. `between` is called after each strip.
    pub(crate) fn compute_inside(&mut self, mut between: impl FnMut()) {
        let Place { width, height, .. } = self.place;
        let mut row = 2;
        while row < height {
            let end = (row + STRIP).min(height);
            for row in row..end {
                self.compute_row(row, 2, width);
            }
            row = end;
            between();
        }
    }

    /// Computes the cells at the sides, which need the neighbours' cells.
    pub(crate) fn compute_rim(&mut self) {
        let Place { width, height, .. } = self.place;
        self.compute_row(1, 1, width + 1);
        if height > 1 {
            self.compute_row(height, 1, width + 1);
        }
        for row in 2..height {
            self.compute_row(row, 1, 2);
            if width > 1 {
                self.compute_row(row, width, width + 1);
            }
        }
    }

    /// Computes the cells `from..to` of a row. Cells on the rim of the whole plate keep their temperature.
    fn compute_row(&mut self, row: usize, from: usize, to: usize) {
        let Place { left, top, plate, .. } = self.place;
        let y = top + row - 1;
        let start = row * self.stride;
        let fixed = y == 0 || y + 1 == plate.1;
        // The columns of the block that are not on the rim.
        let first = if left == 0 { from.max(2) } else { from };
        let last = to.min(plate.0 - left);
        if fixed || first >= last {
            self.next[start + from..start + to.max(from)]
                .copy_from_slice(&self.now[start + from..start + to.max(from)]);
            return;
        }
        let next = &mut self.next[start..start + self.stride];
        next[from..first].copy_from_slice(&self.now[start + from..start + first]);
        next[last..to].copy_from_slice(&self.now[start + last..start + to]);
        let above = &self.now[start - self.stride + first..][..last - first];
        let here = &self.now[start + first - 1..][..last - first + 2];
        let below = &self.now[start + self.stride + first..][..last - first];
        let cells = next[first..last].iter_mut().zip(here.windows(3)).zip(above.iter().zip(below));
        for ((cell, row), (above, below)) in cells {
            *cell = row[1] + RATE * (above + below + row[0] + row[2] - 4.0 * row[1]);
        }
    }

    /// Makes the computed temperatures the current ones.
    pub(crate) fn step(&mut self) {
        std::mem::swap(&mut self.now, &mut self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_one_owner_however_the_plate_is_divided() {
        for (width, height, ranks) in [(1, 1, 1), (7, 5, 3), (10, 1, 10), (13, 17, 12), (64, 64, 7), (2, 9, 18)] {
            let grid = Grid::divide(width, height, ranks).expect("it fits");
            let mut owners = Field::new(width, height);
            for rank in 0..ranks {
                let place = grid.place(rank);
                assert!(place.width * place.height > 0);
                let more: Vec<f64> = owners.cut(&place).iter().map(|cell| cell + 1.0).collect();
                owners.paste(&place, &more);
            }
            assert!(owners.cells.iter().all(|&cell| cell == 1.0), "{width} x {height} on {ranks}");
        }
        assert!(Grid::divide(3, 3, 10).is_err() && Grid::divide(4, 4, 7).is_err());
    }

    #[test]
    fn heat_spreads_evenly_and_the_rim_stays() {
        let mut field = Field::new(5, 5);
        field.cells[12] = 1.0;
        let place = Grid::divide(5, 5, 1).expect("it fits").place(0);
        let mut block = Block::new(&place, &field.cells);
        for _ in 0..2 {
            block.compute_inside(|| {});
            block.compute_rim();
            block.step();
        }
        let cells = block.cells();
        assert!([7, 11, 13, 17].iter().all(|&cell| (cells[cell] - cells[7]).abs() < 1e-15 && cells[cell] > 0.0));
        assert!(cells[..5].iter().chain(&cells[20..]).all(|&cell| cell == 0.0));
        assert!((cells[12] - (0.2 * 0.2 + 4.0 * 0.2 * 0.2)).abs() < 1e-15);
    }
}
