//! `tickwire whowaits`, `dump` and `top` as their users see them: on real jobs that hang.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

mod collectives;
mod kit;
mod reach;

use crate::kit::{Hanging, PATIENCE, good, tickwire};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, Read};
use std::process::{Command, Stdio};
use std::time::Instant;
use tickwire::internals::traces::dump::{Obstacle, Stage};
use tickwire::testing::{Cluster, STEP_NS};
use tickwire::{Limits, Rank, Source, Tag, TagFilter};
use tickwire_tests::binaries::binary;
use tickwire_tests::needs::has_libfabric;
use tickwire_tests::scratch;

#[test]
fn a_dump_has_every_queue_whatever_the_transport() {
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let world = cluster.engines[0].comm_world();
        let [one, two] = &mut cluster.engines[..] else { unreachable!() };
        let posted = one.irecv(vec![0u8; 64], Rank(1), Tag(7), world).unwrap();
        let any = one.irecv(vec![0u8; 32], Source::Any, TagFilter::Any, world).unwrap();
        one.cancel(&any).unwrap();
        let offered = two.isend(vec![0u8; 1 << 20], Rank(0), Tag(8), world).unwrap();
        let sent = two.isend(vec![0u8; 16], Rank(0), Tag(9), world).unwrap();
        cluster.tick_until(1000, "both messages have come", |c| c.engines[0].dump().unexpected.len() == 2);
        let late = cluster.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(6), world).unwrap();
        cluster.tick_times(10);
        let dump = cluster.engines[0].dump();
        let stages: Vec<_> = dump.operations.iter().map(|o| (o.tag, o.stage, o.bytes)).collect();
        let expected = [(Some(7), Stage::Posted, 64), (None, Stage::Done, 0), (Some(6), Stage::Posted, 8)];
        assert_eq!(stages, expected, "oldest first");
        let ages: Vec<u64> = dump.operations.iter().map(|o| o.age.unwrap().ns).collect();
        assert!(ages[0] >= ages[2] + STEP_NS && ages[2] == 10 * STEP_NS, "{ages:?}");
        let messages: Vec<_> = dump.unexpected.iter().map(|m| (m.tag, m.bytes, m.offered, m.peer)).collect();
        assert_eq!(messages, [(8, 1 << 20, true, Some(1)), (9, 16, false, Some(1))]);
        let peer = dump.peers.iter().find(|peer| peer.proc == 1).unwrap();
        assert_eq!((peer.posted.rows, peer.posted.bytes, peer.unexpected.rows), (2, 72, 2));
        let traffic = peer.traffic.unwrap();
        assert_eq!(traffic.received, 128, "two frames of a cache line");
        assert!(traffic.ring_sent > 0 && traffic.ring_received == traffic.ring_sent, "{traffic:?}");
        let of = dump.accounting.transports.iter().find(|transport| transport.name == peer.transport).unwrap();
        assert_eq!(of.shared_bytes > 0, peer.transport == "shm", "loopback has no memory that others have mapped");
        assert!(of.traffic.ring_received >= traffic.ring_received);
        let bytes = |name: &str| dump.accounting.queues.iter().find(|(queue, _)| queue == name).unwrap().1;
        assert_eq!(bytes("receives posted for one source").bytes, 72);
        assert_eq!(bytes("messages unexpected, held in temporaries").bytes, 16);
        assert_eq!(bytes("messages unexpected, held by their senders").bytes, 1 << 20);
        let theirs = cluster.engines[1].dump();
        assert_eq!((theirs.operations[0].stage, theirs.operations[0].peer), (Stage::Offered, Some(0)));
        let large = cluster.engines[0].irecv(vec![0u8; 1 << 20], Rank(1), Tag(8), world).unwrap();
        cluster.finish(1000, 0, large).unwrap();
        cluster.tick_until(1000, "the offer is done", |c| c.engines[1].dump().active == 0);
        let read =
            cluster.engines[0].accounting().transports.iter().map(|t| t.traffic.read + t.traffic.received).sum::<u64>();
        assert!(read >= 1 << 20);
        drop((posted, any, offered, sent, late));
    }
}

#[test]
fn bytes_are_accounted_to_the_systems_that_moved_them() {
    for (name, mut cluster, reads) in
        [("shared memory", Cluster::shm(2), true), ("loopback", Cluster::loopback(2), false)]
    {
        let world = cluster.engines[0].comm_world();
        let moved = |cluster: &mut Cluster, rank: usize| {
            let systems = cluster.engines[rank].accounting().systems;
            let of = |name: &str| systems.iter().find(|(system, _)| system == name).unwrap().1.bytes;
            ["post", "transfer", "deliver"].map(of)
        };
        let pass = |cluster: &mut Cluster, bytes: usize, early: bool| {
            let send = cluster.engines[0].isend(vec![7u8; bytes], Rank(1), Tag(1), world).unwrap();
            if early {
                cluster.tick_times(50);
            }
            let receive = cluster.engines[1].irecv(vec![0u8; bytes], Rank(0), Tag(1), world).unwrap();
            cluster.finish(1000, 1, receive).unwrap();
            cluster.finish(1000, 0, send).unwrap();
        };
        // The first message makes the connection.
        pass(&mut cluster, 0, false);
        assert_eq!([moved(&mut cluster, 0), moved(&mut cluster, 1)], [[0; 3]; 2], "{name}: headers do not count");
        // The message is copied into a temporary buffer and out of it.
        pass(&mut cluster, 1000, true);
        assert_eq!([moved(&mut cluster, 0), moved(&mut cluster, 1)], [[1000, 0, 0], [0, 2000, 0]], "{name}");
        // This receive is posted before its message.
        let receive = cluster.engines[1].irecv(vec![0u8; 500], Rank(0), Tag(2), world).unwrap();
        cluster.engines[0].send(&[1u8; 500], Rank(1), Tag(2), world).unwrap();
        cluster.finish(1000, 1, receive).unwrap();
        let [before, theirs] = [moved(&mut cluster, 0), moved(&mut cluster, 1)];
        assert_eq!([before, [theirs[0], theirs[1] + theirs[2], 0]], [[1500, 0, 0], [0, 2500, 0]], "{name}");
        // A long message is read out of the sender's memory, or sent in pieces.
        pass(&mut cluster, 100_000, false);
        let [ours, theirs] = [moved(&mut cluster, 0), moved(&mut cluster, 1)];
        assert_eq!(ours, [1500, if reads { 0 } else { 100_000 }, 0], "{name}");
        assert_eq!(theirs[1] + theirs[2], 102_500, "{name}");
    }
}

#[test]
fn a_dump_says_what_a_queued_send_waits_for_and_has_the_credit_of_each_connection() {
    let limits = Limits { unexpected_bytes_max: 0, ..Limits::default() };
    let mut cluster = Cluster::shm_with(2, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    let send = |cluster: &mut Cluster, bytes: usize, tag| {
        cluster.engines[0].isend(vec![7u8; bytes], Rank(1), Tag(tag), world).unwrap()
    };
    let first = send(&mut cluster, 100, 0);
    let queued = &cluster.engines[0].dump().operations[0];
    assert_eq!((queued.stage, queued.obstacle), (Stage::Queued, Obstacle::Connection));
    cluster.tick_until(1000, "it has come", |c| c.engines[1].dump().unexpected.len() == 1);
    let credit = |cluster: &mut Cluster, rank: usize| {
        let dump = cluster.engines[rank].dump();
        dump.peers.iter().find(|peer| peer.proc == 1 - rank as u32).unwrap().credit.unwrap()
    };
    // The smallest window has 1024 lines and 64 offers. A message of 100 B costs 8 lines.
    let (ours, theirs) = (credit(&mut cluster, 0), credit(&mut cluster, 1));
    assert_eq!((ours.bytes, ours.offers, ours.window_bytes, ours.window_offers), ((1024 - 8) * 64, 64, 65_536, 64));
    assert_eq!((theirs.granted_bytes, theirs.granted_offers), (ours.bytes, ours.offers), "both sides say the same");
    // Offers use up the credit. The next offer has to wait, and so does every message behind it.
    let mut offers: Vec<_> = (1..=65).map(|tag| send(&mut cluster, 100 << 10, tag)).collect();
    offers.push(send(&mut cluster, 8, 66));
    cluster.tick_until(1000, "all offers have come", |c| c.engines[1].dump().unexpected.len() == 65);
    let dump = cluster.engines[0].dump();
    let stages = |stage, obstacle| {
        dump.operations.iter().filter(|o| (o.stage, o.obstacle) == (stage, obstacle)).filter_map(|o| o.tag).collect()
    };
    let offered: Vec<u32> = stages(Stage::Offered, Obstacle::None);
    let starved: Vec<u32> = stages(Stage::Queued, Obstacle::Credit);
    assert_eq!((offered.len(), starved), (64, vec![65, 66]));
    let words = dump.to_string();
    assert!(words.contains("tag 65 in world: queued, waits for credit of its receiver\n"), "{words}");
    assert!(
        words.contains("; credit 63.5 KiB and 0 offers; granted 64.0 KiB of 64.0 KiB and 64 of 64 offers\n"),
        "{words}"
    );
    assert_eq!((credit(&mut cluster, 0).offers, credit(&mut cluster, 1).granted_offers), (0, 0));
    // Once a message is received, the others can go on.
    let taken = cluster.engines[1].irecv(vec![0u8; 100], Rank(0), Tag(66), world).unwrap();
    cluster.finish(1000, 1, taken).unwrap();
    assert!(cluster.engines[0].dump().operations.iter().all(|o| o.obstacle != Obstacle::Credit));
    drop((first, offers));
}

#[test]
fn a_sender_without_credit_is_found() {
    let job = Hanging::start("credit", 3, &[]);
    let expected = "rank 0 waits for rank 1 to give credit for tag 64, 100.0 KiB; rank 1 has 64 messages of rank 0 that no \
                    receive has taken, 6.2 MiB; rank 1 has posted no receive from rank 0\n";
    // The other ranks come to their waits a little later.
    let cycle = "cycle: rank 0 → 1 → 2 → 0: each waits for the next\n";
    let said = job.until(&["whowaits"], &[expected, cycle]);
    assert!(said.ends_with(cycle), "{said}");
}

#[test]
fn a_circle_is_found() {
    let job = Hanging::start("cycle", 3, &[]);
    let expected = "
rank 0 waits for tag 1 from rank 1
rank 1 waits for tag 1 from rank 2
rank 2 waits for tag 1 from rank 0
cycle: rank 0 → 1 → 2 → 0: each waits for the next
";
    let said = job.until(&["whowaits"], &[expected]);
    assert!(said.starts_with("rank 0 waits in a call\n") && said.ends_with(expected), "{said}");
    // A process that watches the job has its pages open too, but is no rank.
    let watcher = Command::new(binary("tickwire")).args(["top", "--once", &job.job]).stdout(Stdio::null()).spawn();
    let json = job.ask(&["whowaits", "--json"]);
    watcher.unwrap().wait().unwrap();
    assert!(json.contains("\"cycles\":[[0,1,2]],\"culprits\":[]"), "{json}");
}

#[test]
fn a_wrong_tag_is_found() {
    let job = Hanging::start("tag", 3, &[]);
    let words = ["rank 2 waits for tag 7 from rank 0; rank 0 has sent tag 8\n", "cycle: rank 0 → 2 → 0"];
    job.until(&["whowaits"], &words);
    let large = Hanging::start("large", 2, &[]);
    let words = [
        "rank 0 waits for rank 1 to receive tag 8, 1.0 MiB; rank 1 receives tag 7 from rank 0\n",
        "rank 1 waits for tag 7 from rank 0; rank 0 offers tag 8\n",
    ];
    large.until(&["whowaits"], &words);
}

#[test]
fn a_wrong_communicator_is_found() {
    let job = Hanging::start("communicator", 2, &[]);
    job.until(&["whowaits"], &["rank 1 waits for tag 7 from rank 0; rank 0 has sent tag 7 in communicator 2\n"]);
}

#[test]
fn who_keeps_a_part_of_a_window_locked_is_found() {
    let job = Hanging::start("lock", 2, &[]);
    let words = [
        "rank 1 waits for rank 0 to unlock rank 0's part of window ",
        "rank 0 waits for tag 1 from rank 1",
        "cycle: rank 0 → 1 → 0: each waits for the next\n",
    ];
    job.until(&["whowaits"], &words);
    let dump = |rank: usize| good(&tickwire(&["dump", &job.processes()[rank].to_string()], None));
    let (holder, waiting) = (dump(0), dump(1));
    assert!(
        holder.contains("rank 0 locked alone") && holder.contains("its lock is held by rank 0 (alone)"),
        "{holder}"
    );
    assert!(waiting.contains("waits for the lock of rank 0, held by rank 0 (alone)"), "{waiting}");
}

#[test]
fn who_has_not_begun_or_ended_an_epoch_is_found() {
    for (way, missing) in [
        ("start", "rank 1 waits for rank 0 to post an epoch (win_post) of window 2; rank 0 has posted none\n"),
        ("complete", "rank 1 waits for rank 0 to complete its epoch (win_complete) of window 2\n"),
        ("fence", "rank 1 waits for rank 0 to take part in barrier of window 2; rank 0 has not entered it\n"),
    ] {
        let job = Hanging::start(way, 2, &[]);
        job.until(&["whowaits"], &[missing, "rank 0 waits for tag 1 from rank 1", "cycle: rank 0 → 1 → 0"]);
        let dump = good(&tickwire(&["dump", &job.processes()[1].to_string()], None));
        let epoch = if way == "complete" { "an exposure epoch posted" } else { "window 2" };
        assert!(dump.contains(epoch), "{dump}");
    }
}

#[test]
fn who_updates_a_part_of_a_window_is_found() {
    let job = Hanging::start("accumulating", 2, &[]);
    job.until(&["dump", "--rank", "0"], &["all ranks locked; its lock is held by rank", "; rank 1 is updating it"]);
}

#[test]
fn a_rank_that_does_not_take_part_is_found() {
    let job = Hanging::start("collective", 2, &[]);
    let words =
        ["rank 0 waits for rank 1 to take part in an operation of all of world", "rank 1 waits for tag 1 from rank 0"];
    job.until(&["whowaits"], &words);
    drop(job);
    let job = Hanging::start("absent", 3, &[]);
    let words = [
        "rank 2 has no engine: it has not built one yet, or has closed it\n",
        "ranks 0, 1 wait for rank 2, which has no engine",
    ];
    job.until(&["whowaits", "--timeout", "300"], &words);
}

#[test]
fn a_rank_that_does_not_tick_is_found_and_says_so_when_asked() {
    let job = Hanging::start("silent", 3, &[]);
    let words =
        ["rank 1 waits for tag 2 from rank 0; rank 0 does not tick: last seen ticking ", "ranks 1, 2 wait for rank 0"];
    job.until(&["whowaits", "--timeout", "300"], &words);
    let first = job.processes()[0].to_string();
    let start = Instant::now();
    let output = tickwire(&["dump", "--timeout", "200"], Some(&first));
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(words.starts_with(&format!("tickwire dump: process {first} does not tick: last seen ticking ")), "{words}");
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn an_owner_whose_fabric_does_not_go_on_is_found() {
    if !has_libfabric() {
        return;
    }
    let env =
        [("TICKWIRE_TRANSPORTS", "loopback,shm,ofi:tcp;ofi_rxm"), ("TICKWIRE_ROUTES", "messages=shm atomics=ofi")];
    let job = Hanging::start("updates", 2, &env);
    let words =
        ["the fabric, which does 1 one-sided operation on exposed memory as rank 1 ticks", "rank 0 waits for rank 1"];
    job.until(&["whowaits", "--timeout", "300"], &words);
    let dump = good(&tickwire(&["dump", &job.processes()[0].to_string()], None));
    assert!(dump.contains("exposed memory; 1 operation to be done by the fabric at rank 1"), "{dump}");
    let region = dump.lines().find(|line| line.trim_start().starts_with("region ")).expect("a line about the region");
    assert!(region.ends_with(": 8 bytes, for others to read, write, update, by the fabric"), "{dump}");
}

#[test]
fn a_sleeping_process_says_what_is_pending_in_it() {
    let mut job = Hanging::start("any", 2, &[("TICKWIRE_DUMP_SIGNAL", "USR1")]);
    job.until(&["whowaits"], &["rank 0 waits for tag 3 from any rank", "rank 1 waits for tag 3 from any rank"]);
    let first = job.processes()[0];
    let text = good(&tickwire(&["dump"], Some(&first.to_string())));
    assert!(text.starts_with(&format!("rank 0 of 2, process {first}, job {}: waiting in a call, ", job.job)), "{text}");
    assert!(text.contains("receive of up to 8 B from any rank, tag 3 in world: posted, awaited\n"), "{text}");
    let json = good(&tickwire(&["dump", "--json"], Some(&first.to_string())));
    assert!(json.contains("\"stage\":\"posted\"") && json.contains("\"age\":{\"ticks\":"), "{json}");
    // A signal makes the rank print the same on stderr.
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::USR1).unwrap();
    let mut line = String::new();
    job.stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with(&format!("rank 0 of 2, process {first}, ")), "{line}");
}

#[test]
fn a_running_job_can_be_watched() {
    let job = Hanging::start("busy", 3, &[]);
    let start = Instant::now();
    // On a loaded machine, a rank may get no processor time between two looks.
    loop {
        let said = job.until(&["top", "--once", "--interval", "200"], &["3 with an engine", "| connected |"]);
        assert!(!said.contains('\u{1b}'), "no colours where there is no terminal: {said}");
        let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        let ranks: Vec<_> = rows.iter().filter(|row| row.len() == 17 && row[2].parse::<u32>().is_ok()).collect();
        assert_eq!(ranks.iter().map(|row| row[1]).collect::<Vec<_>>(), ["0", "1", "2"], "{said}");
        // Ticks, frames and bytes a second, and the bytes of the transport.
        let moves = ranks.iter().all(|row| row[4] != "0" && row[7] != "0" && row[9] != "0 B");
        if moves && rows.iter().any(|row| row.len() == 9 && row[1] == "shm" && row[3] != "0 B") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{said}");
    }
    let png = scratch::path("top");
    job.ask(&["top", "--interval", "50", "--png", png.to_str().unwrap()]);
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&png).unwrap()));
    let (width, height) = decoder.read_info().unwrap().info().size();
    assert!(width > 800 && height > 200, "{width} x {height}");
    std::fs::remove_file(png).unwrap();
}

#[test]
fn what_is_no_job_is_one_line() {
    for command in ["whowaits", "dump", "top"] {
        let output = tickwire(&[command], Some("1"));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), words.lines().count()), (Some(1), 1), "{words}");
        assert!(words.starts_with(&format!("tickwire {command}: ")), "{words}");
    }
}

#[test]
fn nothing_is_left_of_a_job_that_was_killed() {
    let mut job = Hanging::start("cycle", 2, &[]);
    job.until(&["whowaits"], &["cycle: rank 0 → 1 → 0"]);
    job.launcher.kill().unwrap();
    // The kernel ends the ranks when the launcher dies. Then their output streams are closed.
    job.stderr.read_to_string(&mut String::new()).unwrap();
    let start = Instant::now();
    while !job.processes().is_empty() {
        assert!(start.elapsed() < PATIENCE);
    }
    let output = tickwire(&["whowaits"], Some(&job.job));
    assert_eq!(output.status.code(), Some(1));
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.lines().any(|line| line.contains(&format!("tickwire-dump-{}-", job.launcher.id()))));
}
