//! Tests of the launcher's side of the exchange, without descriptors.

use super::*;

fn server(size: usize) -> Server {
    let mut server = Server::new(size, "job-test".into());
    for rank in 0..size as u32 {
        hello(&mut server, rank).unwrap();
        assert_eq!(answers(&mut server, rank), ["Done"]);
    }
    server
}

fn hello(server: &mut Server, rank: u32) -> Result<(), Malformed> {
    let size = server.ranks.len() as u32;
    say(server, rank, Message::Hello { version: VERSION, rank, size, job: "job-test" })
}

fn say(server: &mut Server, rank: u32, message: Message<'_>) -> Result<(), Malformed> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    // One byte at a time: a frame may arrive in any pieces.
    bytes.iter().try_for_each(|byte| server.receive(rank, &[*byte]))
}

fn answers(server: &mut Server, rank: u32) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let bytes = server.output(rank).to_vec();
        if bytes.is_empty() {
            return all;
        }
        let mut used = 0;
        while let Some((body, taken)) = next_frame(&bytes[used..]).unwrap() {
            all.push(match Message::decode(body).unwrap() {
                Message::Done => "Done".to_owned(),
                Message::Value { rank, value } => format!("{rank} {value:?}"),
                Message::RankEnded { rank, reason } => format!("{rank} {reason}"),
                Message::Refused { reason } => format!("Refused: {reason}"),
                other => panic!("{other:?}"),
            });
            used += taken;
        }
        server.sent(rank, used);
    }
}

#[test]
fn a_fence_opens_when_the_last_live_rank_is_there() {
    let mut server = server(4);
    say(&mut server, 0, Message::Fence).unwrap();
    say(&mut server, 1, Message::Fence).unwrap();
    assert!(answers(&mut server, 0).is_empty());
    server.rank_ended(2, "killed".into());
    assert_eq!(answers(&mut server, 0), ["2 killed"]);
    say(&mut server, 3, Message::Finish).unwrap();
    assert_eq!(answers(&mut server, 0), ["Done"]);
    assert_eq!(answers(&mut server, 1), ["Done", "2 killed"]);
    // The rank has finished, so it gets no news.
    assert!(answers(&mut server, 3).is_empty());
}

#[test]
fn a_rank_that_dies_at_the_fence_neither_opens_nor_blocks_it() {
    let mut server = server(3);
    say(&mut server, 0, Message::Fence).unwrap();
    server.closed(0);
    server.rank_ended(0, "killed".into());
    say(&mut server, 1, Message::Fence).unwrap();
    assert_eq!(answers(&mut server, 1), ["0 killed"]);
    say(&mut server, 2, Message::Fence).unwrap();
    assert_eq!(answers(&mut server, 1), ["Done"]);
    assert_eq!((server.live, server.at_fence), (2, 0));
}

#[test]
fn a_listing_has_every_rank_in_order_and_comes_in_bounded_pieces() {
    let mut server = server(300);
    let value = vec![7; 1000];
    for rank in (0..300).step_by(2) {
        say(&mut server, rank, Message::Put { key: "k", value: &value }).unwrap();
        assert_eq!(answers(&mut server, rank), ["Done"]);
    }
    say(&mut server, 5, Message::GetAll { key: "k" }).unwrap();
    assert!(server.output(5).len() < OUTPUT_BYTES + 2000);
    // An event comes after the answer that is being written, not inside it.
    server.rank_ended(9, "exited".into());
    let all = answers(&mut server, 5);
    assert_eq!(all.len(), 301);
    for (rank, answer) in all[..300].iter().enumerate() {
        let value = (rank % 2 == 0).then_some(&value);
        assert_eq!(*answer, format!("{rank} {value:?}"));
    }
    assert_eq!(all[300], "9 exited");
}

#[test]
fn what_a_rank_keeps_is_bounded() {
    let mut server = server(1);
    let value = vec![0; 16 << 10];
    for key in 0..64 {
        say(&mut server, 0, Message::Put { key: &key.to_string(), value: &value }).unwrap();
        assert_eq!(answers(&mut server, 0), ["Done"]);
    }
    say(&mut server, 0, Message::Put { key: "0", value: &value }).unwrap();
    assert_eq!(answers(&mut server, 0), ["Done"]);
    say(&mut server, 0, Message::Put { key: "one more", value: &value }).unwrap();
    assert!(answers(&mut server, 0)[0].starts_with("Refused: a rank may put"));
    say(&mut server, 0, Message::Get { rank: 0, key: "one more" }).unwrap();
    assert_eq!(answers(&mut server, 0), ["0 None"]);
}

#[test]
fn only_a_matching_greeting_is_accepted() {
    let mut server = Server::new(2, "job-test".into());
    assert!(say(&mut server, 0, Message::Fence).is_err());
    for hello in [
        Message::Hello { version: VERSION + 1, rank: 0, size: 2, job: "job-test" },
        Message::Hello { version: VERSION, rank: 1, size: 2, job: "job-test" },
        Message::Hello { version: VERSION, rank: 0, size: 3, job: "job-test" },
        Message::Hello { version: VERSION, rank: 0, size: 2, job: "another" },
    ] {
        say(&mut server, 0, hello).unwrap();
        assert!(answers(&mut server, 0)[0].starts_with("Refused"));
        assert!(!server.is_engaged(0));
    }
    hello(&mut server, 0).unwrap();
    assert!(server.is_engaged(0));
    assert!(hello(&mut server, 0).is_err());
}

#[test]
fn the_first_rank_that_asks_for_the_end_of_the_job_is_heard_at_any_time() {
    let mut server = server(2);
    assert_eq!(server.abort(), None);
    say(&mut server, 1, Message::Fence).unwrap();
    say(&mut server, 1, Message::Abort { code: 7 }).unwrap();
    say(&mut server, 0, Message::Abort { code: 8 }).unwrap();
    assert_eq!(server.abort(), Some((1, 7)));
}

#[test]
fn a_rank_that_talks_out_of_turn_is_refused() {
    let mut server = server(2);
    assert!(say(&mut server, 0, Message::Done).is_err());
    say(&mut server, 0, Message::Fence).unwrap();
    assert!(say(&mut server, 0, Message::Fence).is_err());
    say(&mut server, 1, Message::Finish).unwrap();
    say(&mut server, 1, Message::Finish).unwrap();
    assert!(say(&mut server, 1, Message::Get { rank: 0, key: "k" }).is_err());
    assert!(server.receive(0, &[0xff; 8]).is_err());
    // A rank that does not read its answers cannot make the launcher keep more and more of them.
    let mut server = super::tests::server(1);
    let flood = (0..1_000_000).find(|_| say(&mut server, 0, Message::Get { rank: 0, key: "k" }).is_err());
    assert!(flood.is_some());
}

#[test]
fn news_that_a_rank_has_not_read_are_no_answers() {
    let mut server = server(4096);
    for rank in 1..3000 {
        server.rank_ended(rank, "killed by signal 9 (SIGKILL)".into());
    }
    // The rank's socket is full of earlier news, so nothing is sent.
    let news = server.output(0).len();
    assert!(news > 0 && server.output(0).len() == news);
    say(&mut server, 0, Message::Put { key: "k", value: &[7] }).unwrap();
    let all = answers(&mut server, 0);
    assert_eq!(all.iter().filter(|answer| *answer == "Done").count(), 1);
    assert_eq!(all.len(), 1 + 2999, "all news come, and the answer");
}
