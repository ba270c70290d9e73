//! Signals to the launcher: some end the job, and some are meant for the ranks.

use super::*;

/// What a rank does: it says which signals have come, and ends at SIGTERM.
const LISTEN: &str = r#"
    for name in HUP QUIT USR1 USR2; do trap "echo $TICKWIRE_RANK got $name" $name; done
    trap "echo $TICKWIRE_RANK ends; exit 0" TERM
    echo $$ >&2
    while :; do sleep 0.01; done"#;

/// The next lines of the ranks, sorted.
fn next_lines(output: &mut impl BufRead, count: usize) -> Vec<String> {
    let mut lines: Vec<String> = output.lines().take(count).map(Result::unwrap).collect();
    lines.sort_unstable();
    lines
}

/// What three ranks say, each of them once.
fn each(says: &str) -> Vec<String> {
    (0..3).map(|rank| format!("{rank} {says}")).collect()
}

/// Starts three ranks that listen. Returns their launcher, their process ids and their output.
fn listening(command: Command) -> (Running, Vec<u32>, impl BufRead) {
    let (mut running, pids) = Running::start(command, 3);
    let output = BufReader::new(running.0.stdout.take().unwrap());
    (running, pids, output)
}

/// Ends the job by SIGTERM. The ranks have said nothing since.
fn end_by_term((mut running, pids, mut output): (Running, Vec<u32>, impl BufRead)) {
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(143));
    assert_eq!(next_lines(&mut output, usize::MAX), each("ends"));
    all_gone(&pids);
}

#[test]
fn signals_for_programs_reach_every_rank_once_and_the_job_goes_on() {
    let (running, pids, mut output) = listening(launcher(&["-n", "3"], LISTEN));
    for name in ["USR1", "USR2", "USR1"] {
        running.signal(name);
        assert_eq!(next_lines(&mut output, 3), each(&format!("got {name}")));
    }
    end_by_term((running, pids, output));
}

#[test]
fn a_lost_terminal_and_a_quit_end_the_job_as_sigterm_does() {
    for (name, status) in [("HUP", 129), ("QUIT", 131)] {
        let (mut running, pids, mut output) = listening(launcher(&["-n", "3"], LISTEN));
        running.signal(name);
        assert_eq!(running.wait().code(), Some(status));
        assert_eq!(next_lines(&mut output, usize::MAX), each("ends"));
        all_gone(&pids);
    }
}

#[test]
fn sighup_reaches_the_ranks_where_it_asks_for_dumps() {
    for by_option in [false, true] {
        let variable = ("TICKWIRE_DUMP_SIGNAL", "HUP");
        let option = format!("{}={}", variable.0, variable.1);
        let mut command = match by_option {
            true => launcher(&["-n", "3", "--env", &option], LISTEN),
            false => launcher(&["-n", "3"], LISTEN),
        };
        if !by_option {
            command.env(variable.0, variable.1);
        }
        let (running, pids, mut output) = listening(command);
        running.signal("HUP");
        assert_eq!(next_lines(&mut output, 3), each("got HUP"));
        end_by_term((running, pids, output));
    }
}

/// As `nohup` starts it.
#[test]
fn a_signal_that_is_ignored_stays_ignored_for_launcher_and_ranks() {
    let run = r#"trap "" HUP; exec "$0" run -n 3 -- /bin/sh -c "$1""#;
    let script = "trap 'echo $TICKWIRE_RANK got USR1' USR1; kill -HUP $$;".to_owned() + LISTEN;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", run, binary("tickwire").to_str().unwrap(), &script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (running, pids, mut output) = listening(command);
    running.signal("HUP");
    running.signal("USR1");
    assert_eq!(next_lines(&mut output, 3), each("got USR1"));
    end_by_term((running, pids, output));
}
