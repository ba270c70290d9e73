//! `tickwire completions`: what makes a shell complete the words of this command.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// Writes a script that makes a shell complete this command's words.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  tickwire completions bash > ~/.local/share/bash-completion/completions/tickwire
  tickwire completions zsh > ~/.zfunc/_tickwire
  tickwire completions fish > ~/.config/fish/completions/tickwire.fish")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

/// Writes the script to stdout.
pub(crate) fn completions(args: CompletionsArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tickwire", &mut script);
    // A closed stdout is no reason to panic.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}
