use super::*;
use crate::bootstrap::pmi::server::{Manner, Server};
use crate::bootstrap::pmi::{Pmi, PmiPlace};
use crate::bootstrap::wire::VALUE_BYTES_MAX;

const PATIENCE: Duration = Duration::from_secs(20);
const HERE: [u8; 8] = *b"this one";

/// Runs `rank` as each of `size` ranks, in threads. Returns their results and the launcher.
fn job<T: Send>(
    size: u32,
    manner: Manner,
    identity: impl Fn(u32) -> [u8; 8] + Sync,
    rank: impl Fn(Hosted) -> T + Sync,
) -> (Vec<T>, Server) {
    let server = Server::new(size as usize, manner);
    let results = std::thread::scope(|scope| {
        let started: Vec<_> = (0..size)
            .map(|number| {
                let socket = server.rank().0;
                let (rank, identity) = (&rank, identity(number));
                scope.spawn(move || {
                    let place = PmiPlace { fd: -1, rank: number, size, patience: PATIENCE };
                    let pmi = Pmi::connect(place, socket.into()).unwrap();
                    rank(Hosted::meet_as(Box::new(pmi), identity, PATIENCE).unwrap())
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (results, server)
}

fn on(mapping: Option<&str>) -> Manner {
    Manner { mapping: mapping.map(Into::into), ..Manner::default() }
}

fn card(rank: u32, round: u32) -> Vec<u8> {
    format!("the card of rank {rank} in round {round}, {}", "x".repeat(rank as usize)).into_bytes()
}

/// Runs a test of this program in a process of its own: it changes what belongs to the whole process.
pub(super) fn run_by_itself(test: &str) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--ignored", "--test-threads=1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Two fences with values. The second fence replaces some values and adds others.
fn exchange(mut hosted: Hosted) -> (String, bool, Option<u32>) {
    let (me, size) = (hosted.rank(), hosted.size());
    hosted.put("card", b"replaced").unwrap();
    hosted.put("card", &card(me, 1)).unwrap();
    assert_eq!(hosted.get(me, "card").unwrap(), Some(card(me, 1)), "own values are there at once");
    hosted.fence().unwrap();
    let all: Vec<_> = (0..size).map(|rank| Some(card(rank, 1))).collect();
    assert_eq!(hosted.get_all("card").unwrap(), all);
    if me % 2 == 1 {
        hosted.put("card", &card(me, 2)).unwrap();
    }
    hosted.put("more", &[]).unwrap();
    hosted.fence().unwrap();
    for rank in 0..size {
        assert_eq!(hosted.get(rank, "card").unwrap(), Some(card(rank, 1 + rank % 2)));
        assert_eq!(hosted.get(rank, "more").unwrap(), Some(Vec::new()));
    }
    assert_eq!(hosted.get_all("nothing").unwrap(), vec![None; size as usize]);
    assert!(matches!(hosted.get(size, "card"), Err(BootstrapError::Rank { .. })));
    let seen = (hosted.job().to_owned(), hosted.one_host(), hosted.hosts());
    hosted.finish();
    assert!(matches!(hosted.fence(), Err(BootstrapError::Finished)));
    seen
}

#[test]
fn ranks_of_one_host_exchange_without_the_launcher() {
    let (seen, server) = job(8, on(Some("(vector,(0,1,8))")), |_| HERE, exchange);
    assert!(seen.iter().all(|of| *of == (seen[0].0.clone(), true, Some(1))), "{seen:?}");
    // The job's name, and the two fences in which the ranks find each other.
    let counts = server.seen(|seen| seen.counts.clone());
    assert_eq!((counts["put"], counts["barrier_in"], counts["finalize"]), (1, 16, 8));
}

#[test]
#[ignore = "is run by another test, in a process of its own"]
fn as_another_user() {
    // The threads that play the ranks have the same users as this one.
    rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(65534), None).unwrap();
    ranks_of_one_host_exchange_without_the_launcher();
}

/// The kernel says who is connected by the effective user, as that of a program with the set-user-ID bit.
#[test]
fn ranks_of_one_effective_user_are_a_group() {
    // Only root may take another effective user.
    if rustix::process::geteuid().is_root() {
        run_by_itself("bootstrap::hosted::tests::as_another_user");
    }
}

#[test]
fn several_hosts_put_one_table_each() {
    for mapping in
        ["(vector,(0,2,3))", "(vector,(0,3,2))", "(vector,(0,2,1))", "(vector,(0,6,1))", "(vector,(0,1,4),(1,2,1))"]
    {
        let (seen, server) = job(6, on(Some(mapping)), |_| HERE, exchange);
        let hosts = HostMap::parse_vector(mapping, 6).unwrap().hosts();
        assert!(seen.iter().all(|of| *of == (seen[0].0.clone(), false, Some(hosts))), "{mapping}: {seen:?}");
        let counts = server.seen(|seen| seen.counts.clone());
        assert_eq!(counts["put"], 1 + 2 * hosts as usize, "{mapping}");
    }
}

#[test]
fn ranks_find_each_other_where_the_launcher_does_not_say_who_is_where() {
    let (seen, _) = job(5, on(None), |rank| if rank < 3 { HERE } else { *b"that one" }, exchange);
    assert!(seen.iter().all(|of| !of.1 && of.2 == Some(2)), "{seen:?}");
    let (seen, _) = job(3, on(None), |_| HERE, exchange);
    assert!(seen.iter().all(|of| of.1 && of.2 == Some(1)), "{seen:?}");
}

#[test]
fn a_rank_that_cannot_share_memory_with_its_host_is_a_group_by_itself() {
    for mapping in ["(vector,(0,1,6))", "(vector,(0,2,3))"] {
        let identity = |rank| if rank % 3 == 1 { *b"a prison" } else { HERE };
        let (seen, _) = job(6, on(Some(mapping)), identity, exchange);
        assert!(seen.iter().all(|of| of.0 == seen[0].0 && !of.1), "{seen:?}");
    }
}

#[test]
fn who_finishes_early_is_not_waited_for_within_a_host_and_who_collects_is_missed_in_words() {
    let (_, server) = job(
        3,
        on(Some("(vector,(0,1,3))")),
        |_| HERE,
        |mut hosted| {
            hosted.fence().unwrap();
            if hosted.rank() == 2 {
                return hosted.finish();
            }
            hosted.put("late", b"value").unwrap();
            hosted.fence().unwrap();
            assert_eq!(hosted.get_all("late").unwrap().iter().flatten().count(), 2);
            if hosted.rank() == 0 {
                return hosted.abort(9);
            }
            let words = hosted.fence().unwrap_err().to_string();
            assert!(words.contains("rank 0 has ended or finished"), "{words}");
        },
    );
    assert_eq!(server.seen(|seen| seen.aborted.clone()), Some("9".into()));
}

#[test]
fn a_rank_that_does_not_come_is_missed_in_bounded_time() {
    let (results, _) = job(
        2,
        on(Some("(vector,(0,1,2))")),
        |_| HERE,
        |mut hosted| {
            hosted.patience = Duration::from_millis(30);
            let result = match hosted.rank() {
                0 => hosted.fence(),
                _ => Ok(()),
            };
            // Rank 1 keeps its connection until rank 0 has given up.
            (hosted, result)
        },
    );
    assert!(matches!(results[0].1, Err(BootstrapError::Timeout { operation: "a fence", ms: 30 })));
}

#[test]
fn what_a_rank_puts_between_two_fences_is_bounded() {
    // Two hosts of two ranks each, so that heads, members and the launcher pass on as much as may be put.
    job(
        4,
        on(Some("(vector,(0,2,2))")),
        |_| HERE,
        |mut hosted| {
            let value = vec![hosted.rank() as u8; VALUE_BYTES_MAX];
            let each = 3 + value.len() + PUT_EXTRA_BYTES;
            let whole = PUT_BYTES_MAX / each;
            for key in 0..whole {
                hosted.put(&format!("{key:03}"), &value).unwrap();
            }
            let last = PUT_BYTES_MAX - whole * each - 3 - PUT_EXTRA_BYTES;
            hosted.put("end", &value[..last]).unwrap();
            hosted.put("000", &value).unwrap();
            let words = hosted.put("end", &value[..last + 1]).unwrap_err().to_string();
            assert!(words.contains("a rank may put 1048576 bytes between two fences"), "{words}");
            assert!(hosted.put("x", b"").is_err());
            assert_eq!(hosted.get(hosted.rank(), "end").unwrap().map(|end| end.len()), Some(last), "it is kept");
            assert!(matches!(hosted.put("", b""), Err(BootstrapError::Key { bytes: 0 })));
            hosted.fence().unwrap();
            assert_eq!(hosted.get(3 - hosted.rank(), "end").unwrap().map(|end| end.len()), Some(last));
            hosted.put("more", &value).unwrap();
        },
    );
}
