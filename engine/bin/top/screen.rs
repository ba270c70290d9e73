//! The live tables: what `tickwire top` draws on a terminal, and its keys.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Row as Cells, Table, TableState};
use rustix::process::Signal;

use super::figures::{PEERS, RANKS, Rank, Row, TRANSPORTS, Transport, ranks};
use super::{Sample, Watch, headline};
use crate::fault::Fault;

/// Columns of the table of ranks that are left out on a narrow terminal. Those that tell least go first.
const DROPPED: [usize; 9] = [10, 1, 7, 6, 11, 5, 13, 12, 9];

/// Columns that hold words, in the tables of ranks, of transports, and of peers. All other columns hold numbers.
const STATE: usize = 2;
const TRANSPORT: &[usize] = &[0];
const CONNECTION: &[usize] = &[1, 2, 3];

/// What the user has chosen, and what is shown.
pub(super) struct Screen {
    before: Option<Sample>,
    now: Sample,
    ranks: Vec<Rank>,
    column: usize,
    descending: bool,
    /// The rank whose peers are shown.
    chosen: u32,
    stopped: bool,
}

/// The signals that end a command from outside, as `timeout` and a lost terminal do.
const SIGNALS: [Signal; 3] = [Signal::TERM, Signal::HUP, Signal::INT];

/// How long a signal may wait until it is seen.
const SIGNAL_WAIT: Duration = Duration::from_millis(250);

/// Why the screen is no longer drawn.
enum End {
    Job,
    User,
    Signal(i32),
}

/// What comes first.
enum Next {
    Time,
    Event(Event),
    Signal(i32),
}

/// Draws until the user ends the command or the job has ended. Returns `true` if the job has ended. A signal ends the process in its usual
/// way, after the terminal is as it was.
///
/// # Errors
/// The terminal cannot be used.
pub(super) fn watch(job: Watch, first: Sample, interval: Duration) -> Result<bool, Fault> {
    let signal = Arc::new(AtomicUsize::new(0));
    for caught in SIGNALS {
        let number = caught.as_raw();
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)?;
    }
    let mut terminal = ratatui::try_init()?;
    let ended = run(&mut terminal, job, Screen::new(first), interval, &signal);
    ratatui::restore();
    // Shows the cursor again.
    drop(terminal);
    match ended? {
        End::Job => Ok(true),
        End::User => Ok(false),
        End::Signal(number) => {
            signal_hook::low_level::emulate_default_handler(number)?;
            Ok(false)
        }
    }
}

/// Waits for an event of the terminal, a signal, or the time that is `due`.
fn next(due: Instant, signal: &AtomicUsize) -> io::Result<Next> {
    loop {
        let number = signal.load(Ordering::Relaxed);
        if number != 0 {
            return Ok(Next::Signal(number as i32));
        }
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left.min(SIGNAL_WAIT))? {
            return Ok(Next::Event(event::read()?));
        }
        if left <= SIGNAL_WAIT {
            return Ok(Next::Time);
        }
    }
}

fn run(
    terminal: &mut ratatui::DefaultTerminal,
    mut job: Watch,
    mut screen: Screen,
    interval: Duration,
    signal: &AtomicUsize,
) -> Result<End, Fault> {
    // The first figures come soon, whatever the interval.
    let mut due = Instant::now() + interval.min(Duration::from_millis(250));
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        match next(due, signal)? {
            Next::Time => {}
            Next::Signal(number) => return Ok(End::Signal(number)),
            Next::Event(Event::Key(key)) if key.kind == KeyEventKind::Press && screen.key(key.code, key.modifiers) => {
                return Ok(End::User);
            }
            Next::Event(_) => continue,
        }
        due = Instant::now() + interval;
        if screen.stopped {
            continue;
        }
        match job.look() {
            Ok(Some(sample)) => screen.show(sample),
            Ok(None) => return Ok(End::Job),
            Err(fault) => return Err(fault),
        }
    }
}

impl Screen {
    /// Shows the first sample. Rates follow with the next one.
    pub(super) fn new(now: Sample) -> Self {
        let ranks = ranks(&now, &now);
        Screen { before: None, now, ranks, column: 0, descending: false, chosen: 0, stopped: false }
    }

    /// Shows a further sample, and the rates since the sample before.
    pub(super) fn show(&mut self, sample: Sample) {
        let before = std::mem::replace(&mut self.now, sample);
        self.ranks = ranks(&before, &self.now);
        self.before = Some(before);
        self.sort();
    }

    fn sort(&mut self) {
        let column = self.column;
        self.ranks.sort_by(|a, b| {
            let order = a.key(column).total_cmp(&b.key(column));
            if self.descending { order.reverse() } else { order }.then(a.rank.cmp(&b.rank))
        });
    }

    /// Handles a key. Returns `true` if the key ends the command.
    fn key(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        let step = |ranks: &[Rank], chosen: u32, by: isize| {
            let at = ranks.iter().position(|rank| rank.rank == chosen).unwrap_or(0);
            let next = at.saturating_add_signed(by).min(ranks.len().saturating_sub(1));
            ranks.get(next).map_or(0, |rank| rank.rank)
        };
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('p') => self.stopped = !self.stopped,
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Char('s') => {
                // Sorting by process number or by state would tell nothing, so these columns are skipped.
                self.column = match (self.column + 1) % RANKS.len() {
                    1 | 2 => 3,
                    column => column,
                };
                self.descending = self.column != 0;
            }
            KeyCode::Up | KeyCode::Char('k') => self.chosen = step(&self.ranks, self.chosen, -1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = step(&self.ranks, self.chosen, 1),
            _ => {}
        }
        self.sort();
        false
    }

    /// Width and height at which nothing is left out.
    pub(super) fn size(&self) -> (u16, u16) {
        let cells: Vec<_> = self.ranks.iter().map(Row::cells).collect();
        let columns = columns(&self.header(), &cells, u16::MAX - 2, self.column);
        let width = columns.iter().map(|(_, width)| width + 1).sum::<u16>() + 1;
        let peers = self.ranks.iter().find(|rank| rank.rank == self.chosen).map_or(0, |rank| rank.peers.len());
        let rows = self.ranks.len().max(1) + Transport::all(&self.ranks).len().max(1) + peers.max(1);
        // Three frames and headers, the title and the keys.
        (width, (rows + 3 * 3 + 2).min(usize::from(u16::MAX)) as u16)
    }

    /// Draws the whole screen.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let transports = Transport::all(&self.ranks);
        let rows = u16::try_from(self.ranks.len()).unwrap_or(u16::MAX).saturating_add(3);
        let below = transports.len() as u16 + 3;
        let [head, upper, middle, lower, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Max(rows.max(4)),
            Constraint::Length(below.max(4)),
            Constraint::Min(4),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let stopped = if self.stopped { "  stopped" } else { "" };
        let waits = if self.before.is_none() { "  first figures follow" } else { "" };
        let title = Line::from(vec![
            Span::styled("tickwire top", Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan)),
            Span::raw(format!("  {}{stopped}{waits}", headline(&self.now))),
        ]);
        frame.render_widget(title, head);
        self.draw_ranks(frame, upper);
        let cells = transports.iter().map(|transport| row(transport.cells(), TRANSPORT));
        frame.render_widget(plain("transports", TRANSPORTS, TRANSPORT, cells.collect()), middle);
        if let Some(rank) = self.ranks.iter().find(|rank| rank.rank == self.chosen) {
            let cells = rank.peers.iter().map(|peer| row(peer.cells(), CONNECTION).style(of_connection(peer.state)));
            let title = format!("peers of rank {}", rank.rank);
            frame.render_widget(plain(&title, PEERS, CONNECTION, cells.collect()), lower);
        }
        let keys = "q end   s sort   r reverse   ↑ ↓ rank   p stop and go on";
        frame.render_widget(Line::styled(keys, Style::new().fg(Color::DarkGray)), foot);
    }

    /// The columns' names, with an arrow at the one that is sorted by.
    fn header(&self) -> [String; RANKS.len()] {
        let arrow = if self.descending { '▼' } else { '▲' };
        let mut header = RANKS.map(str::to_owned);
        header[self.column] += &format!(" {arrow}");
        header
    }

    fn draw_ranks(&self, frame: &mut Frame<'_>, area: Rect) {
        let header = self.header();
        let cells: Vec<_> = self.ranks.iter().map(Row::cells).collect();
        let columns = columns(&header, &cells, area.width.saturating_sub(2), self.column);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let title = |&(column, _): &(usize, u16)| {
            let style = if column == self.column { bold.fg(Color::Cyan) } else { bold };
            aligned(header[column].clone(), column != STATE).style(style)
        };
        let rows = self.ranks.iter().zip(&cells).map(|(rank, cells)| {
            let cell = |&(column, _): &(usize, u16)| aligned(cells[column].clone(), column != STATE);
            Cells::new(columns.iter().map(cell)).style(of_state(&rank.state))
        });
        let table = Table::new(rows, columns.iter().map(|&(_, width)| Constraint::Length(width)))
            .header(Cells::new(columns.iter().map(title)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(Block::bordered().title("ranks"));
        let mut state = TableState::default();
        state.select(self.ranks.iter().position(|rank| rank.rank == self.chosen));
        frame.render_stateful_widget(table, area, &mut state);
    }
}

/// The columns that fit into a width, each with its own width. If not all fit, those that tell least are left out first, but
/// never the column by which the table is sorted.
fn columns<const N: usize>(
    header: &[String; N],
    cells: &[[String; N]],
    width: u16,
    sorted: usize,
) -> Vec<(usize, u16)> {
    let width_of = |column: usize| {
        let cells = cells.iter().map(|cells| &cells[column]).chain([&header[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0) as u16
    };
    let mut columns: Vec<(usize, u16)> = (0..N).map(|column| (column, width_of(column))).collect();
    for dropped in DROPPED {
        if columns.iter().map(|(_, width)| width + 1).sum::<u16>() <= width + 1 {
            break;
        }
        columns.retain(|&(column, _)| column != dropped || column == sorted);
    }
    columns
}

/// A cell. Words are aligned to the left, numbers to the right.
fn aligned<'a>(cell: impl Into<Text<'a>>, number: bool) -> Cell<'a> {
    let text: Text<'a> = cell.into();
    Cell::new(if number { text.right_aligned() } else { text })
}

fn row<'a, C: Into<Text<'a>>, const N: usize>(cells: [C; N], words: &[usize]) -> Cells<'a> {
    Cells::new(cells.into_iter().enumerate().map(|(column, cell)| aligned(cell, !words.contains(&column))))
}

/// Characters of the longest figure, with its unit.
const FIGURE: u16 = 9;

/// A table that takes the whole width. Columns share it in proportion to their names, or to a figure if that is longer.
fn plain<'a, const N: usize>(title: &str, header: [&'a str; N], words: &[usize], rows: Vec<Cells<'a>>) -> Table<'a> {
    let widths = header.map(|name| Constraint::Fill((name.len() as u16).max(FIGURE)));
    Table::new(rows, widths)
        .header(row(header, words).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(title.to_owned()))
}

fn of_state(state: &str) -> Style {
    Style::new().fg(match state {
        "ticking" => Color::Green,
        "asleep" | "starting" => Color::Yellow,
        "closed" => Color::DarkGray,
        _ => Color::Red,
    })
}

fn of_connection(state: &str) -> Style {
    match state {
        "failed" => Style::new().fg(Color::Red),
        "connecting" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn sample() -> Sample {
        let ranks = (0..2).map(|rank| (rank, Seen::Process { pid: 100 + rank, page: None })).collect();
        Sample { at: Instant::now(), job: "job-1".into(), size: 3, ranks }
    }

    #[test]
    fn the_screen_shows_ranks_and_follows_the_keys() {
        let mut screen = Screen::new(sample());
        screen.show(sample());
        let none = KeyModifiers::NONE;
        assert!(!screen.key(KeyCode::Down, none) && !screen.key(KeyCode::Char('r'), none));
        assert_eq!((screen.chosen, screen.ranks[0].rank), (1, 2), "the order is turned around");
        assert!(!screen.key(KeyCode::Char('s'), none));
        assert_eq!((screen.column, screen.descending), (3, true));
        assert!(screen.key(KeyCode::Char('q'), none) && screen.key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        let shown = |width| {
            let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
            terminal.backend().to_string()
        };
        let narrow = shown(80);
        let (width, height) = screen.size();
        let header = |width| shown(width).lines().nth(2).map(str::to_owned).unwrap();
        let whole = |width| RANKS.iter().all(|column| header(width).contains(column));
        assert!(whole(width) && !whole(width - 1), "{width}");
        let has_peers = |line: &str| PEERS.iter().all(|column| line.contains(column));
        assert!(shown(width).lines().any(has_peers), "{}", shown(width));
        assert_eq!(usize::from(height), 2 + (3 + 3) + (3 + 1) + (3 + 1));
        assert!(
            narrow.contains("TICKS/S ▼") && narrow.contains("UNEXPECTED") && !narrow.contains("READ/S  P"),
            "{narrow}"
        );
        let shown = shown(150);
        for words in
            ["tickwire top  job job-1: 3 ranks, 0 with an engine", "TICKS/S ▼", "no process", "peers of rank 1"]
        {
            assert!(shown.contains(words), "{words} in\n{shown}");
        }
    }
}
