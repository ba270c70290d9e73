//! `tickwire completions`: writes a script that makes a shell complete the words of this command.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::fault::{Fault, print};

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
///
/// # Errors
/// The script cannot be written.
pub(crate) fn completions(args: CompletionsArgs, mut command: Command) -> Result<ExitCode, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tickwire", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
