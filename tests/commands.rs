//! The commands and examples as their users see them: the real programs, with little work.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

mod book;
mod examples;
mod mutations;
mod packages;

use std::process::{Command, Output};

use tickwire::Limits;
use tickwire_tests::binaries::binary;
use tickwire_tests::needs::has_libfabric;

fn tickwire(args: &[&str]) -> Output {
    Command::new(binary("tickwire")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The standard output of a command that must have succeeded.
#[track_caller]
fn good(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Checks that a command ended with status 2 and one line on stderr with these words.
#[track_caller]
fn wrong(output: &Output, start: &str, words: &str) {
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.starts_with(start) && line.contains(words) && line.lines().count() == 1, "{line}");
    assert_eq!(text(&output.stdout), "");
}

/// The metric, parameter and unit of each line. The value must be a number with four decimal places.
#[track_caller]
fn figures(output: &Output) -> Vec<(String, usize, String)> {
    let text = good(output);
    let figure = |line: &str| {
        let [metric, parameter, value, unit] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(value.parse::<f64>().unwrap() > 0.0, "{line}");
        assert_eq!(value.split_once('.').unwrap().1.len(), 4, "{line}");
        (metric.to_owned(), parameter.parse().unwrap(), unit.to_owned())
    };
    text.lines().map(figure).collect()
}

fn of(metric: &str, parameters: &[usize], unit: &str) -> Vec<(String, usize, String)> {
    parameters.iter().map(|&parameter| (metric.to_owned(), parameter, unit.to_owned())).collect()
}

const P2P_SIZES: [usize; 12] = [0, 8, 64, 128, 256, 512, 1024, 4096, 16384, 65536, 1 << 20, 4 << 20];

/// The figures that `perf p2p` prints.
fn p2p_figures() -> Vec<(String, usize, String)> {
    [
        of("lat", &P2P_SIZES, "us"),
        of("rate", &[0, 8, 64, 256, 1024, 8192], "Mmsg/s"),
        of("bw", &[65536, 1 << 20, 4 << 20], "GB/s"),
    ]
    .concat()
}

#[test]
fn p2p_prints_every_figure_as_it_comes() {
    let expected = p2p_figures();
    assert_eq!(figures(&tickwire(&["perf", "p2p", "--plain", "--quick"])), expected);
    assert_eq!(figures(&tickwire(&["perf", "p2p", "--plain", "--quick", "--shared-heap"])), expected);
    let compared = good(&tickwire(&["perf", "p2p", "--quick", "--shared-heap"]));
    assert!(compared.contains("a copy within one process"), "{compared}");
    // With more ranks, the others only wait. With loopback, the engines are in one process. Under `tickwire run`, the
    // job was started before.
    assert_eq!(figures(&tickwire(&["perf", "p2p", "--plain", "--quick", "--ranks", "4"])), expected);
    assert_eq!(figures(&tickwire(&["perf", "p2p", "--plain", "--quick", "--transport", "loopback"])), expected);
    let program = binary("tickwire");
    let launched = ["run", "-n", "3", "--", program.to_str().unwrap(), "perf", "p2p", "--plain", "--quick"];
    assert_eq!(figures(&tickwire(&launched)), expected);
}

#[test]
fn a_fabric_without_an_engine_has_the_same_figures() {
    if !has_libfabric() {
        return;
    }
    let tagged = ["--transport", "ofi:tcp;ofi_rxm", "--mode", "tagged"];
    let ways: [(&str, &[&str]); 5] = [
        ("raw", &["--transport", "ofi:net"]),
        ("p2p", &["--transport", "ofi:net"]),
        ("raw", &tagged),
        ("p2p", &tagged),
        ("p2p", &["--ranks", "3", "--beside", "ofi:net"]),
    ];
    for (suite, way) in ways {
        let args = [&["perf", suite, "--plain", "--quick"], way].concat();
        assert_eq!(figures(&tickwire(&args)), p2p_figures(), "{suite} {way:?}");
    }
    for provider in ["ofi:net", "ofi:tcp;ofi_rxm", "ofi:sockets"] {
        let args = ["perf", "raw", "--one-sided", "--plain", "--quick", "--transport", provider];
        let expected: Vec<_> = ["put", "get"].iter().flat_map(|metric| of(metric, &[8], "us")).collect();
        assert_eq!(figures(&tickwire(&args)), expected, "{provider}");
    }
    let unknown = tickwire(&["perf", "raw", "--transport", "ofi:quadrics"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("no provider \"quadrics\" here"), "{}", text(&unknown.stderr));
}

#[test]
fn depth_prints_three_figures_a_depth() {
    let found = figures(&tickwire(&["perf", "depth", "--plain", "--quick"]));
    let metrics = ["posted", "posted_any", "unexpected"];
    let expected: Vec<_> = [0, 8, 64, 512, 4096]
        .iter()
        .flat_map(|&depth| metrics.iter().flat_map(move |metric| of(metric, &[depth], "us")))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn every_second_double_is_sent_in_four_ways() {
    let metrics = ["contiguous", "packed", "strided", "vector"];
    let all = |bytes| metrics.iter().flat_map(move |metric| of(metric, &[bytes], "us"));
    let expected: Vec<_> = [1 << 10, 64 << 10, 1 << 20].into_iter().flat_map(all).collect();
    assert_eq!(figures(&tickwire(&["perf", "vector", "--plain", "--quick"])), expected);
    assert_eq!(figures(&tickwire(&["perf", "vector", "--plain", "--quick", "--transport", "loopback"])), expected);
}

#[test]
fn collective_operations_are_timed_by_the_length_of_their_buffers() {
    let all = |ranks: usize| {
        let mut expected = of("barrier", &[ranks], "us");
        for bytes in [8, 1 << 10, 16 << 10, 64 << 10, 1 << 20] {
            let mut metrics = vec!["allreduce", "iallreduce", "allreduce_init", "bcast", "reduce"];
            if bytes >= 8 * ranks {
                metrics.extend(["allgather", "alltoall", "reduce_scatter"]);
            }
            metrics.extend(["scan", "recv_op_forward"]);
            expected.extend(metrics.iter().flat_map(|metric| of(metric, &[bytes], "us")));
        }
        let overlap = ["iallreduce_all_compute", "iallreduce_one_computes"];
        expected.extend(overlap.iter().flat_map(|metric| of(metric, &[1 << 20], "us")));
        expected
    };
    assert_eq!(figures(&tickwire(&["perf", "coll", "--plain", "--quick"])), all(2));
    assert_eq!(figures(&tickwire(&["perf", "coll", "--plain", "--quick", "--shared-heap", "--ranks", "3"])), all(3));
    assert_eq!(figures(&tickwire(&["perf", "coll", "--plain", "--quick", "--transport", "loopback"])), all(2));
    // More ranks than most machines have processors for: nothing may wait for a rank that spins.
    assert_eq!(figures(&tickwire(&["perf", "coll", "--plain", "--quick", "--ranks", "16"])), all(16));
}

#[test]
fn messages_to_oneself_need_no_other_process() {
    assert_eq!(figures(&tickwire(&["perf", "self", "1000", "--plain"])), of("self", &[1000], "ns"));
}

#[test]
fn idle_ticks_are_measured_with_peers_inside_and_outside_the_process() {
    let idle = |more: &[&str]| figures(&tickwire(&[&["perf", "idle", "--plain", "--quick"], more].concat()));
    assert_eq!(idle(&["--peers", "5"]), of("idle", &[5], "ns"));
    assert_eq!(idle(&["--peers", "5", "--in-process", "--ticks", "100"]), of("idle", &[5], "ns"));
    assert_eq!(idle(&["--peers", "2", "--known", "1000"]), of("idle_known", &[1000], "ns"));
    assert_eq!(idle(&["--peers", "2", "--known", "1000", "--in-process"]), of("idle_known", &[1000], "ns"));
    assert_eq!(idle(&["--peers", "3", "--in-process", "--transport", "loopback"]), of("idle", &[3], "ns"));
}

/// Runs `perf block` over these transports. The rank that blocks must use little processor time, and sleep between any
/// two messages. Each message must end its sleep, which would otherwise last a tenth of a second.
fn blocks(transports: &[&str]) {
    const BLOCKED_MS: f64 = 600.0;
    const WAKEUPS: f64 = 5.0;
    let args = ["perf", "block", "--plain", "--block-ms", "600", "--wakeups", "5", "--sleep-ms", "250"];
    let output = tickwire(&[&args[..], transports].concat());
    let names: Vec<String> = figures(&output).into_iter().map(|(metric, ..)| metric).collect();
    assert_eq!(names, ["block_cpu", "wake_min", "wake_median", "wake_max", "wake_asleep"]);
    let value = |line: &str| line.split(' ').nth(2).unwrap().parse().unwrap();
    let values: Vec<f64> = text(&output.stdout).lines().map(value).collect();
    let [cpu_ms, least_us, median_us, most_us, sleeps] = values[..] else { panic!("{values:?}") };
    assert!(cpu_ms < BLOCKED_MS / 10.0, "{transports:?}: {cpu_ms} ms of processor time in {BLOCKED_MS} ms");
    assert!(least_us <= median_us && median_us <= most_us, "{values:?}");
    assert!(least_us < 20_000.0, "{transports:?}: woken after {least_us} us at best");
    assert!(sleeps >= WAKEUPS, "{transports:?}: {sleeps} sleeps for {WAKEUPS} messages");
}

#[test]
fn a_blocked_rank_sleeps_and_wakes() {
    blocks(&[]);
}

#[test]
fn a_rank_that_blocks_on_shared_memory_beside_a_fabric_sleeps_and_wakes() {
    if !has_libfabric() {
        return;
    }
    // First messages go by shared memory while the fabric is open, then by the fabric.
    blocks(&["--transport", "shm,ofi:net"]);
    blocks(&["--transport", "ofi:net"]);
}

#[test]
fn figures_come_as_a_table_or_as_one_json_object() {
    let table = good(&tickwire(&["perf", "self", "100"]));
    assert!(table.contains("a message to oneself") && table.lines().count() == 3, "{table}");
    let json = good(&tickwire(&["perf", "self", "100", "--json"]));
    assert!(json.starts_with('{') && json.contains(r#""metric":"self""#) && json.lines().count() == 1, "{json}");
}

#[test]
fn info_names_transports_limits_and_the_machine() {
    let report = good(&tickwire(&["info"]));
    for words in ["bevy_ecs 0.20", "loopback", "shm", "eager_max", "/dev/shm", "cores", "fences", "shared heap"] {
        assert!(report.contains(words), "{words}: {report}");
    }
    // The protocol for each range of lengths.
    let rows: Vec<Vec<&str>> = report.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let row = |from| rows.iter().find(|row| row.len() > 5 && row[1] == "loopback" && row[2] == from).unwrap();
    let next = (Limits::default().eager_max + 1).to_string();
    assert_eq!(row("0")[4], "eager, in one frame");
    assert!(row(&next)[3] == "longer" && row(&next)[4].starts_with("pieces of "), "{report}");
    // How windows are updated over each transport.
    let domains = |kind: &str| rows.iter().find(|row| row.len() > 3 && row[1] == kind).unwrap()[2..4].to_vec();
    assert_eq!(domains("allocated_window"), ["updated by the processor"; 2], "{report}");
    let created = ["updated by a lock in shared memory", "updated by the processor"];
    assert_eq!(domains("created_window"), created, "{report}");
    assert_eq!(domains("dynamic_window"), ["updated by a lock in shared memory"; 2], "{report}");
    // The routes to the rank itself and to another rank of this host.
    let routes = |to: &str| rows.iter().find(|row| row.len() > 4 && row[1] == to).unwrap()[2..5].to_vec();
    assert_eq!(routes("routes to"), ["messages", "one-sided", "atomics"], "{report}");
    assert_eq!([routes("the rank itself"), routes("a rank of this host")], [["loopback"; 3], ["shm"; 3]], "{report}");
    let json = good(&tickwire(&["info", "--json"]));
    assert!(json.contains(r#""protocols":[{"transport":"loopback","from":0,"#), "{json}");
    let limited = |args: &[&str], limits| {
        Command::new(binary("tickwire")).args(args).env(tickwire::ENV_LIMITS, limits).output().unwrap()
    };
    let json = good(&limited(&["info", "--json"], "eager_max=4096  boards=0"));
    assert!(json.contains(r#"{"name":"eager_max","value":4096"#) && json.contains(r#""from":4097,"#), "{json}");
    let none = good(&limited(&["info"], "ring_bytes=0"));
    assert!(none.contains("no engine can be built: limits: ring_bytes is 0: give a power"), "{none}");
    let wrong = text(&limited(&["perf", "self", "9"], "eager_max=4k").stderr);
    assert!(wrong.contains("TICKWIRE_LIMITS") && wrong.contains("eager_max is a number: give 0 to "), "{wrong}");
    let shm = r#""routes":[{"to":"the rank itself","over":["loopback","loopback","loopback"]},{"to":"a rank of this host","over":["shm","shm","shm"]}]"#;
    assert!(json.contains(shm), "{json}");
    assert!(json.contains(r#""cheap_poll""#) && json.lines().count() == 1, "{json}");
}

#[test]
fn info_has_the_routes_that_the_environment_makes() {
    let with = |transports: &str, routes: &str| {
        let mut info = Command::new(binary("tickwire"));
        info.arg("info").env(tickwire::ENV_TRANSPORTS, transports).env(tickwire::ENV_ROUTES, routes);
        good(&info.output().unwrap())
    };
    let report = with("loopback", "");
    assert!(report.contains("| a rank of this host | nothing "), "{report}");
    let report = with("loopback,shm", "one-sided=pigeon");
    assert!(report.contains("routes cannot be told, since no engine can be built: "), "{report}");
    if has_libfabric() {
        let report = with("loopback,shm,ofi:sockets", "messages=shm one-sided=ofi");
        let row = report.lines().find(|line| line.starts_with("| a rank of this host ")).unwrap();
        assert_eq!(row.split('|').map(str::trim).collect::<Vec<_>>()[2..5], ["shm", "ofi:sockets", "shm"], "{report}");
    }
}

#[test]
fn info_says_what_libfabric_offers_and_which_of_it_is_taken() {
    let none =
        Command::new(binary("tickwire")).arg("info").env("TICKWIRE_OFI_LIBRARY", "/no/library").output().unwrap();
    let report = good(&none);
    assert!(report.contains("libfabric cannot be loaded (/no/library") && report.contains("libfabric1"), "{report}");
    if !has_libfabric() {
        return;
    }
    let with = |list: &str, names: &str| {
        let output = Command::new(binary("tickwire")).args(["info"]).env(list, names).output().unwrap();
        good(&output)
    };
    let (include, exclude) = ("TICKWIRE_OFI_PROVIDER_INCLUDE", "TICKWIRE_OFI_PROVIDER_EXCLUDE");
    let row = |report: &str, provider: &str, words: &[&str]| {
        let of_it = |line: &&str| line.starts_with(&format!("| {provider} "));
        let found = report.lines().filter(of_it).any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{provider}, {words:?}: {report}");
    };
    let report = with(include, "sockets");
    row(&report, "sockets", &["| yes ", "included: sockets"]);
    row(&report, "tcp;ofi_rxm", &["| no ", "not among sockets"]);
    row(&with(exclude, "ofi_rxm,sockets"), "tcp;ofi_rxm", &["| no ", "excluded: ofi_rxm"]);
    let report = with(include, "quadrics");
    assert!(report.contains("transport ofi is not available: there is no provider \"quadrics\" here"), "{report}");
    let mut command = Command::new(binary("tickwire"));
    command.args(["perf", "p2p", "--transport", "ofi:sockets"]).env("TICKWIRE_OFI_TAG_MODE", "ofi_tag_9");
    let refused = text(&command.output().unwrap().stderr);
    let words = "transport ofi: TICKWIRE_OFI_TAG_MODE: 'ofi_tag_9' is no tag mode: there are auto, ofi_tag_1, ";
    assert!(refused.contains(words), "{refused}");
    // A value that is no number, a number that is too large, and the variable that the message must name.
    for (variable, value, words) in [
        ("TICKWIRE_OFI_CONTEXTS", "many", "TICKWIRE_OFI_CONTEXTS is \"many\": give a number"),
        ("TICKWIRE_OFI_CONTEXTS", "65", "65 contexts for one-sided operations: 64 are the most"),
        ("TICKWIRE_OFI_RINGS", "-1", "TICKWIRE_OFI_RINGS is \"-1\": give a number"),
    ] {
        let report = with(variable, value);
        assert!(report.contains(words), "{report}");
        let mut command = Command::new(binary("tickwire"));
        let output = command.args(["perf", "p2p", "--transport", "ofi:sockets"]).env(variable, value).output().unwrap();
        assert!(!output.status.success() && text(&output.stderr).contains(words), "{output:?}");
    }
    let json = good(&tickwire(&["info", "--json"]));
    assert!(json.contains(r#""provider":"tcp;ofi_rxm""#) && json.contains(r#""taken":true"#), "{json}");
}

#[test]
fn procs_stay_within_their_bytes() {
    let report = good(&tickwire(&["info", "--procs", "1000"]));
    assert!(report.contains(" ok ") && !report.contains("exceeded"), "{report}");
    let json = good(&tickwire(&["info", "--procs", "1000", "--json"]));
    assert_eq!(json.matches(r#""holds":true"#).count(), 4, "{json}");
}

#[test]
fn wrong_use_is_one_line_and_status_2() {
    let cases: [(&[&str], &str, &str); 21] = [
        (&[], "tickwire: ", "tickwire --help"),
        (&["fly"], "tickwire: ", "'fly'"),
        (&["perf"], "tickwire perf: ", "tickwire perf --help"),
        (&["perf", "speed"], "tickwire perf: ", "'speed'"),
        (&["perf", "p2p", "--ranks", "1"], "tickwire perf: ", "2..=4096"),
        (&["perf", "p2p", "--plain", "--json"], "tickwire perf: ", "cannot be used with"),
        (&["perf", "idle", "--transport", "pigeon"], "tickwire perf: ", "'pigeon'"),
        (&["perf", "block", "--transport", "loopback"], "tickwire perf: ", "--transport shm"),
        (&["perf", "raw"], "tickwire perf: ", "--transport ofi"),
        (&["perf", "p2p", "--mode", "tagged"], "tickwire perf: ", "add --transport"),
        (&["perf", "p2p", "--transport", "ofi", "--mode", "eager"], "tickwire perf: ", "'eager'"),
        (&["perf", "p2p", "--beside", "ofi"], "tickwire perf: ", "--ranks 3"),
        (&["perf", "raw", "--transport", "shm"], "tickwire perf: ", "raw measures one fabric"),
        (
            &["perf", "raw", "--one-sided", "--transport", "ofi:net", "--mode", "tagged"],
            "tickwire perf: ",
            "leave --mode tagged out",
        ),
        (&["info", "--procs", "0"], "tickwire info: ", "0"),
        (&["perf", "self", "0"], "tickwire perf: ", "0"),
        (&["trace"], "tickwire trace: ", "<FILE>"),
        (&["trace", "a.json"], "tickwire trace: ", "--png"),
        (&["trace", "a.json", "--png", "a.png", "--from", "7"], "tickwire trace: ", "such as 1.5ms"),
        (&["trace", "a.json", "--png", "a.png", "--messages", "5..5"], "tickwire trace: ", "such as 100..105"),
        (
            &["trace", "a.json", "--png", "a.png", "--messages", "1..2", "--to", "7s"],
            "tickwire trace: ",
            "cannot be used",
        ),
    ];
    for (args, start, words) in cases {
        wrong(&tickwire(args), start, words);
    }
}

#[test]
fn every_command_has_help() {
    let commands: [&[&str]; 14] = [
        &[],
        &["run"],
        &["top"],
        &["dump"],
        &["whowaits"],
        &["trace"],
        &["perf"],
        &["perf", "p2p"],
        &["perf", "raw"],
        &["perf", "depth"],
        &["perf", "self"],
        &["perf", "idle"],
        &["perf", "block"],
        &["info"],
    ];
    for command in commands {
        let help = good(&tickwire(&[command, &["--help"]].concat()));
        assert!(help.contains("Usage: tickwire") && help.lines().count() > 8, "{help}");
        assert!(!help.contains("--quick"), "{help}");
    }
    assert!(good(&examples::heat(&["--help"])).contains("--iterations"));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [&["info"][..], &["completions", "bash"], &["perf", "self", "10", "--plain"]] {
        let output = Command::new(binary("tickwire")).args(args).stdout(full()).output().unwrap();
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {line}");
        assert!(line.contains("the output cannot be written: No space left on device"), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    let run = Command::new(binary("tickwire")).args(["run", "-n", "2", "--", "echo", "hi"]).stdout(full()).output();
    let run = run.unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(text(&run.stderr).contains("the ranks' output cannot be written"), "{}", text(&run.stderr));
}
