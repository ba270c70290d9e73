//! Gives any bytes to the readers of what launchers and other hosts say. Nothing may panic. The fuzz target `answers`
//! calls this, and so does a test that needs no fuzzer.

use tickwire::internals::launchers::{mapping, pmi, table};
use tickwire::internals::traces::hosts::{Answer, Question};
use tickwire::internals::traces::whowaits::{RankReport, who_waits};

/// Ranks of the jobs in these texts.
const SIZE: u32 = 4;

/// Gives an input to the reader that its first byte selects. Returns the number of the reader, and whether it
/// accepted the input.
pub fn answers(data: &[u8]) -> (u8, bool) {
    let Some((&way, rest)) = data.split_first() else { return (0, false) };
    let way = way % 5;
    let taken = match way {
        0 => mapping(&String::from_utf8_lossy(rest), SIZE).is_ok_and(|hosts| {
            assert_eq!(hosts.len(), SIZE as usize);
            assert!(hosts.iter().all(|&host| host < SIZE));
            true
        }),
        1 => table(rest, SIZE).is_ok(),
        2 => pmi(rest, SIZE).is_ok(),
        3 => <[u8; 16]>::try_from(rest).is_ok_and(|bytes| Question::of_bytes(bytes).is_ok()),
        _ => Answer::parse(rest, SIZE).is_ok_and(|answer| {
            say(answer);
            true
        }),
    };
    (way, taken)
}

/// Does with an answer what the commands do with it.
fn say(answer: Answer) {
    let mut reports = vec![RankReport::Missing; SIZE as usize];
    for of in answer.ranks {
        let report = of.report.unwrap_or(RankReport::NoEngine);
        if let RankReport::Dumped(dumps) = &report {
            assert!(dumps.iter().all(|dump| !dump.to_string().is_empty()));
        }
        reports[of.rank as usize] = report;
    }
    let findings = who_waits(&reports);
    assert!(!findings.to_string().is_empty() && reports.iter().all(|report| !report.does().is_empty()));
}

/// Inputs that are accepted, at least one for each reader.
pub fn samples() -> Vec<Vec<u8>> {
    let of = |way: u8, rest: &[u8]| [&[way][..], rest].concat();
    let lines = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\ncmd=maxes rc=0 kvsname_max=64 keylen_max=64 \
                 vallen_max=1024\ncmd=my_kvsname rc=0 kvsname=kvs_7\ncmd=get_result rc=0 value=(vector,(0,2,2))\ncmd=put_result rc=0\n\
                 cmd=barrier_out rc=0\ncmd=get_result rc=0 value=AAEC\ncmd=finalize_ack rc=0\n";
    let table = [&[1, 2, 0, 1, 1, 4][..], b"card", &[2, 0, 3, 0, 3, 7, 8, 9, 1, 3, 2, 1, 6]].concat();
    let dump = r#"{"job":"job-1","rank":1,"size":4,"pid":7,"tick":9,"now_ns":5,"activity":"waiting","active":1,"submissions":0,
        "communicators":[{"id":0,"context":8,"rank":1,"size":4,"closing":false,"members":[0,1,2,3],"collectives":2}],
        "peers":[{"proc":0,"transport":"shm","state":"connected","reason":null,"sends":{"rows":1,"bytes":2},"data":{"rows":0,"bytes":0},
            "posted":{"rows":0,"bytes":0},"unexpected":{"rows":0,"bytes":0},"traffic":null,
            "credit":{"bytes":1,"offers":2,"granted_bytes":3,"granted_offers":4,"window_bytes":5,"window_offers":6}}],
        "operations":[{"row":3,"kind":"receive","stage":"posted","obstacle":"none","synchronous":false,"ready":false,"plane":"user","comm":0,
            "context":8,"rank":0,"peer":0,"tag":7,"bytes":64,"done":0,"age":{"ticks":1,"ns":2},"awaited":true,"submitted":false,
            "detached":false,"collective":{"name":"barrier","number":1}}],
        "unexpected":[{"plane":"user","comm":0,"context":8,"rank":0,"peer":0,"tag":8,"bytes":6,"offered":false,"age":null}],
        "operations_left_out":0,"unexpected_left_out":0,"windows":[],"hidden":null,
        "accounting":{"queues":[],"tables":[],"transports":[],"systems":[["post",{"runs":1,"bytes":2}]]}}"#;
    let answer = format!(
        r#"{{"now_ns":5,"ranks":[{{"rank":1,"pid":7,"report":{{"dumped":[{dump}]}}}},{{"rank":2,"pid":8,"report":{{"silent":{{"ns":99}}}}}},
            {{"rank":3,"pid":9,"report":"no_engine"}}]}}"#
    );
    vec![
        of(0, b"(vector,(0,2,2))"),
        of(0, b"(vector,[(0,2,1),3]x2,(1,1,1))"),
        of(1, &table),
        of(2, lines.as_bytes()),
        of(3, &[1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 0]),
        of(4, answer.as_bytes()),
    ]
}
