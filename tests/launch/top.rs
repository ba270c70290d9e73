//! `tickwire top` on a terminal, when something other than its user ends it.

use super::streams::terminal;
use super::*;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;

/// What `stty` says of a terminal, or does with it.
fn stty(terminal: &File, args: &[&str]) -> String {
    let output = Command::new("stty").args(args).stdin(terminal.try_clone().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// Adds to `text` what is on the screen and was not read yet.
fn read(screen: &mut File, text: &mut String) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = screen.read(&mut bytes) {
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[test]
fn a_signal_that_ends_top_leaves_the_terminal_as_it_was() {
    let (job, _) = Running::start(launcher(&["-n", "1"], "echo $$ >&2; exec sleep 1000"), 1);
    let (screen, terminal) = terminal();
    rustix::io::ioctl_fionbio(&screen, true).unwrap();
    let mut screen = File::from(screen);
    stty(&terminal, &["rows", "40", "cols", "150"]);
    let before = stty(&terminal, &["-a"]);
    for (name, number) in [("TERM", 15), ("HUP", 1), ("INT", 2)] {
        let mut command = Command::new(binary("tickwire"));
        // No look comes after the first ones: the signal does not wait for the next.
        command.args(["top", &job.0.id().to_string(), "--interval", "3600000"]).env("TERM", "xterm");
        let stream = || terminal.try_clone().unwrap();
        let mut top = Running(command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap());
        let mut text = String::new();
        until("the screen is not drawn", || {
            read(&mut screen, &mut text);
            text.contains("\x1b[?1049h") && text.contains("UNEXPECTED")
        });
        assert!(stty(&terminal, &["-a"]).contains("-icanon"), "the test sees how the terminal is");
        top.signal(name);
        assert_eq!(top.wait().signal(), Some(number));
        read(&mut screen, &mut text);
        let shown = |words: &str| text.rfind(words);
        assert!(shown("\x1b[?1049l") > shown("\x1b[?1049h"), "the usual screen is back: {text:?}");
        assert!(shown("\x1b[?25h") > shown("\x1b[?25l"), "and so is the cursor: {text:?}");
        assert_eq!(stty(&terminal, &["-a"]), before);
    }
}
