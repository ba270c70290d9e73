use super::server::{Manner, Server};
use super::*;
use crate::bootstrap::kvs::{get_long, put_long};

fn place(rank: u32, size: u32, ms: u64) -> PmiPlace {
    PmiPlace { fd: -1, rank, size, patience: Duration::from_millis(ms) }
}

fn alone(manner: Manner) -> (Result<Pmi, BootstrapError>, Server) {
    let server = Server::new(1, manner);
    (Pmi::connect(place(0, 1, 5_000), server.rank().0.into()), server)
}

#[test]
fn values_of_any_bytes_come_back_in_parts_that_the_launcher_takes() {
    for value_max in [32, 100, 1024, 1 << 20] {
        let (pmi, server) = alone(Manner { value_max, ..Manner::default() });
        let mut pmi = pmi.unwrap();
        let bytes: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
        put_long(&mut pmi, "1.card", &bytes).unwrap();
        put_long(&mut pmi, "1.none", &[]).unwrap();
        pmi.fence(true).unwrap();
        assert_eq!(get_long(&mut pmi, 0, "1.card", 5000).unwrap(), Some(bytes));
        assert_eq!(get_long(&mut pmi, 0, "1.none", 0).unwrap(), Some(Vec::new()));
        assert_eq!(get_long(&mut pmi, 0, "1.other", 9).unwrap(), None);
        assert!(get_long(&mut pmi, 0, "1.card", 4999).unwrap_err().to_string().contains("impossible length"));
        pmi.abort(7);
        pmi.finalize();
        assert_eq!(server.seen(|seen| seen.aborted.clone()), Some("7".into()));
        let puts = server.seen(|seen| seen.counts["put"]);
        assert!(puts > 5000 / 768 && puts < 5010 / (value_max.min(900) / 4 * 3 - 3) + 3, "{puts} of {value_max}");
    }
}

#[test]
fn the_launchers_mapping_is_the_map_of_hosts_if_there_is_one_that_can_be_read() {
    let hosts = |mapping: Option<&str>| {
        let server = Server::new(4, Manner { mapping: mapping.map(Into::into), ..Manner::default() });
        Pmi::connect(place(0, 4, 5_000), server.rank().0.into()).unwrap().hosts()
    };
    assert_eq!(hosts(Some("(vector,(0,2,2))")).unwrap().unwrap().hosts(), 2);
    assert_eq!(hosts(None).unwrap(), None);
    assert_eq!(hosts(Some("(matrix,0)")).unwrap(), None, "what cannot be read is as good as none");
}

#[test]
fn odd_answers_are_errors_that_say_what_came() {
    let odd: [(&str, &[u8], &str); 10] = [
        ("init", b"cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0\n", "refuses `init`"),
        ("init", b"220 mail.example.org ESMTP\n", "220 mail.example.org ESMTP"),
        ("init", b"cmd=maxes rc=0\n", "`cmd=response_to_init` was expected"),
        ("init", b"\xff\xfe\n", "an answer is not text"),
        ("init", b"\n", "was expected"),
        ("get_maxes", b"cmd=maxes rc=0\n", "keylen_max="),
        ("get_maxes", b"cmd=maxes rc=0 keylen_max=-1 vallen_max=9\n", "keylen_max=-1"),
        ("get_maxes", b"cmd=maxes rc=0 keylen_max=64 vallen_max=9\n", "values of 9 bytes"),
        ("get_maxes", b"cmd=maxes rc=0 keylen_max=9 vallen_max=1024\n", "keys of 9"),
        ("get_my_kvsname", b"cmd=my_kvsname rc=0\n", "names the job ``"),
    ];
    for (request, answer, expected) in odd {
        let (pmi, _server) = alone(Manner { instead: vec![(request, answer.to_vec())], ..Manner::default() });
        let words = pmi.map(drop).unwrap_err().to_string();
        assert!(words.contains(expected) && words.lines().count() == 1, "{words}");
    }
    let later: [(&str, &[u8], &str); 3] = [
        ("get", b"cmd=get_result rc=0\n", "has no value"),
        ("get", b"cmd=get_result rc=0 value=&&&\n", "not base64"),
        ("barrier_in", b"cmd=barrier_out rc=5 msg=no\n", "refuses `barrier_in`"),
    ];
    for (request, answer, expected) in later {
        let (pmi, _server) = alone(Manner { instead: vec![(request, answer.to_vec())], ..Manner::default() });
        let mut pmi = pmi.unwrap();
        let error = if request == "get" { pmi.get(0, "k").map(drop) } else { pmi.fence(false) };
        let words = error.unwrap_err().to_string();
        assert!(words.contains(expected), "{words}");
    }
}

#[test]
fn a_launcher_that_is_silent_or_gone_is_an_error_in_bounded_time() {
    let silent = Server::new(1, Manner { instead: vec![("barrier_in", Vec::new())], ..Manner::default() });
    let mut pmi = Pmi::connect(place(0, 1, 50), silent.rank().0.into()).unwrap();
    assert!(matches!(pmi.fence(false), Err(BootstrapError::Timeout { operation: "a fence", ms: 50 })));
    assert!(matches!(pmi.put("k", b"v"), Err(BootstrapError::Broken)), "a late answer could be another's");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(theirs);
    assert!(matches!(Pmi::connect(place(0, 1, 5_000), ours.into()), Err(BootstrapError::LauncherEnded)));
}

#[test]
fn an_answer_without_end_is_given_up() {
    let endless = vec![b'x'; ANSWER_BYTES_MAX + 2 * READ_BYTES];
    let (pmi, _server) = alone(Manner { instead: vec![("init", endless)], ..Manner::default() });
    let words = pmi.map(drop).unwrap_err().to_string();
    assert!(words.contains("an answer of more than"), "{words}");
}
