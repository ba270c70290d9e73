//! How a command fails: one line on stderr and an exit status.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::error::ErrorKind;

/// The names of the commands. Errors begin with them.
const COMMANDS: [&str; 8] = ["run", "top", "dump", "whowaits", "trace", "perf", "info", "completions"];

/// Why a command failed, in words that say what to do.
#[derive(Debug)]
pub(crate) struct Fault {
    wrong_use: bool,
    words: String,
}

impl Fault {
    /// The caller asked for something that is not possible. The exit status is 2.
    pub(crate) fn wrong_use(words: impl Into<String>) -> Self {
        Fault { wrong_use: true, words: words.into() }
    }

    /// Any other failure. The exit status is 1.
    pub(crate) fn failure(words: impl Into<String>) -> Self {
        Fault { wrong_use: false, words: words.into() }
    }

    /// The text of the error line.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// Puts the place of the failure before the text.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.words = format!("{place}: {}", self.words);
        self
    }
}

impl<E: Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Fault::failure(error.to_string())
    }
}

/// Writes the output of a command to stdout. A reader that has closed it, such as `head`, is no error.
///
/// # Errors
/// The output cannot be written, for example since the file system is full.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Fault::failure(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// The exit status of a command, and its line if it failed.
pub(crate) fn report(command: &str, result: Result<ExitCode, Fault>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(fault) => {
            say(command, &fault.words);
            ExitCode::from(if fault.wrong_use { 2 } else { 1 })
        }
    }
}

/// A command line that clap did not understand, or a request for help.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed stdout is no reason to panic.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let command = std::env::args_os().nth(1).and_then(|word| word.into_string().ok());
    let command = command.filter(|word| COMMANDS.contains(&&**word)).unwrap_or_default();
    let text = match error.kind() {
        // The text of this error would be the whole help.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "error: what to do is missing".to_owned(),
        _ => error.render().to_string(),
    };
    // The error stands before the first blank line. Hints and the usage follow, and are left out.
    let words: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let words = words.join(" ");
    let help = if command.is_empty() { "tickwire --help".to_owned() } else { format!("tickwire {command} --help") };
    say(&command, &format!("{}; see `{help}`", words.strip_prefix("error: ").unwrap_or(&words)));
    ExitCode::from(2)
}

fn say(command: &str, words: &str) {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let space = if command.is_empty() { "" } else { " " };
    // Parts of it may come from other processes and hosts. Without control characters they cannot move the terminal's cursor.
    let words = words.replace(char::is_control, " ");
    write_line(&format!("{red}tickwire{space}{command}:{red:#} {words}"));
}

/// Writes a whole line to stderr, with its colours removed if that is no terminal. It is a single write, so that lines of several ranks do
/// not mix. A closed stderr is no reason to panic.
pub(crate) fn write_line(words: &str) {
    let mut shown = AutoStream::new(Vec::new(), AutoStream::choice(&io::stderr()));
    let _ = writeln!(shown, "{words}");
    let _ = io::stderr().write_all(&shown.into_inner());
}
