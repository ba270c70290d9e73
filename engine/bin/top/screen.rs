//! The live tables: what `tickwire top` draws on a terminal, and its keys.

use std::io;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Row as Cells, Table, TableState};

use super::figures::{PEERS, RANKS, Rank, Row, TRANSPORTS, Transport, ranks};
use super::{Sample, headline};

/// What the user has chosen, and what is shown.
struct Screen {
    before: Option<Sample>,
    now: Sample,
    ranks: Vec<Rank>,
    column: usize,
    descending: bool,
    /// The rank whose peers are shown.
    chosen: u32,
    stopped: bool,
}

/// Draws until the user ends it; `true` if the job has ended first.
///
/// # Errors
/// The terminal cannot be used.
pub(super) fn watch(first: Sample, interval: Duration) -> io::Result<bool> {
    let mut terminal = ratatui::try_init()?;
    let ended = run(&mut terminal, Screen::new(first), interval);
    ratatui::restore();
    ended
}

fn run(terminal: &mut ratatui::DefaultTerminal, mut screen: Screen, interval: Duration) -> io::Result<bool> {
    // The first figures come soon, whatever the interval.
    let mut due = Instant::now() + interval.min(Duration::from_millis(250));
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && screen.key(key.code, key.modifiers)
            {
                return Ok(false);
            }
            continue;
        }
        due = Instant::now() + interval;
        if screen.stopped {
            continue;
        }
        match Sample::take(Some(&screen.now.job)) {
            Ok(sample) => screen.show(sample),
            Err(_) => return Ok(true),
        }
    }
}

impl Screen {
    fn new(now: Sample) -> Self {
        let ranks = ranks(&now, &now);
        Screen { before: None, now, ranks, column: 0, descending: false, chosen: 0, stopped: false }
    }

    fn show(&mut self, sample: Sample) {
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

    /// A key; `true` ends.
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
                // The state is no number.
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

    fn draw(&self, frame: &mut Frame<'_>) {
        let transports = Transport::all(&self.ranks);
        let rows = self.ranks.len() as u16 + 3;
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
        let cells = transports.iter().map(|transport| Cells::new(transport.cells()));
        frame.render_widget(plain("transports", TRANSPORTS, cells.collect()), middle);
        if let Some(rank) = self.ranks.iter().find(|rank| rank.rank == self.chosen) {
            let cells = rank.peers.iter().map(|peer| Cells::new(peer.cells()).style(of_connection(peer.state)));
            frame.render_widget(plain(&format!("peers of rank {}", rank.rank), PEERS, cells.collect()), lower);
        }
        let keys = "q end   s sort   r reverse   ↑ ↓ rank   p stop and go on";
        frame.render_widget(Line::styled(keys, Style::new().fg(Color::DarkGray)), foot);
    }

    fn draw_ranks(&self, frame: &mut Frame<'_>, area: Rect) {
        let header = RANKS.iter().enumerate().map(|(column, name)| match column == self.column {
            true => Cell::new(format!("{name} {}", if self.descending { '▼' } else { '▲' }))
                .style(Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan)),
            false => Cell::new(*name),
        });
        let rows = self.ranks.iter().map(|rank| Cells::new(rank.cells()).style(of_state(&rank.state)));
        let widths = [5, 8, 15, 9, 6, 7, 13, 12, 10, 10, 10, 8, 8, 7, 18].map(Constraint::Length);
        let table = Table::new(rows, widths)
            .header(Cells::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(Block::bordered().title("ranks"));
        let mut state = TableState::default();
        state.select(self.ranks.iter().position(|rank| rank.rank == self.chosen));
        frame.render_stateful_widget(table, area, &mut state);
    }
}

fn plain<'a, const N: usize>(title: &str, header: [&'a str; N], rows: Vec<Cells<'a>>) -> Table<'a> {
    Table::new(rows, [Constraint::Fill(1); N])
        .header(Cells::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
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
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn sample() -> Sample {
        let process =
            |rank| tickwire::jobs::Process { pid: 100 + rank, job: "job-1".into(), rank, size: 3, pages: Vec::new() };
        let processes = (0..2).map(|rank| (process(rank), None)).collect();
        Sample { at: Instant::now(), now_ns: 0, job: "job-1".into(), size: 3, processes }
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
        let mut terminal = Terminal::new(TestBackend::new(150, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let shown = terminal.backend().to_string();
        for words in
            ["tickwire top  job job-1: 3 ranks, 0 with an engine", "TICKS/S ▼", "no process", "peers of rank 1"]
        {
            assert!(shown.contains(words), "{words} in\n{shown}");
        }
    }
}
