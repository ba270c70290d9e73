//! The data that ranks of a job exchange through their launcher.

use super::*;

/// Runs [`a_rank`] under the launcher.
fn ranks(args: &[&str], behaviour: &str) -> Output {
    let mut command = Command::new(binary("tickwire"));
    command.arg("run").args(args).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--exact", "ranks::a_rank", "--ignored", "--nocapture"]);
    command.env("TEST_BEHAVIOUR", behaviour).stdin(Stdio::null()).output().unwrap()
}

#[test]
#[ignore = "a rank, started by the other tests under the launcher; alone it is a world of one"]
fn a_rank() {
    let behaviour = std::env::var("TEST_BEHAVIOUR").unwrap_or_default();
    let bootstrap = Bootstrap::from_env().unwrap();
    let (rank, size, job) = (bootstrap.rank(), bootstrap.size(), bootstrap.job().to_owned());
    assert!(size == 1 || Bootstrap::from_env().unwrap_err().to_string().contains("already taken"));
    let mut exchange = bootstrap.into_exchange();
    let value = |rank: u32| format!("rank {rank} of {job}").repeat(rank as usize + 1).into_bytes();
    exchange.put("address", &value(rank)).unwrap();
    exchange.fence().unwrap();
    let all = exchange.get_all("address").unwrap();
    assert_eq!(all, (0..size).map(|rank| Some(value(rank))).collect::<Vec<_>>());
    for round in 0..20u32 {
        // Between two fences each rank sees exactly the values of this round.
        exchange.put("round", &round.to_le_bytes()).unwrap();
        exchange.fence().unwrap();
        let next = (rank + round) % size;
        assert_eq!(exchange.get(next, "round").unwrap(), Some(round.to_le_bytes().to_vec()));
        exchange.fence().unwrap();
    }
    assert_eq!(exchange.get(0, "nothing").unwrap(), None);
    match behaviour.as_str() {
        "abort" if rank == 1 => std::process::abort(),
        "leave" if rank == 1 => std::process::exit(0),
        "abort" | "leave" => {
            // Nobody waits for the dead rank, and every other rank is told of its end.
            exchange.fence().unwrap();
            let mut event = None;
            until("no event", || {
                event = exchange.poll_event();
                event.is_some()
            });
            let Some(BootstrapEvent::RankEnded { rank: 1, reason }) = event else {
                panic!("{event:?}");
            };
            println!("rank {rank}: {reason}");
            exchange.fence().unwrap();
        }
        _ => {}
    }
    exchange.finish();
}

#[test]
fn ranks_exchange_values_and_meet_at_fences() {
    for n in ["1", "2", "7", "24"] {
        let output = ranks(&["-n", n], "");
        assert_eq!(output.status.code(), Some(0), "{} {}", stdout(&output), stderr(&output));
    }
}

#[test]
fn the_end_of_a_rank_is_told_to_the_others_and_fences_go_on_without_it() {
    let output = ranks(&["-n", "4", "--on-failure=continue"], "abort");
    assert_eq!(output.status.code(), Some(134), "{} {}", stdout(&output), stderr(&output));
    let told = stdout(&output).matches(": killed by signal 6 (SIGABRT)").count();
    assert_eq!(told, 3, "{} {}", stdout(&output), stderr(&output));
}

#[test]
fn a_rank_that_exits_before_it_has_finished_has_failed() {
    let output = ranks(&["-n", "3", "--on-failure=continue"], "leave");
    assert_eq!(output.status.code(), Some(1));
    let expected = "tickwire run: rank 1 exited before its engine had finished; the other ranks go on";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    assert_eq!(stdout(&output).matches(": exited before its engine had finished").count(), 2);
}

/// Runs [`a_rank`] without the launcher, as if another launcher had set these variables.
fn started_otherwise(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "ranks::a_rank", "--ignored", "--nocapture"]).envs(variables.iter().copied());
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_rank_of_another_launcher_is_no_world_of_one_unless_it_is_told_to_be() {
    let foreign = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "0")];
    let refused = started_otherwise(&foreign);
    let text = stderr(&refused) + &stdout(&refused);
    assert!(!refused.status.success(), "{text}");
    assert!(text.contains("Foreign") && text.contains("OMPI_COMM_WORLD_SIZE"), "{text}");
    let told = started_otherwise(&[&foreign[..], &[("TICKWIRE_SOLO", "1")]].concat());
    assert!(told.status.success(), "{} {}", stdout(&told), stderr(&told));
}

#[test]
fn ranks_of_a_job_within_another_launchers_are_ranks_of_the_job() {
    let script = "echo $TICKWIRE_RANK of $TICKWIRE_SIZE, ${TICKWIRE_SOLO:-not} alone";
    let mut command = launcher(&["-n", "2"], script);
    command.envs([("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("TICKWIRE_SOLO", "1")]);
    let output = command.output().unwrap();
    assert_eq!(sorted_lines(&stdout(&output)), ["0 of 2, not alone", "1 of 2, not alone"]);
}
